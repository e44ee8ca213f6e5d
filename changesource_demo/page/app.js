// The page: the picture from the console's server, three clients of the cache, and the plots of what they see.

import { FlowPicture } from "./flow.js";
import { LiveQuery } from "./live-query.js";
import { Pane } from "./pane.js";
import { Plot, quantile } from "./plot.js";

const HEADERS = { "X-Changesource-Demo": "1", "Content-Type": "application/json" };
const post = (path, body = {}) => fetch(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body) });
const key = (colour, text) => `<span class="key" style="background: var(${colour})"></span>${text}`;
const ms = (value) => (value === null ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`);

const setup = await (await fetch("setup")).json();
const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.hostname}:${setup.cachePort}`;
const panes = ["A", "B"].map((name) => new Pane({ name, url, run: setup.run }));
document.querySelector("#panes").append(...panes.map((pane) => pane.element));
const live = new LiveQuery(url);
const clients = [...panes.map((pane) => pane.client), live.client];

const latency = new Plot(document.querySelector("#latency"), {
  title: "From the store to this page",
  unit: "milliseconds",
  lines: { each: "--accent" },
  numbers: ({ each }) => `p50 ${ms(quantile(each, 0.5))} · p99 ${ms(quantile(each, 0.99))}`,
});
const throughput = new Plot(document.querySelector("#throughput"), {
  title: "Changes",
  unit: "per second",
  lines: { log: "--accent", rows: "--second" },
  numbers: () => `${key("--accent", "transactions in the log")} &nbsp; ${key("--second", "rows to this page")}`,
});

let arrived = 0;
for (const client of clients) {
  client.addEventListener("poke", ({ detail: { changed, hydrates } }) => {
    arrived += changed.length;
    // Rows of a query that begins, or goes on after a break, are as old as they are.
    if (hydrates || client !== live.client) return;
    const newest = Math.max(...changed.map((row) => row.modified ?? 0));
    if (newest > 0 && changed.length < 20) latency.add("each", Date.now() / 1000, Math.max(0, Date.now() - newest));
  });
}

// The number in a cookie's version, as the log counts: a length digit, then base-36 digits.
const position = (cookie) => [...(cookie ?? "").split(/[:.]/)[0].slice(1)].reduce((n, digit) => n * 36 + parseInt(digit, 36), 0);

const flow = new FlowPicture(document.querySelector("#flow"), (stage, verb) => post(`stages/${stage}/${verb}`));
const demo = { panes, live, drawn: 0 };
window.demo = demo;
let before = null;
new EventSource("events").onmessage = ({ data }) => {
  const picture = JSON.parse(data);
  const at = Math.max(...clients.map((client) => position(client.cookie)));
  const own = {
    position: at > picture.origin ? at - picture.origin : null,
    offline: clients.filter((client) => client.state !== "connected").length,
  };
  flow.draw(picture, own);
  demo.drawn += 1;
  document.querySelector("#app-dot").dataset.state = picture.stages.app.state;
  document.querySelector("#app-words").textContent =
    picture.stages.app.state === "running" ? "" : "Edits wait in the clients until it is back.";
  if (before && picture.time > before.time) {
    const seconds = picture.time - before.time;
    const grown = Math.max(0, (picture.log.position ?? 0) - (before.log.position ?? 0));
    throughput.add("log", picture.time, grown / seconds);
    throughput.add("rows", picture.time, arrived / seconds);
    arrived = 0;
  }
  before = picture;
  latency.draw(picture.time);
  throughput.draw(picture.time);
};

const rate = document.querySelector("#rate");
rate.addEventListener("input", () => {
  document.querySelector("#rate-shown").textContent = rate.value;
  post("writer", { perSecond: Number(rate.value) });
});
