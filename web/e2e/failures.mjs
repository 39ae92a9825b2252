// Failures, progress and logs, and numbers that JavaScript would round. This file is the worker.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { patience, shown, until } from "./checks.mjs";

const space = "workshop";
const queue = "bench";
const worker = "smith";
const number = "9007199254740993";

const poll = async (api, kind, more = {}) => (await api(`/api/worker/${kind}/poll`, { worker_id: worker, task_queue: queue, timeout_seconds: 60, ...more }, space)).task;

async function decide(api, commands) {
  const t = await poll(api, "workflow-tasks");
  await api(`/api/worker/workflow-tasks/${t.task_id}/complete`, { lease_owner: worker, workflow_task_attempt: t.workflow_task_attempt, commands }, space);
}

export const failures = [
  ["a failed run shows its error in the list, and on its page file and line of the failure", async ({ page, base, api, axe, shot }) => {
    await api("/api/namespaces", { name: space });
    await api("/api/worker/register", {
      worker_id: worker, task_queue: queue, runtime: "hand", supported_workflow_types: ["order"], supported_activity_types: ["charge"], max_concurrent_activity_tasks: 4,
      capabilities: ["query_tasks"],
    }, space);
    keepAlive(api, worker, space);
    const { run_id } = await api("/api/workflows", { workflow_id: "يوسف/٧", workflow_type: "order", task_queue: queue }, space);
    await decide(api, [{ type: "schedule_activity", activity_type: "charge" }]);
    const t = await poll(api, "activity-tasks");
    const stack = 'Traceback (most recent call last):\n  File "/app/cards.py", line 19, in charge\nCardDeclined: no money';
    await api(`/api/worker/activity-tasks/${t.task_id}/fail`, {
      lease_owner: worker, activity_attempt_id: t.activity_attempt_id, failure: { message: "the card was declined", type: "CardDeclined", non_retryable: true, stack_trace: stack },
    }, space);
    await decide(api, [{ type: "fail_workflow", message: "nobody paid", exception_type: "Unpaid" }]);
    await page.goto(`${base}/?namespace=${space}`);
    await shown(page.locator(`tr:has([data-run="${run_id}"]) [data-error]`).getByText("Unpaid: nobody paid"));
    assert.deepEqual(await axe(), []);
    await shot("failed-runs");
    // A link that is followed before the search is applied opens its page, even if the page loads slowly.
    const code = "**/assets/RunPage-*.js";
    await page.route(code, async (route) => {
      await page.waitForTimeout(1000);
      await route.continue();
    });
    await page.reload();
    await shown(page.locator(`[data-run="${run_id}"]`));
    await page.locator("[data-search]").fill(run_id);
    await page.locator(`[data-run="${run_id}"]`).click();
    await shown(page.getByRole("heading", { level: 1, name: "order" }));
    await page.unroute(code);
    await page.goBack();
    await page.locator("[data-search]").fill(run_id);
    await page.waitForURL((url) => url.searchParams.get("q") === run_id, { timeout: patience });
    await shown(page.locator(`[data-run="${run_id}"]`));
    await page.locator(`[data-run="${run_id}"]`).click();
    const where = page.locator("[data-stack]").first();
    await where.getByText("charge failed at cards.py:19").click();
    await shown(where.locator("pre").getByText("CardDeclined: no money"));
    assert.deepEqual(await axe(), []);
    await page.emulateMedia({ colorScheme: "dark" });
    await shot("failed-run-dark", true);
    await page.emulateMedia({ colorScheme: "light" });
    await shot("failed-run", true);
  }],
  ["a run whose workflow task fails and is retried shows the error", async ({ page, base, api, axe, shot }) => {
    const { run_id } = await api("/api/workflows", { workflow_id: "broken", workflow_type: "order", task_queue: queue }, space);
    const t = await poll(api, "workflow-tasks");
    await api(`/api/worker/workflow-tasks/${t.task_id}/fail`, {
      lease_owner: worker, workflow_task_attempt: t.workflow_task_attempt, failure: { type: "WorkflowPanic", message: "out of flour", stack_trace: "panic: out of flour\nbake.go:7" },
    }, space);
    await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
    await shown(page.locator("[data-failed]").getByText("Last attempt failed: out of flour"));
    assert.deepEqual(await axe(), []);
    await shot("broken", true);
    await api(`/api/workflows/broken/terminate`, { reason: "enough" }, space);
  }],
  ["the progress of a heartbeat and the used slots are shown", async ({ page, base, api, axe, shot }) => {
    const { run_id } = await api("/api/workflows", { workflow_id: "film", workflow_type: "order", task_queue: queue }, space);
    await decide(api, [{ type: "schedule_activity", activity_type: "charge" }]);
    const t = await poll(api, "activity-tasks");
    await api(`/api/worker/activity-tasks/${t.task_id}/heartbeat`, {
      lease_owner: worker, activity_attempt_id: t.activity_attempt_id, progress: { current: 450, total: 1800, unit: "frames", message: "rendering" },
    }, space);
    await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
    await shown(page.locator("[data-progress]").getByText("450 of 1,800 frames · rendering"));
    assert.deepEqual(await axe(), []);
    await shot("progress", true);
    await page.goto(`${base}/workers?namespace=${space}`);
    await shown(page.locator(`[data-worker="${worker}"]`).getByText("1 of 4"));
  }],
  ["the log of an activity appears while it runs, by attempt", async ({ page, base, api, axe, shot }) => {
    const { run_id } = await api("/api/sojourn/activities", {
      activity_type: "charge", workflow_id: "log", task_queue: queue, retry_policy: { max_attempts: 2, backoff_seconds: [1] }, start_to_close_timeout: 600,
    }, space);
    let t = await poll(api, "activity-tasks");
    let part = 0;
    const log = (lines) =>
      api("/api/worker/tasks/logs", { items: [{ task_id: t.task_id, lease_owner: worker, activity_attempt_id: t.activity_attempt_id, part: ++part, lines }] }, space);
    const line = (text, level = "info", source = "log") => ({ at: "2026-11-21T12:00:00Z", level, source, text });
    await log([line("opens the till")]);
    await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
    const lines = page.getByRole("log", { name: "Log lines of charge" });
    await shown(lines.getByText("opens the till"));
    await log([line("<b>counts</b>\nthe coins", "warn"), line("clink", "info", "stdout"), { text: "", left_out: 3 }]);
    await shown(lines.getByText("3 lines dropped"));
    await shown(lines.getByText("<b>counts</b>"));
    await page.locator("[data-log]").getByRole("button", { name: "Copy log" }).focus();
    assert.deepEqual(await axe(), []);
    await shot("log", true);
    await api(`/api/worker/activity-tasks/${t.task_id}/fail`, { lease_owner: worker, activity_attempt_id: t.activity_attempt_id, failure: { message: "the till sticks", type: "Stuck" } }, space);
    t = await poll(api, "activity-tasks");
    part = 0;
    await log(Array.from({ length: 40 }, (_, i) => line(`coin ${i + 1}`)));
    await shown(lines.getByText("coin 40", { exact: true }));
    assert.equal(await lines.getByText("opens the till").count(), 0, "lines of another attempt");
    assert.ok(await lines.evaluate((e) => e.scrollHeight - e.scrollTop - e.clientHeight < 24), "the last line is not in sight");
    await page.getByLabel("Attempt").selectOption("1");
    await shown(lines.getByText("opens the till"));
    await page.getByLabel("Attempt").selectOption("last");
    await lines.evaluate((e) => e.scrollTo(0, 0));
    await log([line("the till is empty")]);
    await lines.getByText("the till is empty").waitFor({ state: "attached" });
    assert.equal(await lines.evaluate((e) => e.scrollTop), 0, "who read further up was moved");
    await api(`/api/worker/activity-tasks/${t.task_id}/complete`, { lease_owner: worker, activity_attempt_id: t.activity_attempt_id, result: null }, space);
    await page.getByRole("region", { name: "Log of charge" }).getByText("Live").waitFor({ state: "detached" });
    assert.deepEqual(await axe(), []);
    // The log of a completed activity is not polled.
    const asked = [];
    const note = (r) => r.url().includes("/logs") && asked.push(r.url());
    page.on("request", note);
    await page.waitForTimeout(2500);
    page.off("request", note);
    assert.deepEqual(asked, []);
  }],
  ["numbers are shown, copied and sent without rounding", async ({ page, base, api, refused, shot }) => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(`${base}/?namespace=${space}`);
    await page.getByRole("button", { name: "Start workflow" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Workflow type").fill("order");
    await dialog.getByLabel("Task queue").fill(queue);
    await dialog.getByLabel("Workflow ID").fill("exact");
    await dialog.getByLabel("Input").fill(`[{"id": ${number}, "share": 7.0}]`);
    await dialog.getByLabel("Memo").fill(`{"id": ${number}}`);
    await dialog.getByLabel("Search attributes").fill(`{"Id": -1234567890123456789}`);
    await dialog.getByRole("button", { name: "Start" }).click();
    await page.waitForURL("**/runs/**", { timeout: patience });
    for (const [name, text] of [["Input", number], ["Memo", number], ["Search attributes", "-1234567890123456789"]]) {
      await shown(page.getByRole("region", { name }).getByText(text));
      await page.getByRole("region", { name }).getByRole("button", { name: /^Copy / }).click();
      await until(`${name} on the clipboard`, async () => (await page.evaluate(() => navigator.clipboard.readText())).includes(text));
    }
    await page.getByRole("button", { name: "Signal", exact: true }).click();
    await dialog.getByLabel("Name").fill("paid");
    await dialog.getByLabel("Arguments").fill(number);
    await dialog.getByRole("button", { name: "Send" }).click();
    await shown(page.locator('[data-event="SignalReceived"]').getByText(`paid(${number})`));
    await page.getByRole("button", { name: "Update", exact: true }).click();
    await dialog.getByLabel("Name").fill("set");
    await dialog.getByLabel("Arguments").fill(number);
    await dialog.getByRole("button", { name: "Send" }).click();
    await shown(page.getByText(`set(${number})`));
    await page.keyboard.press("Escape");
    await shot("exact", true);
    await page.getByRole("button", { name: "Query", exact: true }).click();
    await dialog.getByLabel("Name").fill("state");
    const asked = poll(api, "query-tasks");
    await dialog.getByRole("button", { name: "Run query" }).click();
    const q = await asked;
    await page.request.post(`${base}/api/worker/query-tasks/${q.query_task_id}/complete`, {
      headers: { "X-Namespace": space, "X-Durable-Workflow-Protocol-Version": "1.0", "Content-Type": "application/json" },
      data: `{"lease_owner": "${worker}", "query_task_attempt": ${q.query_task_attempt}, "result": ${number}}`,
    });
    await until("the answer", async () => (await dialog.locator("[data-answer] pre").innerText()) === number);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Query", exact: true }).click();
    await dialog.getByLabel("Name").fill("state");
    await dialog.getByLabel("Arguments").fill("[1e400]");
    refused("/query/state"); // on purpose
    await dialog.getByRole("button", { name: "Run query" }).click();
    await shown(dialog.getByRole("alert").getByText("input.0"));
  }],
];
