// What the pages say while the app is down. It is really stopped, so these checks are the last but one.
import assert from "node:assert/strict";
import { patience, shown } from "./checks.mjs";

export const away = [
  ["while the app is down every page says so, and of when it is what it shows", async ({ page, base, run, halt, refused }) => {
    refused("/api/"); // what is asked now is not answered
    const to = (name) => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true }).click();
    await page.goto(`${base}/runs/${run}`);
    await shown(page.locator('[data-live="Live"]'));
    for (const name of ["Sessions", "Workers", "Queues", "Schedules", "Namespaces", "Runs"]) await to(name); // so that there is something to show
    await page.evaluate(() => document.querySelector("[data-away]")).then((now) => assert.equal(now, null));
    await halt();
    const notice = page.getByRole("alert").filter({ hasText: "The app does not answer" });
    await notice.waitFor({ timeout: patience });
    assert.match(await notice.innerText(), /as of \d{1,2}:\d\d:\d\d/);
    for (const name of ["Sessions", "Workers", "Queues", "Schedules", "Namespaces", "Runs"]) {
      await to(name);
      await shown(notice);
    }
  }],
];
