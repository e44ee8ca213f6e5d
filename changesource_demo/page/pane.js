// One client of the cache, with a few issues to edit: at once here, confirmed a moment later, also after being offline.

import { parseQuery } from "./query-text.js";
import { mutators, PINNED, schema, STATUSES } from "./tracker.js";
import { ZeroClient } from "./zero-client.js";

const WORDS = { connected: "connected", connecting: "connecting…", offline: "offline" };

export class Pane {
  constructor({ name, url, run }) {
    this.client = new ZeroClient({ url, schema, mutators, storageKey: `${run}-${name}` });
    this.query = this.client.want({ name: "pinnedIssues", ast: parseQuery(PINNED, schema) });
    this.rows = new Map();
    this.element = document.createElement("article");
    this.element.className = "card pane";
    this.element.id = `pane-${name.toLowerCase()}`;
    this.element.innerHTML = `<header><span class="dot"></span><h3>Client ${name}</h3>
      <span class="words" role="status"></span>
      <label class="switch"><input type="checkbox" class="offline">Offline</label></header>
      <ul class="issues"></ul><p class="error" role="alert"></p>`;
    const offline = this.element.querySelector(".offline");
    offline.checked = this.client.offline;
    offline.addEventListener("change", () => this.client.setOffline(offline.checked));
    this.client.addEventListener("change", () => this.draw());
    this.client.addEventListener("state", () => this.draw());
    this.draw();
    this.client.connect();
  }

  draw() {
    const { client, element } = this;
    const waiting = client.pending.length;
    element.querySelector(".dot").dataset.state = client.state;
    const queue = waiting ? `, ${waiting} ${waiting === 1 ? "edit" : "edits"} waiting` : "";
    element.querySelector(".words").textContent = WORDS[client.state] + queue;
    const pending = new Set(client.pending.map(({ args }) => args[0].id));
    for (const issue of client.view(this.query)) this.drawIssue(issue, pending.has(issue.id));
  }

  drawIssue(issue, isPending) {
    const row = this.rows.get(issue.id) ?? this.addIssue(issue);
    row.element.classList.toggle("pending", isPending);
    if (row.title.value !== issue.title && document.activeElement !== row.title) row.title.value = issue.title;
    row.status.value = issue.status;
    const shown = JSON.stringify([issue.title, issue.status]);
    if (row.shown !== undefined && row.shown !== shown) flash(row.element);
    row.shown = shown;
  }

  addIssue({ id }) {
    const element = document.createElement("li");
    element.className = "issue";
    element.dataset.id = id;
    const options = STATUSES.map((status) => `<option>${status}</option>`).join("");
    element.innerHTML = `<span class="id">${id}</span><input aria-label="Title of issue ${id}">
      <select aria-label="Status of issue ${id}">${options}</select>`;
    const [title, status] = element.querySelectorAll("input, select");
    title.addEventListener("change", () => this.edit(title, "issue.setTitle", { id, title: title.value }));
    title.addEventListener("keydown", ({ key }) => key === "Enter" && title.blur());
    status.addEventListener("change", () => this.edit(status, "issue.setStatus", { id, status: status.value }));
    this.element.querySelector(".issues").append(element);
    const row = { element, title, status };
    this.rows.set(id, row);
    return row;
  }

  async edit(field, name, args) {
    const said = this.element.querySelector(".error");
    said.textContent = "";
    try {
      await this.client.mutate(name, args);
    } catch (refused) {
      said.textContent = `Issue ${args.id}: ${refused.message}. The edit was taken back.`;
      field.value = this.client.view(this.query).find(({ id }) => id === args.id)[field.localName === "input" ? "title" : "status"];
    }
  }
}

export function flash(element) {
  element.classList.remove("flash");
  void element.offsetWidth;
  element.classList.add("flash");
  element.addEventListener("animationend", () => element.classList.remove("flash"), { once: true });
}
