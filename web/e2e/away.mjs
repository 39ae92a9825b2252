// What the pages say while the app is down. It is really stopped, so these checks are the last but one.
import assert from "node:assert/strict";
import { patience, shown } from "./checks.mjs";

export const away = [
  ["while the app is down every page says so, and of when it is what it shows", async ({ page, base, api, run, halt, refused }) => {
    await api("/api/worker/register", { worker_id: "away", task_queue: "away", runtime: "hand", supported_workflow_types: ["order"], max_concurrent_worker_sessions: 1, capabilities: ["worker_sessions"] });
    await api("/api/worker/sessions", { worker_id: "away", session_id: "away", ttl_seconds: 900, lease_seconds: 900 });
    await api("/api/schedules", { schedule_id: "away", spec: { intervals: [{ every: "PT24H" }] }, action: { workflow_type: "order" } });
    refused("/api/"); // what is asked now is not answered
    const to = (name) => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true }).click();
    await page.goto(`${base}/runs/${run}`);
    await shown(page.locator('[data-live="Live"]'));
    const pages = ["Sessions", "Workers", "Queues", "Schedules", "Namespaces", "Runs"];
    const one = { Sessions: "session", Queues: "queue", Schedules: "schedule" };
    const into = async (name) => {
      await page.locator(`a[data-${one[name]}="away"], [data-${one[name]}="away"] a`).first().click();
      await shown(page.getByRole("heading", { level: 1, name: "away" }));
    };
    for (const name of pages) { // so that there is something to show
      await to(name);
      if (one[name]) await into(name);
    }
    await page.evaluate(() => document.querySelector("[data-away]")).then((now) => assert.equal(now, null));
    await halt();
    const notice = page.getByRole("alert").filter({ hasText: "The app does not answer" });
    await notice.waitFor({ timeout: patience });
    assert.match(await notice.innerText(), /as of \d{1,2}:\d\d:\d\d/);
    for (const name of pages) {
      await to(name);
      await shown(notice);
      if (!one[name]) continue;
      await into(name);
      await shown(notice);
      assert.match(await notice.innerText(), /as of \d{1,2}:\d\d:\d\d/);
    }
  }],
];
