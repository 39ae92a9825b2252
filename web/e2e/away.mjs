// What the pages say while the app is down. It is really stopped, so these checks are the last but one.
import assert from "node:assert/strict";
import { patience, shown } from "./checks.mjs";

const said = (page) => page.getByRole("alert").filter({ hasText: "The app is not responding" });
const moment = /as of \d\d:\d\d:\d\d\.$/;

/** The notice stands, with its moment. */
async function isSaid(page) {
  await said(page).waitFor({ timeout: patience });
  assert.match(await said(page).innerText(), moment);
}

export const away = [
  ["every page shows that a paused app is not responding, until it resumes", async ({ page, base, run, stand }) => {
    await page.goto(`${base}/runs/${run}`);
    await shown(page.locator('[data-live="Live"]'));
    await shown(page.locator('main [data-status="completed"]').first());
    assert.equal(await said(page).count(), 0);
    try {
      stand(true); // its connections stay open, and nothing comes
      await isSaid(page);
    } finally {
      stand(false);
    }
    await said(page).waitFor({ state: "detached", timeout: patience });
    await shown(page.locator('[data-live="Live"]'));
  }],
  ["every page shows that the app is down, with the time of its data", async ({ page, base, api, halt, refused }) => {
    await api("/api/worker/register", { worker_id: "away", task_queue: "away", runtime: "hand", supported_workflow_types: ["order"], max_concurrent_worker_sessions: 1, capabilities: ["worker_sessions"] });
    await api("/api/worker/sessions", { worker_id: "away", session_id: "away", ttl_seconds: 900, lease_seconds: 900 });
    // A run that has ended, and stands first in the list of runs.
    const { run_id: run } = await api("/api/workflows", { workflow_id: "away", workflow_type: "order", task_queue: "away" });
    await api("/api/workflows/away/terminate", { reason: "to be looked at" });
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
    await page.locator(`[data-run="${run}"]`).click();
    await shown(page.locator("[data-timeline]"));
    assert.equal(await said(page).count(), 0);
    await halt();
    await isSaid(page); // that of a closed run, which asks for nothing
    for (const name of pages) {
      await to(name);
      await isSaid(page);
      if (!one[name]) continue;
      await into(name);
      await isSaid(page);
    }
    await page.locator(`[data-run="${run}"]`).click();
    await shown(page.locator("[data-timeline]"));
    await isSaid(page);
  }],
];
