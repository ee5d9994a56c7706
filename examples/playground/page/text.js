// Words and numbers.

/** The algorithms, in the order of the list. */
export const ALGORITHMS = {
  token_bucket: {
    name: "Token bucket", has: "burst",
    say: (p) => `${rate(p)} on average, at most ${p.burst} at once.`,
  },
  interval_bucket: {
    name: "Interval bucket", has: "burst",
    say: (p) => `${p.amount} are added at once ${every(p)}, up to ${p.burst}.`,
  },
  leaky_bucket: {
    name: "Leaky bucket (queue)", has: "burst",
    say: (p) => `Requests pass at an even pace, ${rate(p)}. Up to ${p.burst} wait for their turn.`,
  },
  fixed_window: {
    name: "Fixed window",
    say: (p) => `${p.amount} in each window of ${seconds(p)}. Twice as many can pass around its edge.`,
  },
  window_from_first_hit: {
    name: "Window from the first hit",
    say: (p) => `${p.amount} in ${seconds(p)}, counted from the first request on.`,
  },
  sliding_window: {
    name: "Sliding window (two counters)",
    say: (p) => `About ${p.amount} in any ${seconds(p)}, from two counters.`,
  },
  sliding_buckets: {
    name: "Sliding buckets", has: "buckets",
    say: (p) => `Never more than ${p.amount} in any ${seconds(p)}, from ${p.buckets ?? 10} counters.`,
  },
  sliding_log: {
    name: "Sliding log",
    say: (p) => `Exactly ${p.amount} in any ${seconds(p)}: the time of each request is stored.`,
  },
};

/** Describes the policies of a pane in a sentence each. */
export function describe(settings) {
  const sentences = settings.policies.map((policy) => ALGORITHMS[policy.algorithm].say(policy));
  return sentences.length > 1 ? `All must allow: ${sentences.join(" ")}` : sentences.join(" ");
}

/** Describes why the store did not decide, and what happens instead. */
export function outage(reason, answer) {
  const what = {
    local: "this instance decides on its share of the quota",
    open: "all requests pass",
    closed: "requests are refused with 503",
  }[answer];
  return `Redis does not answer (${reason}): ${what}.`;
}

export function duration(ms) {
  if (ms < 1) {
    return `${significant(ms * 1000)} µs`;
  }
  return ms < 1000 ? `${significant(ms)} ms` : `${significant(ms / 1000)} s`;
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function significant(value) {
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(2)));
}

function rate(policy) {
  return policy.period_ms === 1000 ? `${policy.amount} per second` : `${policy.amount} per ${seconds(policy)}`;
}

function every(policy) {
  return policy.period_ms === 1000 ? "every second" : `every ${seconds(policy)}`;
}

function seconds(policy) {
  return `${Number((policy.period_ms / 1000).toFixed(3))} s`;
}
