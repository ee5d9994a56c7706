// Connects the parts of the page with the events of the server.

import { Reservations, Store, Work } from "./extras.js";
import { Pane } from "./pane.js";
import { ceiling } from "./plot.js";
import { listen } from "./server.js";
import { Traffic } from "./traffic.js";

const NAMES = ["left", "right"];

/** The ticks after which the outcome of a burst is told. */
const SETTLED = 4;

const host = document.getElementById("panes");
const panes = NAMES.map((name) => new Pane(name, host));
const status = document.getElementById("status");
const traffic = new Traffic(announce, sums);
const store = new Store(announce);
const work = new Work();
const reservations = new Reservations();

let last = -1;
let told = null;

/** Returns what became of all requests so far. */
function sums() {
  return panes.map((pane) => pane.sums);
}

/**
 * Says what was sent. With the sums from before it was sent, also says a second later what became of it. Streams say no
 * outcome.
 */
function announce(text, before) {
  status.textContent = text;
  told = before ? { text, at: last + SETTLED, sums: before } : null;
}

function tellOutcome() {
  if (told === null || last < told.at) {
    return;
  }
  const outcomes = panes.map((pane, at) => {
    const { admitted, denied, failed } = pane.sums;
    const before = told.sums[at];
    const more = (now, then) => Math.max(0, now - then);
    const without = more(failed, before.failed);
    const words = `${more(admitted, before.admitted)} admitted, ${more(denied, before.denied)} denied`;
    return `${NAMES[at]} ${words}${without > 0 ? `, ${without} without a decision` : ""}`;
  });
  status.textContent = `${told.text} Outcome: ${outcomes.join("; ")}.`;
  told = null;
}

function configure({ key, panes: settings, store: where }) {
  settings.forEach((pane, at) => panes[at].configure(pane.settings));
  traffic.show(key);
  store.show(where);
}

function draw() {
  const most = ceiling(Math.max(...panes.map((pane) => pane.highest)));
  panes.forEach((pane) => pane.draw(most));
}

listen({
  hello({ settings, history }) {
    document.body.dataset.connected = "true";
    configure(settings);
    panes.forEach((pane, at) => pane.restart(history.map(({ number, panes }) => ({ number, pane: panes[at] }))));
    last = history.at(-1)?.number ?? -1;
    draw();
  },
  settings: configure,
  tick({ number, panes: states, work: working, reservations: held }) {
    if (number <= last) {
      return;
    }
    last = number;
    states.forEach((state, at) => panes[at].tick(number, state));
    work.show(working);
    reservations.show(held);
    draw();
    tellOutcome();
  },
  lost() {
    document.body.dataset.connected = "false";
    document.getElementById("store-text").textContent = "The playground does not answer. Trying again …";
  },
});

addEventListener("resize", draw);
