// The console shows what is limited, acts in a person's name, and runs no script of a key.

import assert from "node:assert/strict";
import { mkdirSync, statSync } from "node:fs";
import { test } from "node:test";

import { consoleExample, faults, open, playground, until } from "./support.mjs";

const LARGEST = 240_000;
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const FORMS = {
  "desk-light": { colorScheme: "light" },
  "desk-dark": { colorScheme: "dark" },
  "phone-light": { colorScheme: "light", ...PHONE },
  "phone-dark": { colorScheme: "dark", ...PHONE },
};
// Each would run if one value came to the page as markup.
const HOSTILE = [
  `"><img src=x onerror="window.ran=1">`,
  "<script>window.ran=2</script>",
  "<svg onload=window.ran=3>",
  "javascript:window.ran=4",
];

/** Lets a tenant spend so many units. A check that a busy machine answers late may spend none, and is sent again. */
async function spend({ url, service }, tenant, units) {
  await until(`${tenant} to have spent ${units}`, async () => {
    const body = JSON.stringify({ key: tenant, cost: null });
    const answer = await fetch(`${url}/api/peek`, { method: "POST", headers: { "content-type": "application/json" }, body });
    const { states } = await answer.json();
    if (states.length > 0 && states[0].spent >= units) {
      return true;
    }
    await fetch(service, { headers: { "x-tenant": tenant } });
    return false;
  });
}

/** Starts the example on a Redis server, with keys of which some are hostile. */
async function started(t, variables) {
  const { redis } = await playground(t, { ownRedis: true });
  const example = await consoleExample(t, { redis, ...variables });
  await spend(example, "acme", 10);
  await until("a denial", async () => (await fetch(example.service, { headers: { "x-tenant": "acme" } })).status === 429);
  for (const tenant of ["globex", "initech", ...HOSTILE]) {
    await spend(example, tenant, 1);
  }
  return example;
}

async function untilPublished(page) {
  await until("the limiter and its replica", async () => {
    const [limiters, replicas] = await Promise.all(["limiters", "replicas"].map((id) => page.locator(`#${id}`).textContent()));
    return limiters.includes("tenants") && replicas.includes("pid");
  });
}

test("a hostile key is a text in every place, and nothing of it runs", async (t) => {
  const { url } = await started(t, { SHOW_KEYS: "1" });
  const page = await open(t, url, { provoked: /^Executing inline script violates/ });
  const keys = page.locator("#keys");
  for (const key of HOSTILE) {
    await page.locator("#key").fill(key);
    await page.getByRole("button", { name: "Look", exact: true }).first().click();
    await until("what the key has spent", async () => /[12] of 10/.test(await page.locator("#states").textContent()));
    await page.locator("#author").fill("ann");
    await page.locator("#reset").click();
    await page.locator("#confirm-text").getByText(key, { exact: false }).waitFor();
    await page.locator("#confirm-yes").click();
    await until("a fresh key", async () => (await page.locator("#said").textContent()).includes(`${key} is fresh`));
  }
  await until("the actions", async () => (await page.locator("#actions tbody tr").count()) === HOSTILE.length);
  // An error repeats what was wrong.
  const answer = await page.evaluate(async () => {
    const body = JSON.stringify({ limiter: "<img src=x onerror=window.ran=5>", share: "5%" });
    const headers = { "content-type": "application/json", "tollgate-author": "ann" };
    return (await fetch("/console/api/share", { method: "POST", headers, body })).text();
  });
  assert.match(answer, /no limiter <img/);
  assert.equal(await page.locator("main img, main svg, main script").count(), 0);
  assert.equal(await page.evaluate(() => window.ran), undefined);
  assert.ok((await keys.textContent()).includes("acme"), "keys are shown, because the example was told to");
  // The policy holds: a script that comes to the page otherwise does not run either.
  const refused = await page.evaluate(() => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation", (event) => resolve(event.violatedDirective));
    const script = document.createElement("script");
    script.textContent = "window.ran = 6";
    document.body.append(script);
  }));
  assert.match(refused, /script-src/);
  assert.equal(await page.evaluate(() => window.ran), undefined);
});

/** Fills the form of exceptions, and grants. */
async function grant(page, { policy = "", ...fields }) {
  for (const [name, text] of Object.entries({ policy, ...fields })) {
    const field = page.locator(`#grant-${name}`);
    await (name === "kind" ? field.selectOption(text) : field.fill(text));
  }
  await page.getByRole("button", { name: "Grant …" }).click();
  await page.locator("#confirm-yes").click();
}

/** Waits until the page says so about an exception, as bad or as good news. */
const untilGranted = (page, words, news) => until(words, async () => {
  const said = page.locator("#granted");
  return (await said.textContent()).includes(words) && (await said.getAttribute("class")).includes(news);
});

test("an exception is granted, changed and withdrawn in a name, for keys that are hostile, too", async (t) => {
  const { url } = await started(t, { SHOW_KEYS: "1" });
  const page = await open(t, url);
  await untilPublished(page);
  const acme = { limiter: "tenants", key: "acme", kind: "factor", value: "3", ends: "2h", reason: "imports its archive" };
  await grant(page, acme);
  await untilGranted(page, "an action needs an author", "bad");
  await page.locator("#author").fill("ann");
  for (const [wrong, words] of [
    [{ limiter: "other" }, "no limiter other is published"],
    [{ policy: "weekly" }, "policy of an exception must be one of"],
    [{ kind: "quota", value: "many" }, "quota"],
    [{ ends: "2020-01-01T00:00:00Z" }, "is in the past"],
    [{ reason: "<img src=x onerror=window.ran=5>" }, "must have no angle brackets, got \"<img"],
  ]) {
    await grant(page, { ...acme, ...wrong });
    await untilGranted(page, words, "bad");
  }
  assert.match(await page.locator("#exceptions").textContent(), /Every key has the quotas of its limiters/);

  await grant(page, acme);
  await untilGranted(page, "The exception for acme is granted", "good");
  for (const key of HOSTILE) {
    await grant(page, { ...acme, key, kind: "quota", value: "7/h" });
    await untilGranted(page, `The exception for ${key} is granted`, "good");
  }
  const rows = page.locator("#exceptions tbody tr");
  await until("all exceptions", async () => (await rows.count()) === HOSTILE.length + 1);
  assert.match(await page.locator("#exceptions").textContent(), /factor 3: 30\/hour.*imports its archive/);
  // Its key has it on the page of one key, too.
  await page.locator("#key").fill("acme");
  await page.locator("#key").press("Enter");
  await until("the exception of the key", async () => /factor 3/.test(await page.locator("#key-exceptions").textContent()));
  assert.match(await page.locator("#states").textContent(), /10 of 30/);

  await page.locator("#exceptions tr", { hasText: "factor 3" }).getByRole("button", { name: "Change …" }).click();
  assert.equal(await page.locator("#grant-key").inputValue(), "acme");
  assert.equal(await page.locator("#grant-value").inputValue(), "3");
  await grant(page, { value: "4", ends: "1h" });
  await untilGranted(page, "The exception for acme is changed", "good");
  await page.locator("#exceptions tr", { hasText: "factor 4" }).getByRole("button", { name: "Withdraw …" }).click();
  await page.locator("#confirm-yes").click();
  await untilGranted(page, "The exception for acme is withdrawn", "good");
  await until("one less", async () => (await rows.count()) === HOSTILE.length);

  await page.locator("#grant-kind").selectOption("fresh");
  assert.equal(await page.locator("#grant-value").isVisible(), false);
  await grant(page, { limiter: "tenants", key: "acme", reason: "charged twice" });
  await untilGranted(page, "The exception for acme is granted", "good");
  await until("a fresh start", async () => /fresh start/.test(await page.locator("#exceptions").textContent()));
  assert.equal(await page.locator("main img, main svg, main script").count(), 0);
  assert.equal(await page.evaluate(() => window.ran), undefined);
});

test("a person looks at a key, makes it fresh, and sets a share, each in a name", async (t) => {
  const { url } = await started(t);
  const page = await open(t, url);
  await untilPublished(page);
  assert.ok(!(await page.locator("#keys").textContent()).includes("acme"), "keys are digests");
  assert.match(await page.locator("#denied").textContent(), /[0-9a-f]{32}/);

  await page.locator("#key").fill("acme");
  await page.locator("#key").press("Enter");
  await until("a full limit", async () => (await page.locator("#states").textContent()).includes("10 of 10"));
  await page.locator("#reset").click();
  await page.locator("#confirm-yes").click();
  await until("a refusal without a name", async () => /an action needs an author/.test(await page.locator("#said").textContent()));
  await page.locator("#author").fill("ann");
  await page.locator("#reset").click();
  await page.locator("#confirm-no").click();
  await page.locator("#reset").click();
  await page.locator("#confirm-yes").click();
  await until("a fresh key", async () => (await page.locator("#said").textContent()).includes("acme is fresh: 1 removed"));

  await page.getByLabel("Share of tenants").fill("101%");
  await page.getByRole("button", { name: "Set …" }).click();
  await page.locator("#confirm-yes").click();
  await until("a refused share", async () => /share/.test(await page.locator("#said").textContent()) && (await page.locator("#said").getAttribute("class")).includes("bad"));
  await page.getByLabel("Share of tenants").fill("25%");
  await page.getByRole("button", { name: "Set …" }).click();
  await page.locator("#confirm-yes").click();
  await until("the share in force", async () => (await page.locator("#limiters").textContent()).includes("an operator set 25%"));
  await until("both actions", async () => (await page.locator("#actions").textContent()).match(/ann/g)?.length === 2);
});

test("axe finds no fault in light and dark, on a desk and on a phone, and nothing scrolls sideways", async (t) => {
  const directory = process.env.SCREENSHOTS;
  mkdirSync(directory, { recursive: true });
  const { url } = await started(t, { SHOW_KEYS: "1" });
  const colours = new Set();
  for (const [form, options] of Object.entries(FORMS)) {
    const page = await open(t, url, options);
    await untilPublished(page);
    await page.locator("#key").fill("acme");
    await page.locator("#key").press("Enter");
    await until("what the key has spent", async () => (await page.locator("#states").textContent()).includes("10 of 10"));
    if (form === "desk-light") {
      await page.locator("#author").fill("ann");
      await grant(page, { limiter: "tenants", key: "globex", kind: "factor", value: "2.5", ends: "2h", reason: "imports its archive" });
    }
    await until("the exception", async () => /factor 2.5: 25\/hour/.test(await page.locator("#exceptions").textContent()));
    assert.deepEqual(await faults(page), [], form);
    const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= screen, `${form}: the page is ${wide} wide on a screen of ${screen}`);
    colours.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await page.evaluate(() => document.activeElement.blur());
    const path = `${directory}/console-${form}.png`;
    await page.screenshot({ path, fullPage: true });
    assert.ok(statSync(path).size < LARGEST, `${path} has ${statSync(path).size} bytes`);
    await page.close();
  }
  assert.equal(colours.size, 2, "light and dark have different colours");
});
