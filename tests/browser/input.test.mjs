// Input that the server refuses is shown at its field. Permits and reservations can be tried.

import assert from "node:assert/strict";
import { test } from "node:test";

import { limit, open, playground, until } from "./support.mjs";

/** Waits until a field is marked as invalid, and returns the text that describes it. */
async function errorAt(page, id) {
  const input = page.locator(`#${id}`);
  const description = await until(`an error at ${id}`, () => input.getAttribute("aria-describedby"));
  assert.equal(await input.getAttribute("aria-invalid"), "true");
  return page.locator(`#${description}`).textContent();
}

test("a refused value is named at its field, and the limits before stay in force", async (t) => {
  const page = await open(t, (await playground(t)).url);
  for (const [id, value, message] of [
    ["left-0-amount", "20000", "amount must be at most 10000 in the playground, got 20000"],
    ["left-0-burst", "4294967296", "burst must be at most 10000 in the playground, got 4294967296"],
    ["left-0-period_ms", "0", "quota period must be at least 1 µs, got 0"],
    ["left-0-name", "two words", "policy name must be 1 to 64 characters"],
    ["left-0-amount", "", "invalid type: string"],
  ]) {
    const input = page.locator(`#${id}`);
    const before = await input.inputValue();
    await input.fill(value);
    const text = await errorAt(page, id);
    assert.ok(text.includes(message), `${message} is not in ${text}`);
    assert.match(await page.locator("#left .sentence").textContent(), /5 per second on average, at most 10 at once/);
    await input.fill(before);
    await until("no error", async () => (await input.getAttribute("aria-invalid")) === null);
  }
  await page.locator("#cost").fill("4294967296");
  await page.getByRole("button", { name: "Send burst" }).click();
  assert.match(await errorAt(page, "cost"), /cost must be 0 to 10000, got 4294967296/);
  await page.getByRole("button", { name: "Send 1" }).click();
  await until("the answer of the limited service", async () => /cost must be a number/.test(await errorAt(page, "cost")));
  await page.locator("#cost").fill("1");
  await page.locator("#rate").fill("1000");
  await page.locator("#stream").click();
  assert.match(await errorAt(page, "rate"), /rate must be 1 to 200, got 1000/);
  await page.locator("#key").fill("");
  await page.locator("#key").press("Tab");
  assert.match(await errorAt(page, "key"), /key must have 1 to 64 bytes, got 0/);
});

test("work holds permits until it ends, and more work is denied", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await page.getByLabel("At most").fill("1");
  await page.getByLabel("Seconds of work").fill("60");
  const list = page.getByRole("list", { name: "Work in progress" });
  await page.getByRole("button", { name: "Start work" }).click();
  await until("work in progress", async () => (await page.locator("#work-answer").textContent()).includes("200 OK"));
  assert.equal(await list.locator("li").count(), 1);
  await page.getByRole("button", { name: "Start work" }).click();
  await until("a denied permit", async () => (await page.locator("#work-answer").textContent()).includes("429"));
  await until("one piece of work", async () => (await list.locator("li").count()) === 1);
  await page.getByRole("button", { name: "End all" }).click();
  await until("no work", async () => (await page.locator("#work-list li").count()) === 0);
  await page.getByLabel("Seconds of work").fill("0");
  await page.getByRole("button", { name: "Start work" }).click();
  assert.match(await errorAt(page, "seconds"), /seconds must be 1 to 60, got 0/);
});

test("a reservation charges its estimate, and is settled at its real cost", async (t) => {
  const page = await open(t, (await playground(t)).url);
  await limit(page, "left", "sliding_log", 10, 60);
  const level = () => page.locator("#left").getByRole("meter").getAttribute("aria-valuenow");
  await page.getByLabel("Estimate").fill("8");
  await page.getByRole("button", { name: "Reserve" }).click();
  await until("the estimate to be charged", async () => (await level()) === "2");
  await page.getByRole("button", { name: "Reserve" }).click();
  assert.match(await errorAt(page, "estimate"), /estimate 8 does not fit now/);
  await page.getByLabel("Real cost of the reservation of 8 units").fill("3");
  await page.getByRole("button", { name: "Settle" }).click();
  await until("the rest to be given back", async () => (await level()) === "7");
  const answer = page.locator("#reserve-answer");
  await until("the answer", async () => /reservation of 8 is settled at 3/.test(await answer.textContent()));
  await until("an empty list", async () => (await page.locator("#reserve-list li").count()) === 0);
});
