// A query one can edit: its rows as they change, and the plan the cache evaluates it by.

import { flash } from "./pane.js";
import { parseQuery, QueryError } from "./query-text.js";
import { schema } from "./tracker.js";
import { ZeroClient } from "./zero-client.js";

const EXAMPLES = {
  "Newest": "issue.orderBy('modified', 'desc').limit(10)",
  "Open, Ada's": "issue.where('status', 'open').where('owner', 'Ada')\n  .orderBy('modified', 'desc').limit(10)",
  "With comments": "issue.related('comments', c => c.orderBy('modified', 'desc').limit(2))\n  .orderBy('modified', 'desc').limit(8)",
  "Discussed": "issue.whereExists('comments', c => c.where('body', 'LIKE', 'Looking%'))\n  .orderBy('modified', 'desc').limit(10)",
};
const MOST_ROWS = 50;

export class LiveQuery {
  constructor(url) {
    this.client = new ZeroClient({ url, schema });
    this.field = document.querySelector("#query");
    this.body = document.querySelector("#rows tbody");
    for (const [name, text] of Object.entries(EXAMPLES)) this.addExample(name, text);
    document.querySelector("#query-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run();
    });
    this.client.addEventListener("change", () => this.draw());
    this.client.addEventListener("state", () => this.client.state === "connected" && this.explain());
    this.client.addEventListener("trouble", ({ detail }) => this.complain(detail.message));
    this.field.value = EXAMPLES.Newest;
    this.run();
    this.client.connect();
  }

  addExample(name, text) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "small", textContent: name });
    button.addEventListener("click", () => {
      this.field.value = text;
      this.run();
    });
    document.querySelector("#examples").append(button);
  }

  complain(message) {
    document.querySelector("#query-error").textContent = message;
  }

  run() {
    let ast;
    try {
      ast = parseQuery(this.field.value, schema);
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      this.complain(error.message);
      return;
    }
    this.complain("");
    const before = this.hash;
    this.ast = ast;
    this.hash = this.client.want({ ast });
    if (before && before !== this.hash) this.client.unwant(before);
    this.body.replaceChildren();
    this.drawHead();
    this.draw();
    this.explain();
  }

  async explain() {
    const plan = document.querySelector("#plan");
    const { ast } = this;
    try {
      const answer = await this.client.inspect({ op: "analyze-query", ast });
      if (ast !== this.ast) return;
      plan.textContent = Object.values(answer.sqlitePlans ?? {}).flat().join("\n");
    } catch (error) {
      plan.textContent = error.message;
    }
  }

  columns() {
    const own = Object.keys(schema.tables[this.ast.table].columns).filter((column) => column !== "pinned");
    const first = ["id", "title", "body", "status", "owner", "author"].filter((column) => own.includes(column));
    const rest = own.filter((column) => !first.includes(column));
    return [...first, ...rest, ...(this.ast.related ?? []).map((each) => each.subquery.alias)];
  }

  drawHead() {
    const names = this.columns().map((column) => `<th scope="col">${column}</th>`);
    document.querySelector("#rows thead").innerHTML = `<tr>${names.join("")}</tr>`;
  }

  draw() {
    const rows = this.client.view(this.hash);
    const complete = this.client.isComplete(this.hash);
    const known = new Map([...this.body.children].map((row) => [row.dataset.id, row]));
    const shown = rows.slice(0, MOST_ROWS).map((row) => this.drawRow(row, known.get(String(row.id)), known.size > 0));
    // Rows that stay are not taken out and put back: that would start their flash again.
    shown.forEach((row, i) => row !== this.body.children[i] && this.body.insertBefore(row, this.body.children[i] ?? null));
    while (this.body.children.length > shown.length) this.body.lastChild.remove();
    const words = `${rows.length} ${rows.length === 1 ? "row" : "rows"}`;
    const more = rows.length > MOST_ROWS ? `, the first ${MOST_ROWS} shown` : "";
    document.querySelector("#row-count").textContent = complete ? words + more : "waiting for the cache…";
  }

  drawRow(row, known, isLive) {
    const element = known ?? document.createElement("tr");
    const shown = this.columns().map((column) => text(column, row[column]));
    const content = JSON.stringify(shown);
    if (element.dataset.content === content) return element;
    const cells = shown.map((value) => {
      const cell = document.createElement("td");
      cell.textContent = value;
      if (value.length > 24) cell.className = "wide";
      return cell;
    });
    element.replaceChildren(...cells);
    Object.assign(element.dataset, { id: row.id, content });
    if (isLive) flash(element);
    return element;
  }
}

function text(column, value) {
  if (column === "modified") return new Date(value).toLocaleTimeString("en-GB");
  if (Array.isArray(value)) return value.map(({ author, body, title }) => title ?? `${author}: ${body}`).join(" · ");
  return String(value ?? "–");
}
