// A small Zero client: the sync protocol (version 51) over a WebSocket, with optimistic mutators and an offline queue.
//
// `rows` is what the cache has said, `pending` what it has not confirmed; what is shown is `rows` with the pending
// mutations applied again, so a poke from the cache rebases them and a refusal takes one back. Both are kept in the
// tab's storage: a reload, also without a connection, loses nothing.

import { evaluate } from "./query.js";

const VERSION = 51;
const RETRY_MS = 1000;
const PING_MS = 5000;
const TTL_MS = 60_000;
const FORGOTTEN = ["ClientNotFound", "InvalidConnectionRequestBaseCookie"];

const randomID = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(16).padStart(2, "0")).join("");

function letter(content) {
  const bytes = new TextEncoder().encode(JSON.stringify(content));
  return encodeURIComponent(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")));
}

// Any stable name of a query will do; the cache takes it as it is.
function hashOf(text) {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (const char of text) {
    const code = char.codePointAt(0);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  return (a >>> 0).toString(36) + (b >>> 0).toString(36);
}

export class Refused extends Error {}

export class ZeroClient extends EventTarget {
  constructor({ url, schema, mutators = {}, storageKey = null }) {
    super();
    Object.assign(this, { url, schema, mutators, storageKey });
    this.state = "connecting";
    this.wanted = new Map();
    this.answers = new Map();
    this.settling = new Map();
    this.offline = false;
    this.restore();
    this.rebase();
  }

  // --- what is kept ---

  restore() {
    const kept = this.storageKey && JSON.parse(sessionStorage.getItem(this.storageKey) ?? "null");
    this.clientID = kept?.clientID ?? randomID();
    this.groupID = kept?.groupID ?? randomID();
    this.cookie = kept?.cookie ?? null;
    this.nextID = kept?.nextID ?? 1;
    this.pending = kept?.pending ?? [];
    this.got = new Set(kept?.got ?? []);
    this.desired = new Set(kept?.desired ?? []);
    this.offline = kept?.offline ?? false;
    this.rows = new Map(Object.entries(kept?.rows ?? {}).map(([table, rows]) => [table, new Map(rows)]));
    if (this.offline) this.state = "offline";
  }

  keep() {
    if (!this.storageKey) return;
    const { clientID, groupID, cookie, nextID, pending, offline } = this;
    const rows = Object.fromEntries([...this.rows].map(([table, found]) => [table, [...found]]));
    const sets = { got: [...this.got], desired: [...this.desired] };
    const kept = { clientID, groupID, cookie, nextID, pending, offline, rows, ...sets };
    sessionStorage.setItem(this.storageKey, JSON.stringify(kept));
  }

  // The cache no longer knows this client: begin anew, with the edits nobody has confirmed.
  forget() {
    Object.assign(this, { clientID: randomID(), groupID: randomID(), cookie: null, nextID: 1 });
    this.rows.clear();
    this.got.clear();
    this.desired.clear();
    for (const mutation of this.pending) Object.assign(mutation, { id: this.nextID++, clientID: this.clientID });
    this.keep();
  }

  // --- queries ---

  // Ask for a query: `{name, args, ast}` for one the application knows by name, `{ast}` for any other.
  want({ name, args = [], ast }) {
    const query = name === undefined ? { ast } : { name, args };
    const hash = hashOf(JSON.stringify(query));
    this.wanted.set(hash, { ast, put: { op: "put", hash, ttl: TTL_MS, ...query } });
    this.send("changeDesiredQueries", { desiredQueriesPatch: [this.wanted.get(hash).put] });
    return hash;
  }

  unwant(hash) {
    this.wanted.delete(hash);
    this.send("changeDesiredQueries", { desiredQueriesPatch: [{ op: "del", hash }] });
  }

  view(hash) {
    return evaluate(this.wanted.get(hash).ast, this.shown, this.schema);
  }

  isComplete(hash) {
    return this.got.has(hash);
  }

  // --- mutations ---

  // Apply a mutation at once and push it; the promise tells what the server made of it.
  mutate(name, args) {
    const { clientID } = this;
    const mutation = { type: "custom", id: this.nextID++, clientID, name, args: [args], timestamp: Date.now() };
    this.pending.push(mutation);
    this.keep();
    this.rebase();
    this.push(mutation);
    this.dispatchEvent(new Event("change"));
    return new Promise((resolve, reject) => this.settling.set(mutation, { resolve, reject, since: performance.now() }));
  }

  push(mutation) {
    const requestID = `${this.clientID}-${mutation.id}`;
    const rest = { pushVersion: 1, timestamp: Date.now(), requestID };
    this.send("push", { clientGroupID: this.groupID, mutations: [mutation], ...rest });
  }

  // What is shown: the cache's rows, and on top of them what it has not confirmed.
  rebase() {
    this.shown = new Map(this.rows);
    const touched = new Set();
    const update = (table, change) => {
      if (!touched.has(table)) this.shown.set(table, new Map(this.shown.get(table)));
      touched.add(table);
      const key = this.keyOf(table, change);
      const row = this.shown.get(table).get(key);
      if (row) this.shown.get(table).set(key, { ...row, ...change });
    };
    for (const { name, args } of this.pending) this.mutators[name](update, args[0]);
  }

  keyOf(table, row) {
    return JSON.stringify(this.schema.tables[table].primaryKey.map((column) => row[column]));
  }

  settle(id, error) {
    const mutation = this.pending.find((each) => each.id === id);
    const waiting = this.settling.get(mutation);
    this.settling.delete(mutation);
    if (error) {
      waiting?.reject(new Refused(error.message ?? "refused"));
      this.send("ackMutationResponses", { clientID: this.clientID, id });
    } else {
      waiting?.resolve(waiting && performance.now() - waiting.since);
    }
  }

  // --- the connection ---

  connect() {
    if (this.offline || this.socket) return;
    this.become("connecting");
    const wsid = randomID();
    const given = { clientID: this.clientID, clientGroupID: this.groupID, baseCookie: this.cookie ?? "" };
    const query = new URLSearchParams({ ...given, ts: performance.now(), lmid: 0, wsid, profileID: "demo" });
    const socket = new WebSocket(`${this.url}/sync/v${VERSION}/connect?${query}`, letter(this.greeting()));
    this.socket = socket;
    this.poke = null;
    socket.onmessage = ({ data }) => this.socket === socket && this.take(...JSON.parse(data));
    socket.onclose = () => this.socket === socket && this.lost();
  }

  greeting() {
    const gone = [...this.desired].filter((hash) => !this.wanted.has(hash)).map((hash) => ({ op: "del", hash }));
    const desiredQueriesPatch = [...[...this.wanted.values()].map(({ put }) => put), ...gone];
    const { tables } = this.schema;
    const clientSchema = this.cookie === null ? { clientSchema: { tables } } : {};
    const activeClients = [this.clientID];
    return { initConnectionMessage: ["initConnection", { desiredQueriesPatch, ...clientSchema, activeClients }] };
  }

  send(tag, body) {
    if (this.state === "connected") this.socket.send(JSON.stringify([tag, body]));
  }

  become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  lost() {
    clearInterval(this.pings);
    for (const { reject } of this.answers.values()) reject(new Error("the connection was lost"));
    this.answers.clear();
    this.socket = null;
    if (this.offline) return;
    this.become("connecting");
    this.retry = setTimeout(() => this.connect(), RETRY_MS);
  }

  setOffline(offline) {
    this.offline = offline;
    this.keep();
    clearTimeout(this.retry);
    if (!offline) {
      this.connect();
      return;
    }
    this.become("offline");
    this.socket?.close();
    this.lost();
  }

  // Ask the inspector; its answer.
  inspect(question) {
    if (this.state !== "connected") return Promise.reject(new Error("not connected"));
    const id = randomID();
    return new Promise((resolve, reject) => {
      this.answers.set(id, { resolve, reject });
      this.send("inspect", { id, ...question });
    });
  }

  take(tag, body) {
    RECEIVED[tag]?.call(this, body);
  }

  // --- pokes: nothing counts until the end ---

  apply({ parts, cookie }) {
    const changed = [];
    for (const part of parts) {
      for (const patch of part.desiredQueriesPatches?.[this.clientID] ?? []) patchSet(this.desired, patch);
      for (const patch of part.gotQueriesPatch ?? []) patchSet(this.got, patch);
      for (const patch of part.rowsPatch ?? []) changed.push(this.patchRow(patch));
      this.confirm(part.mutationsPatch ?? [], part.lastMutationIDChanges?.[this.clientID] ?? 0);
    }
    this.cookie = cookie;
    this.keep();
    this.rebase();
    const hydrates = parts.some((part) => part.gotQueriesPatch) || this.greeted === false;
    this.greeted = true;
    this.dispatchEvent(new CustomEvent("poke", { detail: { changed: changed.filter(Boolean), hydrates } }));
    this.dispatchEvent(new Event("change"));
  }

  confirm(results, last) {
    for (const { op, mutation } of results) {
      const failed = op === "put" && mutation.id.clientID === this.clientID && mutation.result.error;
      if (failed) this.settle(mutation.id.id, mutation.result);
    }
    for (const { id } of this.pending.filter((each) => each.id <= last)) this.settle(id, null);
    this.pending = this.pending.filter((each) => each.id > last);
  }

  patchRow({ op, tableName, value, id }) {
    if (!this.schema.tables[tableName]) return null;
    if (!this.rows.has(tableName)) this.rows.set(tableName, new Map());
    const rows = this.rows.get(tableName);
    if (op === "put") rows.set(this.keyOf(tableName, value), value);
    else rows.delete(this.keyOf(tableName, id));
    return value;
  }
}

function patchSet(set, { op, hash }) {
  if (op === "put") set.add(hash);
  else set.delete(hash);
}

const RECEIVED = {
  connected() {
    this.greeted = false;
    this.become("connected");
    this.pings = setInterval(() => this.send("ping", {}), PING_MS);
    for (const mutation of this.pending) this.push(mutation);
  },
  pokeStart({ baseCookie }) {
    // A poke from elsewhere cannot be applied: connect again and say where we are.
    if (baseCookie !== this.cookie) this.socket.close();
    else this.poke = [];
  },
  pokePart(part) {
    this.poke?.push(part);
  },
  pokeEnd({ cookie, cancel }) {
    const parts = this.poke;
    this.poke = null;
    if (parts && !cancel) this.apply({ parts, cookie });
  },
  inspect({ id, op, value }) {
    const asked = this.answers.get(id);
    this.answers.delete(id);
    if (op === "error") asked?.reject(new Error(value));
    else asked?.resolve(value);
  },
  error({ kind, message }) {
    this.dispatchEvent(new CustomEvent("trouble", { detail: { kind, message } }));
    if (FORGOTTEN.includes(kind)) this.forget();
    this.socket.close();
  },
  transformError(errors) {
    for (const { message } of errors) this.dispatchEvent(new CustomEvent("trouble", { detail: { message } }));
  },
};
