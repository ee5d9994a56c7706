// The plot, the table, the level and the last response show what the server decided.

import assert from "node:assert/strict";
import { test } from "node:test";

import { limit, open, playground, plotted, until, untilPlotted } from "./support.mjs";

test("two algorithms get the same burst, and the plots show what each admits", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await limit(page, "left", "sliding_log", 7, 60);
  await limit(page, "right", "window_from_first_hit", 9, 60);
  await page.locator("#requests").fill("20");
  await page.getByRole("button", { name: "Send burst" }).click();
  await untilPlotted(page, "left", { admitted: 7, denied: 13, failed: 0 });
  await untilPlotted(page, "right", { admitted: 9, denied: 11, failed: 0 });

  const left = page.locator("#left");
  assert.match(await left.locator("svg").getAttribute("aria-label"), /7 admitted, 13 denied, 0 without a decision/);
  assert.match(await left.locator("figcaption").textContent(), /7 admitted\s+13 denied/);
  const meter = left.getByRole("meter");
  await until("an empty level", async () => (await meter.getAttribute("aria-valuenow")) === "0");
  assert.equal(await meter.getAttribute("aria-valuemax"), "7");

  const status = page.getByRole("status");
  await until("the outcome in words", async () => (await status.textContent()).includes("Outcome"));
  assert.match(await status.textContent(), /left 7 admitted, 13 denied; right 9 admitted, 11 denied/);

  await left.getByText("The plot as a table").click();
  await left.locator("tbody tr").first().waitFor();
  const sums = await left.locator("tbody tr").evaluateAll((rows) => [1, 2, 3].map(
    (column) => rows.reduce((sum, row) => sum + Number(row.cells[column].textContent), 0),
  ));
  assert.deepEqual(sums, [7, 13, 0]);
});

test("the outcome counts decisions that the page knows before it has the response", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await limit(page, "left", "sliding_log", 2, 60);
  await page.locator("#requests").fill("5");
  await page.route("**/api/send", async (route) => {
    const response = await route.fetch();
    await untilPlotted(page, "left", { admitted: 2, denied: 3, failed: 0 });
    await route.fulfill({ response });
  });
  await page.getByRole("button", { name: "Send burst" }).click();
  const status = page.getByRole("status");
  await until("the outcome in words", async () => (await status.textContent()).includes("Outcome"));
  assert.match(await status.textContent(), /left 2 admitted, 3 denied/);
});

test("the last response has the fields and the problem document, and decisions have a latency", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await limit(page, "left", "sliding_log", 1, 60);
  const response = page.getByLabel("Last response of the left pane");
  await page.getByRole("button", { name: "Send 1" }).click();
  await until("an admitted request", async () => (await response.textContent()).startsWith("HTTP 200 OK"));
  await page.getByRole("button", { name: "Send 1" }).click();
  await until("a denied request", async () => (await response.textContent()).startsWith("HTTP 429"));
  const text = await response.textContent();
  for (const part of ["Retry-After: ", 'RateLimit-Policy: "demo";q=1;w=60', 'RateLimit: "demo";r=0;t=', '"title": "Quota exceeded"']) {
    assert.ok(text.includes(part), `${part} in ${text}`);
  }
  assert.match(await page.locator("#left .latency").textContent(), /A decision takes [\d.]+ (µs|ms|s) \(median\)/);
});

test("a stream goes on until it is stopped, and a reloaded page still has its plot", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await page.locator("#rate").fill("40");
  const button = page.locator("#stream");
  await button.click();
  assert.equal(await button.getAttribute("aria-pressed"), "true");
  await until("a stream of requests", async () => (await plotted(page, "left")).denied >= 20);
  await button.click();
  assert.equal(await button.textContent(), "Start stream");
  await page.reload();
  await page.locator("body[data-connected=true]").waitFor();
  await until("the plot from before", async () => (await plotted(page, "left")).denied >= 20);
});

test("several policies are one set, and each has a level of its own", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await limit(page, "left", "sliding_log", 4, 60);
  await page.locator("#left").getByRole("button", { name: "Add a policy" }).click();
  const meters = page.locator("#left").getByRole("meter");
  await until("two levels", async () => (await meters.count()) === 2);
  await page.getByLabel("Target of the requests").selectOption("left");
  await page.locator("#requests").fill("6");
  await page.getByRole("button", { name: "Send burst" }).click();
  await untilPlotted(page, "left", { admitted: 4, denied: 2 });
  const left = async (at) => meters.nth(at).getAttribute("aria-valuenow");
  await until("both charged alike", async () => (await left(0)) === "0" && (await left(1)) === "96");
  await page.getByRole("button", { name: "Remove policy 2" }).click();
  await until("one level", async () => (await meters.count()) === 1);
  await untilPlotted(page, "right", { admitted: 0, denied: 0 });
});
