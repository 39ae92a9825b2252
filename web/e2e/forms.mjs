// Forms for namespaces, search attributes, schedules and runs. Errors of the app are shown at their fields.
import assert from "node:assert/strict";
import { patience, shown, until } from "./checks.mjs";

const space = "made-by-hand";
const queue = "seen by hand"; // doing.mjs has a worker there

const dialog = (page) => page.getByRole("dialog");
const gone = (page) => dialog(page).waitFor({ state: "detached", timeout: patience });
const field = (page, label) => dialog(page).getByLabel(label, { exact: true });
const fault = (page, label) => dialog(page).locator(`[data-fault="${label}"]`);
const focused = (page, label) => until(`the focus on ${label}`, async () => field(page, label).evaluate((e) => e === document.activeElement));

export const forms = [
  ["a namespace is created and edited, and errors are shown at their fields", async ({ page, base, api, axe, refused, shot }) => {
    refused("/api/namespaces");
    await page.goto(`${base}/namespaces`);
    await page.getByRole("button", { name: "New namespace" }).click();
    await field(page, "Name").fill("Not Lower");
    await page.keyboard.press("Enter");
    await shown(fault(page, "Name").getByText("lower-case"));
    await focused(page, "Name");
    await field(page, "Name").fill("default");
    await page.keyboard.press("Enter");
    await shown(fault(page, "Name").getByText("already exists"));
    await field(page, "Name").fill(space);
    await field(page, "Retention of closed runs (days)").fill("400");
    await page.keyboard.press("Enter");
    await shown(fault(page, "Retention of closed runs (days)").getByText("from 1 to 365"));
    assert.deepEqual(await axe(), []);
    await shot("namespace-new");
    await field(page, "Retention of closed runs (days)").fill("14");
    await page.keyboard.press("Enter");
    await gone(page);
    const card = page.locator(`[data-namespace="${space}"]`);
    await shown(card.getByText("14 days"));
    await api(`/api/namespaces/${space}`, { quotas: { open_runs: 5000 } }, undefined, "PUT");
    await page.reload();
    await shown(card.locator("[data-quotas]").getByText("0 of 5,000"));
    await shown(card.locator("[data-quotas]").getByText("0 of 100,000"));
    await card.getByRole("button", { name: "Edit" }).click();
    await field(page, "Description").fill("tried in the browser");
    await page.keyboard.press("Enter");
    await gone(page);
    await shown(card.getByText("tried in the browser"));
    assert.equal((await api(`/api/namespaces/${space}`)).retention_days, 14, "what was not changed stays");
  }],
  ["a search attribute is registered, and a duplicate shows an error", async ({ page, api, refused, shot }) => {
    refused("/api/search-attributes");
    const card = page.locator(`[data-namespace="${space}"]`);
    const register = async () => {
      await card.getByRole("button", { name: "Register" }).click();
      await field(page, "Name").fill("Region");
      await field(page, "Type").selectOption("keyword_list");
      await dialog(page).getByRole("button", { name: "Register" }).click();
    };
    await register();
    await gone(page);
    await shown(card.getByText("Region", { exact: true }));
    assert.equal((await api("/api/search-attributes", undefined, space)).custom_attributes.Region, "keyword_list");
    await register();
    await shown(fault(page, "Name").getByText("is already registered"));
    await shot("attribute");
    await page.keyboard.press("Escape");
    await gone(page);
  }],
  ["a schedule is created, and the form shows its upcoming times", async ({ page, base, axe, refused, shot }) => {
    refused("/api/sojourn/schedule-times");
    refused("/api/schedules");
    await page.goto(`${base}/schedules`);
    await page.getByRole("button", { name: "New schedule" }).click();
    const next = dialog(page).locator("[data-next-fires]");
    await shown(next.getByText("only when triggered"));
    await field(page, "Schedule ID").fill("weekly");
    await field(page, "Cron expressions (one per line)").fill("@daily\n0 25 * * 1");
    await shown(fault(page, "Cron expressions (one per line)").getByText("line 2:"));
    await shown(next.getByText("invalid cron expression"));
    await field(page, "Cron expressions (one per line)").fill("30 9 * * 1");
    assert.equal(await field(page, "Time zone of cron expressions").inputValue(), "Asia/Calcutta", "the reader's zone");
    await field(page, "Time zone of cron expressions").fill("Asia/Kolkata");
    await until("five times", async () => (await next.locator("li").count()) === 5);
    assert.match(await next.locator("li").first().innerText(), /09:30:00/);
    await field(page, "Input (JSON: array of arguments, or one value)").fill("{");
    await dialog(page).getByRole("button", { name: "Create schedule" }).click();
    await shown(fault(page, "Workflow type").getByText("is required"));
    await focused(page, "Workflow type");
    await field(page, "Workflow type").fill("report");
    await dialog(page).getByRole("button", { name: "Create schedule" }).click();
    await shown(fault(page, "Input (JSON: array of arguments, or one value)").getByText("is not valid JSON"));
    await focused(page, "Input (JSON: array of arguments, or one value)");
    assert.deepEqual(await axe(), []);
    await shot("schedule-new");
    await field(page, "Input (JSON: array of arguments, or one value)").fill('{"customer": "all"}');
    await field(page, "Task queue").fill(queue);
    await field(page, "Overlap policy").selectOption("allow_all");
    await dialog(page).getByRole("button", { name: "Create schedule" }).click();
    await gone(page);
    await page.waitForURL(`${base}/schedules/weekly`, { timeout: patience });
    await shown(page.getByRole("region", { name: "Input" }).getByText('"customer"')); // the list has none, and is gone
    await shown(page.getByText("30 9 * * 1 (Asia/Kolkata)"));
  }],
  ["a schedule is edited, and other members keep their values", async ({ page, api, shot }) => {
    const before = await api("/api/schedules/weekly");
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await field(page, "Cron expressions (one per line)").fill("");
    await field(page, "Intervals (one per line)").fill("1h 30m + 5m");
    await field(page, "Note").fill("every now and then");
    await shot("schedule-change");
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await gone(page);
    await shown(page.getByText("every 1h 30m, offset 5m"));
    const after = await api("/api/schedules/weekly");
    assert.deepEqual([after.action, after.overlap_policy, after.note], [before.action, "allow_all", "every now and then"]);
  }],
  ["a backfill runs past times, and a long history is paged", async ({ page, api, axe, shot }) => {
    await page.getByRole("button", { name: "Backfill" }).click();
    await field(page, "From (GMT+5:30)").fill("2026-01-05T00:00:00");
    await dialog(page).getByRole("button", { name: "Start backfill" }).click();
    await shown(fault(page, "To (GMT+5:30)"));
    await field(page, "To (GMT+5:30)").fill("2026-01-08T12:00:00");
    await dialog(page).getByRole("button", { name: "Start backfill" }).click();
    const came = dialog(page).locator("[data-backfilled]");
    await shown(came);
    assert.equal(await came.getAttribute("data-backfilled"), "56");
    await shown(came.getByText(/^56 triggered$/));
    assert.deepEqual(await axe(), []);
    await shot("schedule-backfill");
    await page.keyboard.press("Escape");
    await gone(page);
    const did = page.locator("[data-schedule-event]");
    const events = (await api("/api/schedules/weekly/history?limit=1000")).events.length;
    await until("the newest", async () => (await did.count()) >= 50);
    for (let n = 0; n < 5 && (await page.locator("[data-older]").count()) > 0; n++) {
      const before = await did.count();
      await page.locator("[data-older]").click();
      await until("older ones", async () => (await did.count()) > before);
    }
    await until("all of them", async () => (await did.count()) === events);
    assert.equal(await did.last().getAttribute("data-schedule-event"), "ScheduleCreated");
  }],
  ["a schedule is deleted after a confirmation", async ({ page, base, shot }) => {
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await shot("schedule-delete");
    await dialog(page).getByRole("button", { name: "Delete schedule" }).click();
    await page.waitForURL(`${base}/schedules`, { timeout: patience });
    await until("it is gone", async () => (await page.locator('[data-schedule="weekly"]').count()) === 0);
  }],
  ["a workflow is started, and a used workflow ID shows an error at its field", async ({ page, base, api, axe, refused, shot }) => {
    refused("/api/workflows");
    await page.goto(base);
    await page.getByRole("button", { name: "Start workflow" }).click();
    await field(page, "Workflow type").fill("order");
    await until("the queue its workers serve", async () => (await field(page, "Task queue").inputValue()) === queue);
    await field(page, "Workflow ID").fill("order-1");
    await field(page, "Input (JSON: array of arguments, or one value)").fill('{"order": 7}');
    await field(page, "Memo (JSON object)").fill('{"who": "me"}');
    await field(page, "Search attributes (JSON object)").fill('{"Amount": "many"}');
    const go = () => dialog(page).getByRole("button", { name: "Start" }).click();
    await go();
    await shown(fault(page, "Search attributes (JSON object)"));
    await field(page, "Search attributes (JSON object)").fill('{"Amount": 7}');
    await go();
    await shown(fault(page, "Workflow ID").getByText(/(is|was) used by/));
    assert.deepEqual(await axe(), []);
    await shot("start");
    await field(page, "Workflow ID").fill("order-2");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/runs\//, { timeout: patience });
    await shown(page.getByRole("heading", { level: 1, name: "order" }));
    const run = await api(`/api/runs/${page.url().split("/").at(-1)}`);
    assert.deepEqual([run.workflow_id, run.input, run.memo, run.search_attributes.Amount], ["order-2", [{ order: 7 }], { who: "me" }, 7]);
  }],
  ["an activity run is started, marked in the list, and found by its kind", async ({ page, base, api, axe, shot }) => {
    await page.goto(base);
    await page.getByRole("button", { name: "Start workflow" }).click();
    await field(page, "Kind").selectOption("activity");
    const go = () => dialog(page).getByRole("button", { name: "Start" }).click();
    await go();
    await shown(fault(page, "Activity type").getByText("is required"));
    await field(page, "Activity type").fill("charge");
    await field(page, "Task queue").fill(queue);
    await field(page, "Workflow ID").fill("charge-1");
    await field(page, "Input (JSON: array of arguments, or one value)").fill('[9007199254740993, {"order": 7}]');
    await field(page, "Retry backoff (s)").fill("1, 10");
    await go();
    await shown(fault(page, "Maximum attempts").getByText("is required"));
    await field(page, "Maximum attempts").fill("3");
    await field(page, "Start-to-close timeout (s)").fill("0");
    await go();
    await shown(fault(page, "Start-to-close timeout (s)").getByText("1 or more"));
    await field(page, "Start-to-close timeout (s)").fill("90");
    await field(page, "Start delay (s)").fill("10"); // the page shows the delay below, also on a busy machine
    assert.deepEqual(await axe(), []);
    await shot("start-activity");
    await go();
    await page.waitForURL(/\/runs\//, { timeout: patience });
    await shown(page.getByRole("heading", { level: 1, name: "charge" }));
    await shown(page.locator('main [data-kind="activity"]'));
    await shown(page.getByRole("region", { name: "Pending work" }).getByText("start delayed until").first());
    const signal = page.getByRole("button", { name: "Signal", exact: true });
    assert.match(await signal.getAttribute("title"), /an activity run has no workflow code/);
    assert.deepEqual(await axe(), []);
    const { task } = await api("/api/worker/activity-tasks/poll", { worker_id: "hand", task_queue: queue, timeout_seconds: 60 });
    assert.equal(task.activity_type, "charge");
    const { max_attempts, backoff_seconds } = task.retry_policy;
    assert.deepEqual([max_attempts, backoff_seconds], [3, [1, 10]]);
    assert.ok((Date.parse(task.deadlines.start_to_close) - Date.now()) / 1000 > 60, `it has until ${task.deadlines.start_to_close}`);
    await shown(page.getByRole("region", { name: "Input" }).getByText("9007199254740993"));
    await api(`/api/worker/activity-tasks/${task.task_id}/complete`, { lease_owner: "hand", activity_attempt_id: task.activity_attempt_id, result: "paid" });
    await shown(page.locator('main [data-status="completed"]').first());
    await shown(page.getByRole("region", { name: "Result" }).getByText("paid"));
    await shot("activity-run", true);
    const rows = page.locator("tr[data-row]");
    await page.getByRole("navigation", { name: "Breadcrumb" }).getByRole("link", { name: "charge" }).click();
    await shown(page.locator('tr [data-kind="activity"]'));
    assert.equal(await rows.count(), 1);
    await shot("activities");
    await page.getByLabel("Kind", { exact: true }).selectOption("workflow");
    await until("only workflows", async () => (await rows.count()) > 1 && (await page.locator('tr [data-kind="activity"]').count()) === 0);
    assert.deepEqual(await axe(), []);
    assert.equal((await api("/api/workflows?kind=activity")).workflow_count, 1);
  }],
  ["a schedule starts an activity run", async ({ page, base, api, axe, shot }) => {
    await page.goto(`${base}/schedules`);
    await page.getByRole("button", { name: "New schedule" }).click();
    await field(page, "Schedule ID").fill("warm");
    await field(page, "Intervals (one per line)").fill("1h");
    await field(page, "Kind").selectOption("activity");
    await dialog(page).getByRole("button", { name: "Create schedule" }).click();
    await shown(fault(page, "Activity type").getByText("is required"));
    await field(page, "Activity type").fill("load");
    await field(page, "Session ID").fill("gpu");
    await field(page, "Retry backoff (s)").fill("1, 10");
    await dialog(page).getByRole("button", { name: "Create schedule" }).click();
    await shown(fault(page, "Maximum attempts").getByText("is required"));
    await field(page, "Maximum attempts").fill("3");
    await field(page, "Task queue").fill(queue);
    assert.deepEqual(await axe(), []);
    await shot("schedule-activity");
    await dialog(page).getByRole("button", { name: "Create schedule" }).click();
    await page.waitForURL(`${base}/schedules/warm`, { timeout: patience });
    await shown(page.getByText("activity load"));
    const fired = await api("/api/schedules/warm/trigger", {});
    const run = await api(`/api/workflows/${fired.workflow_id}`);
    assert.deepEqual([run.kind, run.workflow_type, run.pending.activities[0].session_id], ["activity", "load", "gpu"]);
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await field(page, "Note").fill("keeps it warm");
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await gone(page);
    const action = (await api("/api/schedules/warm")).action;
    assert.deepEqual([action.activity_type, action.retry_policy.max_attempts, action.retry_policy.backoff_seconds, action.session_id], ["load", 3, [1, 10], "gpu"]);
  }],
  ["forms fit a narrow screen in dark mode, and a viewer cannot open them", async ({ page, base, shot }) => {
    await page.setViewportSize({ width: 380, height: 844 });
    await page.emulateMedia({ colorScheme: "dark" });
    for (const [path, name, shot_] of [["/schedules", "New schedule", "schedule-new"], ["/", "Start workflow", "start"], ["/namespaces", "New namespace", "namespace-new"]]) {
      await page.goto(base + path);
      await page.getByRole("button", { name }).click();
      await shown(dialog(page));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(over <= 0, `${path} is ${over} px too wide`);
      await shot(`${shot_}-narrow-dark`);
      await page.keyboard.press("Escape");
      await gone(page);
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.route("**/api/sojourn/me", (r) => r.fulfill({ json: { identity: "guest", roles: ["viewer"], method: "none" } }));
    for (const [path, name, who] of [["/schedules", "New schedule", "operator"], ["/", "Start workflow", "writer"], ["/namespaces", "New namespace", "admin"]]) {
      await page.goto(base + path);
      const button = page.getByRole("button", { name });
      await shown(button);
      assert.equal(await button.getAttribute("title"), `Requires the role ${who}; you have viewer.`);
      await button.focus();
      await page.keyboard.press("Enter");
      assert.equal(await dialog(page).count(), 0);
    }
    await page.unroute("**/api/sojourn/me");
  }],
];
