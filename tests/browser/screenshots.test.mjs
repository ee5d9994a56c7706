// Takes the pictures of the documentation.

import assert from "node:assert/strict";
import { mkdirSync, statSync } from "node:fs";
import { test } from "node:test";

import { open, playground, until } from "./support.mjs";

const LARGEST = 200_000;
const FORMS = {
  light: { colorScheme: "light", viewport: { width: 1280, height: 1028 } },
  dark: { colorScheme: "dark", viewport: { width: 1280, height: 1028 } },
  phone: { colorScheme: "light", viewport: { width: 390, height: 1180 }, isMobile: true },
};

test("the pictures show a running comparison, and are small", async (t) => {
  const directory = process.env.SCREENSHOTS;
  mkdirSync(directory, { recursive: true });
  const { url } = await playground(t, { ownRedis: true });
  const pages = {};
  for (const [form, options] of Object.entries(FORMS)) {
    pages[form] = await open(t, url, options);
  }
  const page = pages.light;
  const bars = () => page.locator("svg[data-plot=left] rect.admitted").evaluateAll(
    (bars) => bars.filter((bar) => Number(bar.dataset.count) > 0).length,
  );
  await page.locator("#rate").fill("7");
  await page.locator("#stream").click();
  for (const filled of [14, 26, 38]) {
    await until(`${filled} bars`, async () => (await bars()) >= filled);
    await page.locator("#requests").fill("12");
    await page.locator("#burst").click();
  }
  await until("50 bars", async () => (await bars()) >= 50);
  await page.locator("#stream").click();
  await page.locator("#burst").click();
  await until("the outcome of the burst", async () => (await page.locator("#status").textContent()).includes("Outcome"));
  for (const [form, shown] of Object.entries(pages)) {
    const path = `${directory}/playground-${form}.png`;
    await shown.bringToFront();
    await shown.locator("#left .status-line.no").waitFor();
    await shown.evaluate(() => document.activeElement.blur());
    await shown.screenshot({ path });
    assert.ok(statSync(path).size < LARGEST, `${path} has ${statSync(path).size} bytes`);
  }
});
