// A plot of the last 30 seconds: the level above, admitted and denied requests below.

const SVG = "http://www.w3.org/2000/svg";
const BARS = 60;
const TICKS_PER_BAR = 2;
const SECONDS = 30;

/** The height of the parts, in pixels. */
const LEVEL = 54;
const GAP = 18;
const HALF = 70;
const FOOT = 22;
const LEFT = 42;
const HEIGHT = 8 + LEVEL + GAP + 2 * HALF + FOOT;
const LEVEL_TOP = 8;
const ZERO = LEVEL_TOP + LEVEL + GAP + HALF;

/** Keeps the bars of a pane. A bar is half a second. */
export class Series {
  #bars = new Map();
  #last = -1;

  /** Adds a tick, once. */
  add(number, { counts, share }) {
    const at = Math.floor(number / TICKS_PER_BAR);
    const bar = this.#bars.get(at) ?? { admitted: 0, denied: 0, failed: 0, shares: [] };
    bar.admitted += counts.admitted;
    bar.denied += counts.denied;
    bar.failed += counts.failed;
    bar.shares.push(share);
    this.#bars.set(at, bar);
    this.#bars.delete(at - BARS - 1);
    this.#last = at;
  }

  clear() {
    this.#bars.clear();
  }

  /** Returns the bars, the oldest first. `undefined` where nothing is known. */
  bars() {
    return Array.from({ length: BARS }, (_, at) => this.#bars.get(this.#last - BARS + 1 + at));
  }

  sums() {
    const sum = (name) => this.bars().reduce((sum, bar) => sum + (bar?.[name] ?? 0), 0);
    return { admitted: sum("admitted"), denied: sum("denied"), failed: sum("failed") };
  }

  highest() {
    return this.bars().reduce((most, bar) => Math.max(most, bar?.admitted ?? 0, (bar?.denied ?? 0) + (bar?.failed ?? 0)), 0);
  }
}

/** Returns the smallest readable number that is not below `most`. */
export function ceiling(most) {
  for (let power = 1; ; power *= 10) {
    for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8]) {
      if (step * power >= most && step * power >= 5) {
        return step * power;
      }
    }
  }
}

/** Draws a series. */
export class Plot {
  #host;
  #svg;
  #parts = {};
  #bars = [];

  constructor(host, id) {
    this.#host = host;
    this.#svg = add(host, "svg", { role: "img", height: HEIGHT, "data-plot": id });
    const pattern = add(add(this.#svg, "defs"), "pattern", {
      id: `hatch-${id}`, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    add(pattern, "rect", { width: 5, height: 5, class: "denied-back" });
    add(pattern, "rect", { width: 2.2, height: 5, class: "denied-line" });
    for (const name of ["top", "bottom", "floor"]) {
      this.#parts[name] = add(this.#svg, "line", { class: "grid" });
    }
    this.#parts.area = add(this.#svg, "path", { class: "level-area" });
    this.#parts.line = add(this.#svg, "path", { class: "level-line" });
    for (let at = 0; at < BARS; at += 1) {
      this.#bars.push({
        admitted: add(this.#svg, "rect", { class: "bar admitted", rx: 1 }),
        denied: add(this.#svg, "rect", { class: "bar denied", rx: 1, fill: `url(#hatch-${id})` }),
        failed: add(this.#svg, "rect", { class: "bar failed", rx: 1 }),
      });
    }
    this.#parts.zero = add(this.#svg, "line", { class: "axis" });
    for (const name of ["full", "empty", "most", "least", "past", "middle", "now", "hint"]) {
      this.#parts[name] = add(this.#svg, "text", { class: name === "hint" ? "hint" : "tick" });
    }
  }

  /** Draws the series up to the height `most`, which both panes share. */
  draw(series, most) {
    const width = this.#host.clientWidth;
    if (width === 0) {
      return;
    }
    set(this.#svg, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const bars = series.bars();
    this.#frame(width, most, series.highest() === 0);
    this.#level(bars, width);
    const step = (width - LEFT) / BARS;
    bars.forEach((bar, at) => {
      const x = LEFT + at * step + 0.75;
      const high = (count) => (count / most) * (HALF - 4);
      const { admitted = 0, denied = 0, failed = 0 } = bar ?? {};
      const rectangle = { x, width: Math.max(step - 1.5, 1) };
      set(this.#bars[at].admitted, { ...rectangle, y: ZERO - high(admitted), height: high(admitted), "data-count": admitted });
      set(this.#bars[at].denied, { ...rectangle, y: ZERO, height: high(denied), "data-count": denied });
      set(this.#bars[at].failed, { ...rectangle, y: ZERO + high(denied), height: high(failed), "data-count": failed });
    });
    const { admitted, denied, failed } = series.sums();
    const label = `Requests of the last ${SECONDS} seconds: ${admitted} admitted, ${denied} denied, ${failed} without a decision.`;
    set(this.#svg, { "aria-label": label });
  }

  #frame(width, most, isEmpty) {
    const line = (name, y) => set(this.#parts[name], { x1: LEFT, x2: width, y1: y, y2: y });
    line("top", LEVEL_TOP);
    line("bottom", LEVEL_TOP + LEVEL);
    line("floor", ZERO + HALF);
    line("zero", ZERO);
    const text = (name, x, y, anchor, content) => {
      set(this.#parts[name], { x, y, "text-anchor": anchor });
      this.#parts[name].textContent = content;
    };
    text("full", LEFT - 6, LEVEL_TOP + 9, "end", "full");
    text("empty", LEFT - 6, LEVEL_TOP + LEVEL, "end", "empty");
    text("most", LEFT - 6, ZERO - HALF + 10, "end", most);
    text("least", LEFT - 6, ZERO + HALF - 2, "end", most);
    text("past", LEFT, HEIGHT - 5, "start", `${SECONDS} s ago`);
    text("middle", LEFT + (width - LEFT) / 2, HEIGHT - 5, "middle", `${SECONDS / 2} s ago`);
    text("now", width - 1, HEIGHT - 5, "end", "now");
    text("hint", LEFT + (width - LEFT) / 2, ZERO - 14, "middle", isEmpty ? "Requests per half second: admitted up, denied down" : "");
  }

  #level(bars, width) {
    const step = (width - LEFT) / BARS;
    const points = [];
    bars.forEach((bar, at) => {
      bar?.shares.forEach((share, tick) => {
        if (share !== null) {
          points.push([LEFT + (at + (tick + 1) / TICKS_PER_BAR) * step, LEVEL_TOP + (1 - share) * LEVEL]);
        }
      });
    });
    const line = points.map(([x, y], at) => `${at === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const floor = LEVEL_TOP + LEVEL;
    const area = points.length > 1 ? `${line}L${points.at(-1)[0]} ${floor}L${points[0][0]} ${floor}Z` : "";
    set(this.#parts.line, { d: line });
    set(this.#parts.area, { d: area });
  }
}

/** Builds a table of the series, one row for each second, the latest first. */
export function table(series, name) {
  const bars = series.bars().reverse();
  const table = document.createElement("table");
  table.createCaption().textContent = `Requests to the ${name} pane, by second`;
  const head = table.createTHead().insertRow();
  for (const text of ["Seconds ago", "Admitted", "Denied", "No decision", "Level"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  const body = table.createTBody();
  for (let second = 0; second < SECONDS; second += 1) {
    const pair = bars.slice(second * 2, second * 2 + 2);
    const sum = (field) => pair.reduce((sum, bar) => sum + (bar?.[field] ?? 0), 0);
    const share = pair.flatMap((bar) => bar?.shares ?? []).at(-1);
    const row = body.insertRow();
    const level = share == null ? "–" : `${Math.round(share * 100)} %`;
    for (const text of [second, sum("admitted"), sum("denied"), sum("failed"), level]) {
      row.insertCell().textContent = text;
    }
  }
  return table;
}

function add(parent, name, attributes = {}) {
  const element = document.createElementNS(SVG, name);
  set(element, attributes);
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
}
