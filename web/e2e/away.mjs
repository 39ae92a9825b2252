// Pages while the app is paused or down. The app is really stopped, so these checks run last.
import assert from "node:assert/strict";
import { patience, shown } from "./checks.mjs";

const notice = (page) => page.getByRole("alert").filter({ hasText: "The app is not responding" });
const moment = /as of \d\d:\d\d:\d\d\.$/;

/** Waits for the notice and checks its time. */
async function isShown(page) {
  await notice(page).waitFor({ timeout: patience });
  assert.match(await notice(page).innerText(), moment);
}

export const away = [
  ["every page shows that a paused app is not responding, until it resumes", async ({ page, base, run, stand }) => {
    await page.goto(`${base}/runs/${run}`);
    await shown(page.locator('[data-live="Live"]'));
    await shown(page.locator('main [data-status="completed"]').first());
    assert.equal(await notice(page).count(), 0);
    try {
      stand(true); // its connections stay open without traffic
      await isShown(page);
    } finally {
      stand(false);
    }
    await notice(page).waitFor({ state: "detached", timeout: patience });
    await shown(page.locator('[data-live="Live"]'));
  }],
  ["every page shows that the app is down, with the time of its data", async ({ page, base, api, halt, refused }) => {
    await api("/api/worker/register", { worker_id: "away", task_queue: "away", runtime: "hand", supported_workflow_types: ["order"], max_concurrent_worker_sessions: 1, capabilities: ["worker_sessions"] });
    await api("/api/worker/sessions", { worker_id: "away", session_id: "away", ttl_seconds: 900, lease_seconds: 900 });
    // A closed run at the top of the list of runs.
    const { run_id: run } = await api("/api/workflows", { workflow_id: "away", workflow_type: "order", task_queue: "away" });
    await api("/api/workflows/away/terminate", { reason: "to be looked at" });
    await api("/api/schedules", { schedule_id: "away", spec: { intervals: [{ every: "PT24H" }] }, action: { workflow_type: "order" } });
    refused("/api/"); // requests fail from now on
    const to = (name) => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true }).click();
    await page.goto(`${base}/runs/${run}`);
    await shown(page.locator('[data-live="Live"]'));
    const pages = ["Sessions", "Workers", "Queues", "Schedules", "Namespaces", "Runs"];
    const one = { Sessions: "session", Queues: "queue", Schedules: "schedule" };
    const into = async (name) => {
      await page.locator(`a[data-${one[name]}="away"], [data-${one[name]}="away"] a`).first().click();
      await shown(page.getByRole("heading", { level: 1, name: "away" }));
    };
    for (const name of pages) { // load each page once
      await to(name);
      if (one[name]) await into(name);
    }
    await page.locator(`[data-run="${run}"]`).click();
    await shown(page.locator("[data-timeline]"));
    assert.equal(await notice(page).count(), 0);
    await halt();
    await isShown(page); // the page of a closed run sends no requests
    for (const name of pages) {
      await to(name);
      await isShown(page);
      if (!one[name]) continue;
      await into(name);
      await isShown(page);
    }
    await page.locator(`[data-run="${run}"]`).click();
    await shown(page.locator("[data-timeline]"));
    await isShown(page);
  }],
];
