// The flow as a picture: one card per stage, with its position, its distance from the log's head, and its age.

const count = new Intl.NumberFormat("en");
const LATE = 3;

export const ago = (seconds) => {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "now";
  return seconds < 90 ? `${Math.round(seconds)} s ago` : `${Math.round(seconds / 60)} min ago`;
};

// How far the log is behind the upstream: positions, and for how many seconds. "unknown" is no 0.
const distance = (positions, seconds) =>
  typeof positions === "number" && seconds >= 1 ? `${count.format(positions)}, ${Math.round(seconds)} s` : positions;

// What each card shows: of the picture, its figure, what that counts, and lines of [name, value, is it late]; without
// the last, `line` decides. The log is behind the upstream, all others behind the log.
const CARDS = [
  {
    name: "store",
    title: "Store",
    show: ({ store }) => [store.writes, "writes, SQLite", [["unread", store.unread], ["wrote", ago(store.age)]]],
  },
  {
    name: "pipeline",
    title: "Spark",
    stage: "pipeline",
    show: ({ pipeline, log }) => [
      pipeline.position,
      pipeline.lanes.map((lane) => lane.doing).at(-1) ?? "starting",
      [
        ["lane", pipeline.lanes.at(-1)?.lane || "resident"],
        ["behind", behind(log.position, pipeline.position)],
        ["moved", ago(pipeline.lanes.at(-1)?.sinceProgress)],
      ],
    ],
  },
  {
    name: "log",
    title: "Log",
    show: ({ log }) => [
      log.position,
      "transactions",
      [
        ["behind", distance(log.behindUpstream, log.behindSeconds), log.behindUpstream > LATE],
        ["letters", log.deadLetters, log.deadLetters > 0],
        ["snapshot", ago(log.snapshotAge)],
      ],
    ],
  },
  {
    name: "endpoint",
    title: "Endpoint",
    stage: "endpoint",
    show: ({ endpoint, stages }) => [
      endpoint.position,
      endpoint.streams === 1 ? "1 stream" : `${endpoint.streams} streams`,
      [["behind", endpoint.behind], ["since", ago(stages.endpoint.for)]],
    ],
  },
  {
    name: "replica",
    title: "Replica",
    stage: "cache",
    show: ({ replica, time }) => [
      replica.position,
      replica.doing ?? "no cache",
      [["behind", replica.behind], ["moved", ago(replica.appliedMs && time - replica.appliedMs / 1000)]],
    ],
  },
  {
    name: "queries",
    title: "Queries",
    show: ({ queries }) => [
      queries.position,
      queries.queries === null ? "no cache" : `${count.format(queries.queries)} queries`,
      [["behind", queries.behind], ["rows", queries.rows]],
    ],
  },
  {
    name: "clients",
    title: "Clients",
    show: ({ clients }, own) => [
      own.position,
      clients.connected === null ? "no cache" : `${clients.connected} connected`,
      [["offline", own.offline], ["pokes", clients.pokes]],
    ],
  },
];

const behind = (head, position) => (head === null || position === null ? null : Math.max(0, head - position));
const VERBS = { running: "Stop", stopped: "Start", starting: "Starting…", stopping: "Stopping…" };

function card({ name, title, stage }) {
  const element = document.createElement("li");
  element.className = "stage";
  element.dataset.name = name;
  element.innerHTML = `<header><h3>${title}</h3>${stage ? '<span class="dot"></span>' : ""}</header>
    <div class="value"><p class="figure">–</p><p class="what"></p></div><dl></dl>`;
  if (stage) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "small" });
    button.dataset.stage = stage;
    element.append(button);
  }
  return element;
}

function line([name, value, isLate]) {
  const late = isLate ?? (["behind", "unread", "offline"].includes(name) && value > LATE);
  const shown = typeof value === "number" ? count.format(value) : value ?? "–";
  return `<div><dt>${name}</dt><dd${late ? ' class="late"' : ""}>${shown}</dd></div>`;
}

export class FlowPicture {
  // `press(stage, verb)` is called for its buttons, and for all others on the page that name a stage.
  constructor(element, press) {
    this.cards = CARDS.map((each) => ({ ...each, element: card(each), last: null }));
    element.append(...this.cards.map((each) => each.element));
    this.buttons = [...document.querySelectorAll("button[data-stage]")];
    for (const button of this.buttons) {
      button.addEventListener("click", () => press(button.dataset.stage, button.dataset.verb));
    }
  }

  draw(picture, own) {
    for (const each of this.cards) this.drawCard(each, picture, own);
    for (const button of this.buttons) {
      const { state } = picture.stages[button.dataset.stage];
      button.textContent = VERBS[state];
      button.dataset.verb = state === "stopped" ? "start" : "stop";
      button.disabled = !["running", "stopped"].includes(state);
      const what = button.dataset.stage === "app" ? "app server" : button.dataset.stage;
      button.setAttribute("aria-label", `${VERBS[state]} the ${what}`);
    }
  }

  drawCard(each, picture, own) {
    const [figure, what, lines] = each.show(picture, own);
    const { element } = each;
    if (each.name === "pipeline" && picture.runner !== "spark") element.querySelector("h3").textContent = "Pipeline";
    const state = each.stage ? picture.stages[each.stage].state : null;
    const runs = state ?? (each.name === "queries" ? picture.stages.cache.state : "running");
    element.querySelector(".figure").textContent = typeof figure === "number" ? count.format(figure) : "–";
    element.querySelector(".what").textContent = runs === "running" ? what : runs;
    element.querySelector("dl").innerHTML = lines.map(line).join("");
    element.classList.toggle("off", runs !== "running");
    element.classList.toggle("moved", figure !== null && each.last !== null && figure !== each.last);
    each.last = figure;
    if (state) element.querySelector(".dot").dataset.state = state;
  }
}
