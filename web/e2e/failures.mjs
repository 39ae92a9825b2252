// What went wrong and how far things are, one glance away; and numbers that JavaScript would round. The worker is this file.
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
  ["a failed run tells its error in the list, and on its page where the code failed", async ({ page, base, api, axe, shot }) => {
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
    // Who follows a link before the search is applied goes where it leads, however long its page is on its way.
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
  ["a run whose code fails, and is tried again, says with what", async ({ page, base, api, axe, shot }) => {
    const { run_id } = await api("/api/workflows", { workflow_id: "broken", workflow_type: "order", task_queue: queue }, space);
    const t = await poll(api, "workflow-tasks");
    await api(`/api/worker/workflow-tasks/${t.task_id}/fail`, {
      lease_owner: worker, workflow_task_attempt: t.workflow_task_attempt, failure: { type: "WorkflowPanic", message: "out of flour", stack_trace: "panic: out of flour\nbake.go:7" },
    }, space);
    await page.goto(`${base}/runs/${run_id}?namespace=${space}`);
    await shown(page.locator("[data-failed]").getByText("its code failed: out of flour"));
    assert.deepEqual(await axe(), []);
    await shot("broken", true);
    await api(`/api/workflows/broken/terminate`, { reason: "enough" }, space);
  }],
  ["a heartbeat's progress is shown, and the slots it takes", async ({ page, base, api, axe, shot }) => {
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
  ["numbers are shown, copied and sent as they are written", async ({ page, base, api, refused, shot }) => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(`${base}/?namespace=${space}`);
    await page.getByRole("button", { name: "Start a run" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Workflow type").fill("order");
    await dialog.getByLabel("Task queue").fill(queue);
    await dialog.getByLabel("Workflow id").fill("exact");
    await dialog.getByLabel("Input").fill(`[{"id": ${number}, "share": 7.0}]`);
    await dialog.getByLabel("Memo").fill(`{"id": ${number}}`);
    await dialog.getByLabel("Search attributes").fill(`{"Id": -1234567890123456789}`);
    await dialog.getByRole("button", { name: "Start it" }).click();
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
    await dialog.getByRole("button", { name: "Ask" }).click();
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
    await dialog.getByRole("button", { name: "Ask" }).click();
    await shown(dialog.getByRole("alert").getByText("input.0"));
  }],
];
