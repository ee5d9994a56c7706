// What else there is to try: the store and its outage, permits, reservations.

import { request } from "./server.js";
import { number, showErrors } from "./settings.js";
import { plural } from "./text.js";

/** Shows where the counts are, and switches the Redis server. */
export class Store {
  #switch = document.getElementById("redis");

  constructor(announce) {
    this.#switch.addEventListener("click", async () => {
      const running = this.#switch.getAttribute("aria-checked") !== "true";
      this.#switch.disabled = true;
      const { ok, errors } = await request("PUT", "/api/redis", { running });
      this.#switch.disabled = false;
      this.#switch.focus();
      announce(ok ? `Redis was ${running ? "started" : "stopped"}.` : errors[0].message, null);
    });
  }

  show({ kind, running, url }) {
    const own = kind === "own-redis";
    this.#switch.hidden = !own;
    this.#switch.setAttribute("aria-checked", String(running));
    document.getElementById("redis-text").textContent = running ? "Redis runs" : "Redis is stopped";
    const where = { process: "Counts are in this process", redis: "Counts are in Redis", "own-redis": "Counts are in Redis" }[kind];
    document.getElementById("store-text").textContent = where;
    const share = {
      process: "All tabs share one limit. To share it with other instances, start each with the same Redis. To try an outage, let the playground start Redis:",
      redis: "All tabs and all instances with the same REDIS_URL share one limit. Start a second one, and send requests there:",
      "own-redis": "All tabs and all instances at one Redis share one limit. Start a second one, and send requests there:",
    }[kind];
    document.getElementById("share-text").textContent = share;
    const second = (at) => `REDIS_URL=${at} LISTEN=127.0.0.1:3001 cargo run --example playground`;
    const command = { process: "cargo run --example playground -- --redis-server", redis: second("…"), "own-redis": second(url) }[kind];
    document.getElementById("share-command").textContent = command;
    document.getElementById("curl-command").textContent = `curl -i ${location.origin}/limited/left`;
  }
}

/** Starts work that holds a permit, and shows it. */
export class Work {
  constructor() {
    const send = async (method, body) => {
      const { errors } = await request(method, "/api/work", body);
      report("work", errors);
    };
    on("start-work", "click", () => send("POST", { seconds: value("seconds") }));
    on("end-work", "click", () => send("DELETE"));
    on("limit", "change", () => send("PUT", { limit: value("limit") }));
  }

  show({ limit, running, answer }) {
    const input = document.getElementById("limit");
    if (document.activeElement !== input && !input.hasAttribute("aria-invalid")) {
      input.value = limit;
    }
    update("work-list", running, bar, (item, { left_ms, length_ms }) => {
      item.firstElementChild.style.width = `${100 - (left_ms / length_ms) * 100}%`;
      item.lastElementChild.textContent = `${Math.ceil(left_ms / 1000)} s left`;
    });
    if (answer) {
      const field = answer.headers.find(([name]) => name === "RateLimit");
      const header = field ? `RateLimit: ${field[1]}` : "";
      document.getElementById("work-answer").textContent = `Last response: ${answer.status} ${answer.reason}. ${header}`;
    }
  }
}

/** Reserves units, and settles them. */
export class Reservations {
  constructor() {
    on("reserve", "click", async () => {
      const body = { pane: document.getElementById("reserve-pane").value, estimate: value("estimate") };
      const { ok, errors } = await request("POST", "/api/reservations", body);
      report("reserve", errors);
      if (ok) {
        say(`${plural(body.estimate, "unit")} were reserved and charged.`);
      }
    });
  }

  show(held) {
    update("reserve-list", held, (reservation) => this.#entry(reservation), (item, { lapses_in_ms }) => {
      item.querySelector(".lapses").textContent = `${Math.ceil(lapses_in_ms / 1000)} s`;
    });
  }

  #entry({ id, pane, estimate }) {
    const item = document.createElement("li");
    const text = document.createElement("span");
    text.textContent = `${plural(estimate, "unit")}, ${pane}`;
    const lapses = document.createElement("span");
    lapses.className = "lapses";
    const input = document.createElement("input");
    Object.assign(input, { type: "number", min: 0, max: 10000, value: Math.ceil(estimate / 2), inputMode: "numeric" });
    input.id = `cost-${id}`;
    input.setAttribute("aria-label", `Real cost of the reservation of ${plural(estimate, "unit")}`);
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: "Settle" });
    button.addEventListener("click", async () => {
      const cost = number(input.value);
      const { ok, errors, content } = await request("POST", `/api/reservations/${encodeURIComponent(id)}`, { cost });
      report("reserve", errors);
      if (ok) {
        say(`The reservation of ${estimate} is ${content.settlement.replace("_", " ")} at ${cost}.`);
        document.getElementById("reserve").focus();
      }
    });
    item.append(text, lapses, input, button);
    return item;
  }
}

/** Makes the list show these entries: new ones are added, others are updated, the rest is removed. */
function update(id, entries, create, change) {
  const list = document.getElementById(id);
  const known = new Map([...list.children].map((item) => [item.dataset.id, item]));
  for (const entry of entries) {
    const key = String(entry.id);
    let item = known.get(key);
    if (!item) {
      item = create(entry);
      item.dataset.id = key;
      list.append(item);
    }
    known.delete(key);
    change(item, entry);
  }
  known.forEach((item) => item.remove());
}

function bar() {
  const item = document.createElement("li");
  const fill = document.createElement("span");
  fill.className = "fill";
  item.append(fill, document.createElement("span"));
  return item;
}

function report(section, errors) {
  const text = document.getElementById(`${section}-error`);
  const unknown = showErrors(text.parentElement, errors);
  text.textContent = unknown.map(({ message }) => message).join(" ");
  text.hidden = unknown.length === 0;
}

function say(text) {
  document.getElementById("reserve-answer").textContent = text;
}

function value(id) {
  return number(document.getElementById(id).value);
}

function on(id, event, handle) {
  document.getElementById(id).addEventListener(event, handle);
}
