// A history of more than 5,000 events: the timeline is shown after the first page, and no page is read twice.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { patience, shown, until } from "./checks.mjs";

const space = "long-tale";
const queue = "scroll";
const worker = "scribe";
const most = 1000; // commands of one completion
const page500 = 500; // events of one page

export const long = [
  ["a run of 5,000 events paints its timeline with the first page, and reads each page once", async ({ page, base, api, shot }) => {
    await api("/api/namespaces", { name: space });
    await api("/api/worker/register", { worker_id: worker, task_queue: queue, runtime: "hand", supported_workflow_types: ["tale"], supported_activity_types: ["write"] }, space);
    keepAlive(api, worker, space);
    const { run_id } = await api("/api/workflows", { workflow_id: "tale", workflow_type: "tale", task_queue: queue }, space);
    const decide = async (commands) => {
      const { task } = await api("/api/worker/workflow-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 60 }, space);
      await api(`/api/worker/workflow-tasks/${task.task_id}/complete`, { lease_owner: worker, workflow_task_attempt: task.workflow_task_attempt, commands }, space);
    };
    let noted = 0;
    const notes = (n) => Array.from({ length: n }, () => ({ type: "record_version_marker", change_id: `line-${++noted}`, version: 1, min_supported: 1, max_supported: 1 }));
    const wait = { type: "open_signal_wait", signal_name: "chapter" };
    const steps = 40;
    await decide([...Array.from({ length: steps }, () => ({ type: "schedule_activity", activity_type: "write" })), ...notes(most - steps - 1), wait]);
    for (let chapter = 1; chapter < 5; chapter++) {
      await api("/api/workflows/tale/signal/chapter", { input: [chapter] }, space);
      await decide([...notes(most - 1), wait]);
    }
    const { history_length: length } = await api(`/api/runs/${run_id}`, undefined, space);
    assert.ok(length >= 5000, `the run has ${length} events`);
    const pages = Math.ceil(length / page500);

    // The proxy holds back all pages except the first until the timeline is shown.
    const asked = [];
    let streams = 0;
    const countStreams = (r) => (streams += new URL(r.url()).pathname.endsWith("/history/stream") ? 1 : 0);
    page.on("request", countStreams);
    let letGo;
    const go = new Promise((resolve) => (letGo = resolve));
    const history = /\/history\?/;
    await page.route(history, async (route) => {
      const q = new URL(route.request().url()).searchParams;
      asked.push(q.has("after") ? `after ${q.get("after")}` : q.get("next_page_token"));
      if (asked.length > 1) await go;
      await route.continue().catch(() => {}); // the page may be gone by then
    });
    try {
      const seen = [];
      const note = (r) => r.url().includes("/api/") && !r.url().includes("/socket.io") && seen.push(new URL(r.url()).pathname);
      page.on("request", note);
      await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
      await shown(page.locator('[data-lane="activity"]').first());
      await shown(page.locator('[data-event="ActivityScheduled"]').first());
      page.off("request", note);
      assert.ok(asked.length <= 2, `${asked.length} pages of history were asked for before the timeline stood`);
      assert.equal(asked[0], null, "the first page is asked for first");
      const may = ["/api/sojourn/me", "/api/namespaces", "/api/sojourn/overview", `/api/runs/${run_id}`, `/api/workflows/tale/runs/${run_id}/history`];
      assert.deepEqual([...new Set(seen)].filter((p) => !may.includes(p)), [], "asked for before the timeline stood");
      assert.equal(await page.locator("[data-following]").count(), 0, "what is not read to its end is not followed");
      await shot("long-first");
      // Changes of the run do not restart the loading: with many changes it would never finish.
      const view = page.waitForResponse((r) => r.url().includes(`/api/runs/${run_id}`));
      await api("/api/workflows/tale/signal/chapter", { input: ["meanwhile"] }, space);
      await view;
      assert.equal(asked.length, 2, "a change had the history read anew");
    } finally {
      letGo();
    }
    await page.locator('[data-following="live"]').waitFor({ timeout: 4 * patience }); // ten pages on a busy machine
    // The dashboard requests each page of the history once. It requests the events after the last one when it opens the
    // event stream: once per visit and after each lost stream. A change while the stream opens or is lost causes one more.
    const readOnce = (visits) => {
      const full = asked.slice(0, pages);
      assert.deepEqual(asked.filter((token) => full.includes(token)), [...new Set(full)], "full pages were read again");
      const last = asked.length - full.length;
      if (streams === visits) assert.ok(last <= 1 + 2 * visits, `the end was read ${last} times in ${visits} visits`);
    };
    readOnce(1);

    // New events arrive over the stream.
    await api("/api/workflows/tale/signal/chapter", { input: ["the last"] }, space);
    await until("its newest event", async () => {
      await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
      return page.locator('[data-event="SignalReceived"]').getByText("the last").isVisible();
    });
    await shot("long-last");
    readOnce(1);
    await page.getByRole("link", { name: "Runs", exact: true }).first().click();
    await shown(page.getByRole("heading", { level: 1, name: "Runs" }));
    await page.locator(`[data-run="${run_id}"]`).click();
    await shown(page.locator('[data-following="live"]'));
    readOnce(2);
    await page.unroute(history);
    page.off("request", countStreams);
  }],
];
