// The requests that the page sends.

import { call, request } from "./server.js";
import { number, showErrors } from "./settings.js";
import { plural } from "./text.js";

/** The time between two batches of a stream. */
const BATCH_MS = 100;

/** Sends one request, bursts and a stream. `announce` says what was sent, and `sums` returns what became of all requests. */
export class Traffic {
  #root = document.getElementById("traffic");
  #announce;
  #sums;
  #timer;
  #key = "";

  constructor(announce, sums) {
    this.#announce = announce;
    this.#sums = sums;
    on("one", "click", () => this.#one());
    on("burst", "click", () => this.#burst());
    on("stream", "click", () => (this.#timer ? this.#stop() : this.#start()));
    on("key", "change", () => this.#setKey());
    for (const id of ["rate", "cost"]) {
      on(id, "change", () => this.#timer && this.#start());
    }
  }

  /** Shows the key in force. */
  show(key) {
    const input = document.getElementById("key");
    if (key !== this.#key && document.activeElement !== input) {
      input.value = key;
    }
    this.#key = key;
  }

  async #one() {
    // The page may be told of the decisions before it has the responses.
    const before = this.#sums();
    const outcomes = await Promise.all(targets().map((pane) => call(pane, value("cost"))));
    const errors = outcomes.flatMap(({ errors }) => errors).slice(0, 1);
    this.#show(errors);
    if (errors.length === 0) {
      this.#announce("1 request sent.", before);
    }
  }

  async #burst() {
    const burst = { requests: value("requests"), cost: value("cost"), panes: targets() };
    const before = this.#sums();
    const { ok, errors } = await request("POST", "/api/send", burst);
    this.#show(errors);
    if (ok) {
      this.#announce(`Burst of ${plural(burst.requests, "request")} sent.`, before);
    }
  }

  #start() {
    const rate = value("rate");
    if (!Number.isInteger(rate) || rate < 1 || rate > 200) {
      this.#stop();
      this.#show([{ field: "rate", message: `rate must be 1 to 200, got ${rate}` }]);
      return;
    }
    clearInterval(this.#timer);
    // Counted from the start, so that late timers change no rate.
    const start = performance.now();
    let sent = 0;
    const batch = async () => {
      const due = Math.floor(((performance.now() - start) / 1000) * rate) + 1 - sent;
      if (due < 1) {
        return;
      }
      sent += due;
      const burst = { requests: Math.min(due, 500), cost: value("cost"), panes: targets() };
      const { ok, errors } = await request("POST", "/api/send", burst);
      if (!ok && this.#timer) {
        this.#stop();
        this.#show(errors);
      }
    };
    this.#show([]);
    this.#timer = setInterval(batch, BATCH_MS);
    batch();
    this.#button("Stop stream", true);
    this.#announce(`Stream of ${rate} per second started.`, null);
  }

  #stop() {
    if (this.#timer) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#button("Start stream", false);
      this.#announce("Stream stopped.", null);
    }
  }

  #button(text, isPressed) {
    const button = document.getElementById("stream");
    button.textContent = text;
    button.setAttribute("aria-pressed", String(isPressed));
  }

  async #setKey() {
    const { errors } = await request("PUT", "/api/key", { key: document.getElementById("key").value });
    this.#show(errors);
  }

  #show(errors) {
    const unknown = showErrors(this.#root, errors);
    const text = document.getElementById("traffic-error");
    text.textContent = unknown.map(({ message }) => message).join(" ");
    text.hidden = unknown.length === 0;
  }
}

function targets() {
  return document.getElementById("target").value.split(",");
}

function value(id) {
  return number(document.getElementById(id).value);
}

function on(id, event, handle) {
  document.getElementById(id).addEventListener(event, handle);
}
