// Starts playgrounds and pages for the tests, and waits for conditions.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { after } from "node:test";

/** The longest time in which a condition comes true. */
const PATIENCE_MS = 90_000;

const required = (name) => {
  assert.ok(process.env[name], `${name} is not set: run \`cargo xtask browser\``);
  return process.env[name];
};

const packages = createRequire(`${required("BROWSER_PACKAGES")}/package.json`);
const { chromium } = packages("playwright-core");
const AXE = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");

/** The tests whose playgrounds end. Their pages lose the connection then. */
const ending = new WeakSet();

let browser;

/** Starts the browser once for each file of tests. Containers run as root, and have a small /dev/shm. */
async function launched() {
  browser ??= await chromium.launch({
    executablePath: required("CHROMIUM"),
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
    timeout: PATIENCE_MS,
  });
  return browser;
}

after(() => browser?.close());

/** Makes a program listen on a port that the system chooses. A port that was free a moment ago may be taken. */
const LISTEN = "127.0.0.1:0";

/** Starts a playground, which ends with the test. Returns its address and that of its Redis server. */
export async function playground(test, { redis, ownRedis = false } = {}) {
  const env = { ...process.env, LISTEN, REDIS_URL: redis ?? "" };
  const stdio = ["ignore", "pipe", "inherit"];
  const child = spawn(required("PLAYGROUND"), ownRedis ? ["--redis-server"] : [], { env, stdio });
  const ended = once(child, "exit");
  test.after(async () => {
    ending.add(test);
    child.kill("SIGTERM");
    const [code] = await ended;
    assert.equal(code, 0, "the playground ends with success, although pages are open");
  });
  let redisUrl;
  for await (const line of createInterface({ input: child.stdout })) {
    redisUrl ??= line.match(/REDIS_URL=(\S+)/)?.[1];
    const url = line.match(/Open (http:\S+)/)?.[1];
    if (url) {
      child.stdout.resume();
      return { url, redis: redisUrl };
    }
  }
  throw new Error("the playground ended before it was ready");
}

/** Starts the example with the console at this Redis, which ends with the test. Returns the addresses of its pages. */
export async function consoleExample(test, { redis, ...variables } = {}) {
  const env = { ...process.env, ...variables, LISTEN, REDIS_URL: redis ?? "" };
  const child = spawn(required("CONSOLE"), [], { env, stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(child, "exit");
  test.after(async () => {
    ending.add(test);
    child.kill("SIGTERM");
    await ended;
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const url = line.match(/Open (http:\S+)/)?.[1];
    if (url) {
      child.stdout.resume();
      return { url, service: new URL("/", url).href };
    }
  }
  throw new Error("the example ended before it was ready");
}

/**
 * Opens a page. The test fails if it logs an error, breaks the content policy, or asks another origin for something.
 * Errors that match `provoked` are those that the test provokes.
 */
export async function open(test, url, { provoked, ...options } = {}) {
  const context = await (await launched()).newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const problems = [];
  const report = (problem) => ending.has(test) || provoked?.test(problem) || problems.push(problem);
  page.on("pageerror", (error) => report(error.message));
  page.on("console", (message) => {
    // Denied and refused requests are what the page is for.
    if (message.type() === "error" && !/status of (4\d\d|50[23])/.test(message.text())) {
      report(message.text());
    }
  });
  page.on("request", (request) => request.url().startsWith(url) || report(`asked for ${request.url()}`));
  test.after(async () => {
    await context.close();
    assert.deepEqual(problems, []);
  });
  await page.goto(url);
  await page.locator("body[data-connected=true]").waitFor();
  return page;
}

/** Waits until `look` returns something true, and returns it. */
export async function until(what, look) {
  const start = Date.now();
  for (;;) {
    const value = await look();
    if (value) {
      return value;
    }
    assert.ok(Date.now() - start < PATIENCE_MS, `waited ${PATIENCE_MS / 1000} s in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Sums the bars in the plot of a pane. */
export function plotted(page, pane) {
  return page.locator(`svg[data-plot=${pane}]`).evaluate((svg) => {
    const sum = (name) => [...svg.querySelectorAll(`rect.${name}`)].reduce((sum, bar) => sum + Number(bar.dataset.count ?? 0), 0);
    return { admitted: sum("admitted"), denied: sum("denied"), failed: sum("failed") };
  });
}

/** Waits until the plot of a pane has these sums. */
export async function untilPlotted(page, pane, sums) {
  let last;
  await until(`${JSON.stringify(sums)} in the ${pane} plot`, async () => {
    last = await plotted(page, pane);
    return Object.entries(sums).every(([name, sum]) => last[name] === sum);
  }).catch((error) => {
    throw new Error(`${error.message}, got ${JSON.stringify(last)}`);
  });
}

/** Sets the only policy of a pane by its form, and waits until the server has taken it. */
export async function limit(page, pane, algorithm, amount, seconds) {
  const field = (name) => page.locator(`#${pane}-0-${name}`);
  await field("algorithm").selectOption(algorithm);
  await field("amount").fill(String(amount));
  await field("period_ms").fill(String(seconds));
  const sentence = page.locator(`#${pane} .sentence`);
  await until("the limit in force", async () => {
    const text = await sentence.textContent();
    return text.includes(`${amount} `) && text.includes(`${seconds} s`);
  });
}

/** Returns what axe-core finds wrong on the page. */
export async function faults(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
}
