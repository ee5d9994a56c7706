// Tabs and instances share one limit, and an outage of Redis is answered as each pane says.

import assert from "node:assert/strict";
import { test } from "node:test";

import { limit, open, playground, until, untilPlotted } from "./support.mjs";

const remaining = (page) => page.locator("#left").getByRole("meter").getAttribute("aria-valuenow");

test("two tabs and two instances at one Redis share the limit", async (t) => {
  const one = await playground(t, { ownRedis: true });
  const other = await playground(t, { redis: one.redis });
  const first = await open(t, one.url);
  const second = await open(t, one.url);
  const elsewhere = await open(t, other.url);
  await limit(first, "left", "sliding_log", 5, 60);
  await until("the limit in the second tab", async () => (await second.locator("#left-0-amount").inputValue()) === "5");
  await limit(elsewhere, "left", "sliding_log", 5, 60);

  await first.locator("#requests").fill("3");
  await first.getByRole("button", { name: "Send burst" }).click();
  await untilPlotted(second, "left", { admitted: 3, denied: 0 });
  await until("the level in the other instance", async () => (await remaining(elsewhere)) === "2");
  await elsewhere.getByRole("button", { name: "Send burst" }).click();
  await untilPlotted(elsewhere, "left", { admitted: 2, denied: 18 });
  await until("the level in the first instance", async () => (await remaining(first)) === "0");

  // Another key, in all tabs of the instance, has units of its own.
  await first.locator("#key").fill("ann");
  await first.locator("#key").press("Enter");
  await until("the key in the second tab", async () => (await second.locator("#key").inputValue()) === "ann");
  await until("the level of the other key", async () => (await remaining(second)) === "5");
});

test("the switch stops Redis, each pane answers as it says, and Redis comes back", async (t) => {
  const page = await open(t, (await playground(t, { ownRedis: true })).url);
  await page.locator("#left-outage").selectOption("closed");
  await page.locator("#right-outage").selectOption("open");
  const redis = page.getByRole("switch", { name: "Redis server" });
  assert.equal(await redis.getAttribute("aria-checked"), "true");
  await redis.focus();
  await page.keyboard.press("Space");
  await until("the switch to be off", async () => (await redis.getAttribute("aria-checked")) === "false");
  const note = page.locator("#left .outage");
  await note.waitFor();
  assert.match(await note.textContent(), /Redis does not answer \(.+\): requests are refused with 503/);

  await page.locator("#requests").fill("30");
  await page.getByRole("button", { name: "Send burst" }).click();
  await untilPlotted(page, "left", { admitted: 0, denied: 0, failed: 30 });
  await untilPlotted(page, "right", { admitted: 30, denied: 0, failed: 0 });
  const response = page.getByLabel("Last response of the left pane");
  await until("the last response", async () => /^HTTP 503[^]*Tollgate-Degraded: /.test(await response.textContent()));

  await redis.focus();
  await page.keyboard.press("Space");
  await until("the switch to be on", async () => (await redis.getAttribute("aria-checked")) === "true");
  await note.waitFor({ state: "hidden" });
  await limit(page, "right", "sliding_log", 4, 60);
  await page.locator("#right .outage").waitFor({ state: "hidden" });
  await page.getByLabel("Target of the requests").selectOption("right");
  await page.getByRole("button", { name: "Send burst" }).click();
  // The other four are admitted. The thirty of before may have left the plot of half a minute.
  await untilPlotted(page, "right", { denied: 26, failed: 0 });
});
