// Lines over the last minute. A plot keeps its points and draws them when told the time.

const SECONDS = 60;
const [HEIGHT, LEFT, BOTTOM] = [144, 40, 18];
const STEPS = [1, 2, 5];

// The least round number that is not below any value.
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return (STEPS.find((step) => step * power >= value) ?? 10) * power;
}

export function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : null;
}

export class Plot {
  // `lines`: {name: colour}. `numbers(values by name)` is the text beside the title.
  constructor(element, { title, unit, lines, numbers }) {
    Object.assign(this, { element, unit, lines, numbers });
    this.points = Object.fromEntries(Object.keys(lines).map((name) => [name, []]));
    element.innerHTML = `<figcaption><h3>${title}</h3><span class="numbers"></span></figcaption>
      <svg role="img" aria-label="${title}"></svg>`;
  }

  add(name, time, value) {
    this.points[name].push([time, value]);
  }

  draw(now) {
    const since = now - SECONDS;
    const svg = this.element.querySelector("svg");
    const width = svg.clientWidth;
    for (const name of Object.keys(this.points)) this.points[name] = this.points[name].filter(([time]) => time >= since);
    const values = Object.values(this.points).flatMap((points) => points.map(([, value]) => value));
    const top = roundUp(Math.max(1, ...values));
    const x = (time) => LEFT + ((time - since) / SECONDS) * (width - LEFT);
    const y = (value) => (HEIGHT - BOTTOM) * (1 - value / top) + 6;
    const ticks = [0, top / 2, top].map(
      (value) => `<line class="axis" x1="${LEFT}" x2="${width}" y1="${y(value)}" y2="${y(value)}"/>
        <text x="${LEFT - 8}" y="${y(value) + 4}" text-anchor="end">${value}</text>`,
    );
    const drawn = Object.entries(this.points).map(([name, points]) => {
      const path = points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
      return `<polyline class="line" stroke="var(${this.lines[name]})" points="${path}"/>`;
    });
    svg.innerHTML =
      `${ticks.join("")}${drawn.join("")}<text x="${LEFT}" y="${HEIGHT}">60 s ago</text>
       <text x="${width}" y="${HEIGHT}" text-anchor="end">now, ${this.unit}</text>`;
    const seen = Object.fromEntries(Object.entries(this.points).map(([name, all]) => [name, all.map(([, v]) => v)]));
    this.element.querySelector(".numbers").innerHTML = this.numbers(seen);
  }
}
