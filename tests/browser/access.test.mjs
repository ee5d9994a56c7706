// The page can be used by keyboard and by screen reader, in light and dark, on a desk and on a phone.

import assert from "node:assert/strict";
import { test } from "node:test";

import { faults, limit, open, playground, until, untilPlotted } from "./support.mjs";

const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const FORMS = [
  ["a light desk", { colorScheme: "light" }],
  ["a dark desk", { colorScheme: "dark" }],
  ["a light phone", { colorScheme: "light", ...PHONE }],
  ["a dark phone", { colorScheme: "dark", ...PHONE }],
];

test("axe finds no fault, and nothing scrolls sideways", async (t) => {
  const { url } = await playground(t, { ownRedis: true });
  const colours = new Set();
  for (const [form, options] of FORMS) {
    const page = await open(t, url, options);
    await page.locator("#left-0-amount").fill("20000");
    await page.locator("#left [data-error]").waitFor();
    await page.locator("#right .add").click();
    await page.getByLabel("Estimate").fill("3");
    await page.getByRole("button", { name: "Reserve" }).click();
    await page.getByRole("button", { name: "Start work" }).click();
    await page.getByRole("button", { name: "Send burst" }).click();
    await page.locator("#left").getByText("The plot as a table").click();
    await page.locator("#left tbody tr").first().waitFor();
    await until("a response", async () => (await page.locator("#left .response .name").count()) > 0);
    assert.deepEqual(await faults(page), [], form);
    const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= screen, `${form}: the page is ${wide} wide on a screen of ${screen}`);
    colours.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await page.locator("#right .remove").last().click();
    await page.close();
  }
  assert.equal(colours.size, 2, "light and dark have different colours");
});

test("everything can be reached and used by keyboard, and the focus is visible", async (t) => {
  const page = await open(t, (await playground(t, { ownRedis: true })).url);
  await limit(page, "left", "sliding_log", 3, 60);
  await page.reload();
  await page.locator("body[data-connected=true]").waitFor();
  await page.locator("#left-0-amount").waitFor();
  const controls = await page.locator("button:visible, input:visible, select:visible, summary:visible").count();
  const reached = new Set();
  const focused = () => page.evaluate(() => {
    const element = document.activeElement;
    const path = element.id || `${element.closest("section")?.id} ${element.className} ${element.textContent.slice(0, 20)}`;
    const isControl = element.matches("button, input, select, summary");
    return { path, isControl, outline: getComputedStyle(element).outlineStyle };
  });
  await page.keyboard.press("Tab");
  assert.equal((await focused()).path.includes("skip"), true, "the first stop skips to the requests");
  await page.keyboard.press("Enter");
  for (let at = 0; at < 3 * controls; at += 1) {
    await page.keyboard.press("Tab");
    const { path, isControl, outline } = await focused();
    if (isControl) {
      assert.notEqual(outline, "none", `${path} shows its focus`);
      reached.add(path);
    }
  }
  assert.equal(reached.size, controls, [...reached].join(", "));

  await page.locator("#burst").focus();
  await page.keyboard.press("Enter");
  await untilPlotted(page, "left", { admitted: 3, denied: 17 });
  await page.locator("#left-0-algorithm").focus();
  // The only one with this letter: letters that come a second later begin anew.
  await page.keyboard.press("F");
  await until("the other algorithm", async () => (await page.locator("#left h2").textContent()) === "Left: Fixed window");
});
