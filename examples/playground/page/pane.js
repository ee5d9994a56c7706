// A pane: its limits, its plot, and its last response.

import { Plot, Series, table } from "./plot.js";
import { Settings } from "./settings.js";
import { ALGORITHMS, describe, duration, outage } from "./text.js";

/** Shows one limited service. */
export class Pane {
  #name;
  #root;
  #settings;
  #answerTo = "local";
  #plot;
  #series = new Series();
  #answer = "";

  constructor(name, host) {
    this.#name = name;
    const root = document.getElementById("pane-template").content.cloneNode(true).firstElementChild;
    this.#root = root;
    root.id = name;
    const title = root.querySelector("h2");
    title.id = `${name}-title`;
    title.textContent = capital(name);
    root.setAttribute("aria-labelledby", title.id);
    root.querySelector("form").setAttribute("aria-label", `Limits of the ${name} pane`);
    root.querySelector(".response").setAttribute("aria-label", `Last response of the ${name} pane`);
    root.querySelector(".scroll").setAttribute("aria-label", `Table of the ${name} pane`);
    root.querySelector("details").addEventListener("toggle", () => this.#table());
    host.append(root);
    this.#settings = new Settings(root.querySelector("form"), name);
    this.#plot = new Plot(root.querySelector(".plot"), name);
  }

  /** Shows the settings in force. */
  configure(settings) {
    this.#settings.show(settings);
    this.#answerTo = settings.outage;
    const { policies } = settings;
    const limits = policies.length === 1 ? ALGORITHMS[policies[0].algorithm].name : `${policies.length} policies`;
    this.#root.querySelector("h2").textContent = `${capital(this.#name)}: ${limits}`;
    this.#root.querySelector(".sentence").textContent = describe(settings);
  }

  /** Starts with the ticks of the last minute. */
  restart(history) {
    this.#series.clear();
    for (const { number, pane } of history) {
      this.#series.add(number, pane);
    }
  }

  /** Shows what happened in a quarter of a second. */
  tick(number, state) {
    this.#series.add(number, state);
    this.#meters(state.level.policies);
    const note = this.#root.querySelector(".outage");
    note.hidden = state.level.degraded === null;
    note.textContent = state.level.degraded === null ? "" : outage(state.level.degraded, this.#answerTo);
    const { latency } = state;
    this.#root.querySelector(".latency span").textContent = latency === null
      ? "…"
      : `${duration(latency.median_us / 1000)} (median), ${duration(latency.p99_us / 1000)} (99 %), at most ${duration(latency.max_us / 1000)}.`;
    this.#response(state.answer);
    if (number % 4 === 0) {
      this.#table();
    }
  }

  get highest() {
    return this.#series.highest();
  }

  get sums() {
    return this.#series.sums();
  }

  draw(most) {
    this.#plot.draw(this.#series, most);
    const { admitted, denied, failed } = this.sums;
    for (const [name, count] of Object.entries({ admitted, denied, failed })) {
      const key = this.#root.querySelector(`.key.${name}`);
      key.firstElementChild.textContent = count;
      key.hidden = name === "failed" && count === 0;
    }
  }

  #meters(policies) {
    const host = this.#root.querySelector(".meters");
    while (host.children.length > policies.length) {
      host.lastElementChild.remove();
    }
    policies.forEach((policy, at) => {
      const meter = host.children[at] ?? host.appendChild(newMeter());
      const [name, bar, text] = meter.children;
      name.textContent = policy.name;
      bar.setAttribute("aria-label", `Units left of ${policy.name} in the ${this.#name} pane`);
      bar.setAttribute("aria-valuemax", policy.burst);
      bar.setAttribute("aria-valuenow", policy.remaining);
      bar.firstElementChild.style.width = `${Math.min(100, (policy.remaining / policy.burst) * 100)}%`;
      const more = policy.more_after_ms > 0 ? `, more in ${duration(policy.more_after_ms)}` : "";
      text.textContent = `${policy.remaining} of ${policy.burst} left${more}`;
      bar.setAttribute("aria-valuetext", text.textContent);
    });
  }

  #response(answer) {
    const text = JSON.stringify(answer);
    if (answer === null || text === this.#answer) {
      return;
    }
    this.#answer = text;
    const host = this.#root.querySelector(".response");
    const status = span(`HTTP ${answer.status} ${answer.reason}\n`, `status-line ${kind(answer.status)}`);
    const headers = answer.headers.flatMap(([name, value]) => [span(name, "name"), `: ${value}\n`]);
    host.replaceChildren(status, ...headers, "\n", body(answer.body));
  }

  #table() {
    const details = this.#root.querySelector("details");
    if (details.open) {
      details.querySelector(".scroll").replaceChildren(table(this.#series, this.#name));
    }
  }
}

function capital(name) {
  return name[0].toUpperCase() + name.slice(1);
}

function newMeter() {
  const meter = document.createElement("div");
  meter.className = "level";
  const bar = span("", "bar");
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-valuemin", 0);
  bar.append(span("", "fill"));
  meter.append(span("", "name"), bar, span("", "text"));
  return meter;
}

function span(text, name) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}

function kind(status) {
  if (status < 300) {
    return "ok";
  }
  return status === 429 ? "no" : "odd";
}

/** Returns a problem document on several lines, and any other body as it is. */
function body(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
