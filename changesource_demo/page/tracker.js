// The issue tracker as clients know it: tables, relationships, and mutators as they are applied before the server
// answers. The server's own are in changesource_demo/app.

const number = { type: "number" };
const string = { type: "string" };

export const schema = {
  tables: {
    comment: {
      columns: { author: string, body: string, id: number, issue_id: number, modified: number },
      primaryKey: ["id"],
    },
    issue: {
      columns: { id: number, modified: number, owner: string, pinned: { type: "boolean" }, status: string, title: string },
      primaryKey: ["id"],
    },
  },
  relationships: {
    issue: { comments: { table: "comment", from: ["id"], to: ["issue_id"] } },
    comment: { issue: { table: "issue", from: ["issue_id"], to: ["id"] } },
  },
};

export const STATUSES = ["open", "in progress", "done"];

export const PINNED = "issue.where('pinned', true).orderBy('id', 'asc')";

export const mutators = {
  "issue.setTitle": (update, { id, title }) => update("issue", { id, title }),
  "issue.setStatus": (update, { id, status }) => update("issue", { id, status }),
};
