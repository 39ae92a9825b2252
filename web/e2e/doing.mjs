// Actions on runs, queues and schedules against a real app. This file is the worker and polls tasks itself.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { patience, shown, until } from "./checks.mjs";

const queue = "seen by hand";
const worker = "hand";
let order; // the run that the checks are about

const dialog = (page) => page.getByRole("dialog");
const gone = (locator) => locator.waitFor({ state: "detached", timeout: patience });

async function decide(api, commands) {
  const { task } = await api("/api/worker/workflow-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 60 });
  await api(`/api/worker/workflow-tasks/${task.task_id}/complete`, { lease_owner: worker, workflow_task_attempt: task.workflow_task_attempt, commands });
  return task;
}

export const doing = [
  ["events of an open run are streamed, with its pending work", async ({ page, base, api, shot }) => {
    await api("/api/worker/register", { worker_id: worker, task_queue: queue, runtime: "hand", build_id: "b1", supported_workflow_types: ["order"], supported_activity_types: ["charge"], capabilities: ["query_tasks"] });
    keepAlive(api, worker);
    const input = [{ lines: Array.from({ length: 30 }, (_, n) => ({ n, sku: `A-${n}` })) }];
    order = (await api("/api/workflows", { workflow_id: "order-1", workflow_type: "order", task_queue: queue, input, memo: { who: "Ädä" }, search_attributes: { Amount: 150 } })).run_id;
    await page.goto(`${base}/runs/${order}`);
    await shown(page.locator('[data-following="live"]'));
    await decide(api, [
      { type: "schedule_activity", activity_type: "print" },
      { type: "start_child_workflow", workflow_type: "bill", task_queue: queue },
      { type: "open_signal_wait", signal_name: "go" },
    ]);
    await shown(page.locator('[data-event="ActivityScheduled"]'));
    await shown(page.locator('[data-lane="child"]'));
    const open = page.getByRole("region", { name: "Pending work" });
    await shown(open.getByText('has registered activity "print"').first());
    await shown(open.getByText("is open"));
    const needing = open.locator("li[data-needs]"); // in amber, as everywhere: red is for what failed
    assert.equal(await needing.count(), 1);
    await shown(needing.getByText("print"));
    const edge = await open.evaluate((e) => getComputedStyle(e).borderLeftColor);
    assert.equal(await needing.locator("span").first().evaluate((e) => getComputedStyle(e).color), edge);
    for (const [name, text] of [["Memo", "Ädä"], ["Search attributes", "150"]]) await shown(page.getByRole("region", { name }).getByText(text));
    const folded = page.getByRole("region", { name: "Input" });
    assert.ok(!(await folded.locator("pre").innerText()).includes("A-29"), "a large value is folded");
    await folded.getByRole("button", { name: /^Show all/ }).click();
    assert.deepEqual(JSON.parse(await folded.locator("pre").innerText()), input);
    await shot("order", true);
  }],
  ["without an event stream the history is reloaded on changes", async ({ page, base, api }) => {
    await page.route("**/history/stream*", (r) => r.fulfill({ status: 200, contentType: "text/html", body: "a proxy's page" }));
    await page.goto(`${base}/runs/${order}`);
    await shown(page.locator('[data-following="reading"]'));
    await api("/api/workflows/order-1/signal/note", { input: ["meanwhile"] });
    await shown(page.locator('[data-event="SignalReceived"]').getByText("meanwhile"));
    await page.unroute("**/history/stream*");
    await shown(page.locator('[data-following="live"]'));
  }],
  ["a query is answered, a signal is sent, and invalid arguments show an error", async ({ page, api, shot }) => {
    const button = (name) => page.getByRole("button", { name, exact: true });
    await button("Query").click();
    await dialog(page).getByLabel("Name").fill("state");
    await dialog(page).getByLabel("Arguments").fill("{");
    await dialog(page).getByRole("button", { name: "Run query" }).click();
    await shown(dialog(page).getByRole("alert").getByText("not valid JSON"));
    await dialog(page).getByLabel("Arguments").fill('["deep"]');
    const polled = api("/api/worker/query-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 60 });
    await dialog(page).getByRole("button", { name: "Run query" }).click();
    const { task } = await polled;
    await api(`/api/worker/query-tasks/${task.query_task_id}/complete`, {
      lease_owner: worker, query_task_attempt: task.query_task_attempt, result: { at: 2 },
    });
    await until("the answer", async () => (await dialog(page).locator("[data-answer] pre").innerText()) === '{ "at": 2 }');
    await shot("query");
    await page.keyboard.press("Escape");
    await gone(dialog(page));
    await button("Signal").click();
    await until("the signal it waits for", async () => (await dialog(page).getByLabel("Name").inputValue()) === "go");
    await dialog(page).getByLabel("Arguments").fill("7");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await gone(dialog(page));
    await shown(page.locator('[data-event="SignalReceived"]').getByText("go(7)"));
  }],
  ["a viewer sees disabled buttons with the required role", async ({ page, base }) => {
    await page.route("**/api/sojourn/me", (r) => r.fulfill({ json: { identity: "guest", roles: ["viewer"], method: "none" } }));
    try {
      await page.goto(`${base}/runs/${order}`);
      const button = page.getByRole("button", { name: "Terminate", exact: true });
      await shown(button);
      await until("it is known who looks", async () => (await button.getAttribute("aria-disabled")) === "true");
      assert.match(await button.getAttribute("title"), /Requires the role writer; you have viewer/);
      await button.focus();
      await page.keyboard.press("Enter");
      assert.equal(await dialog(page).count(), 0, "nothing opens");
    } finally {
      await page.unroute("**/api/sojourn/me");
    }
  }],
  ["an invalid filter shows the position of its error, and filters are kept in the URL and in the browser history", async ({ page, base, shot }) => {
    await page.goto(`${base}/?status=running`);
    const field = page.locator("[data-search]");
    await field.click();
    await page.keyboard.type("Amount >> 100");
    await shown(page.getByText("a value is expected, not >"));
    await shown(page.locator('[data-filter-at="8"] mark'));
    await until("the field is marked", async () => (await field.getAttribute("aria-invalid")) === "true");
    await shot("filter-wrong");
    await field.fill("Amuont > 100");
    await page.keyboard.press("Enter");
    await shown(page.locator("[data-filter-warning]").getByText("no run carries the search attribute Amuont"));
    await until("the field names its warning", async () => (await field.getAttribute("aria-describedby")) === "filter-warning");
    await shot("filter-doubted");
    await field.fill("Amount >= 100");
    await page.keyboard.press("Enter");
    await shown(page.locator(`[data-run="${order}"]`));
    await until("the order alone", async () => (await page.locator("[data-run]").count()) === 1); // the list before stays until the answer
    await shot("filter");
    await page.reload();
    await shown(page.locator(`[data-run="${order}"]`));
    await until("the address keeps it", async () => (await field.inputValue()) === "Amount >= 100");
    await until("the order alone again", async () => (await page.locator("[data-run]").count()) === 1);
    await page.goBack();
    await page.waitForURL(`${base}/?status=running`, { timeout: patience });
    await until("the field is empty again", async () => (await field.inputValue()) === "");
  }],
  ["a queue shows why its tasks wait, and its limits and builds are changed", async ({ page, base, axe, shot }) => {
    await page.goto(`${base}/queues`);
    await page.locator(`[data-queue="${queue}"] a`).click();
    await shown(page.locator("[data-waiting]").getByText('has registered activity "print"'));
    await page.getByRole("button", { name: "Limits" }).click();
    const leased = dialog(page).getByLabel("Concurrent activities");
    await leased.fill("none");
    await page.keyboard.press("Enter");
    await shown(dialog(page).getByRole("alert").getByText("whole number"));
    await leased.fill("3");
    assert.deepEqual(await axe(), []);
    await shot("queue-budgets");
    await page.keyboard.press("Enter");
    await gone(dialog(page));
    await shown(page.getByRole("region", { name: "Activities" }).getByText("0 of 3"));
    const build = page.locator('[data-build="b1"]');
    for (const [verb, act, then] of [["Promote", "Promote build", "new runs"], ["Drain", "Drain build", "draining"], ["Resume", "Resume build", "active"]]) {
      await build.getByRole("button", { name: verb }).click();
      await dialog(page).getByRole("button", { name: act }).click();
      await gone(dialog(page));
      await shown(build.getByText(then, { exact: true }));
    }
    await shot("queue-turned", true);
  }],
  ["a warning shows that no live worker has the promoted build, and pinning is stopped on the page", async ({ page, base, api, axe, shot }) => {
    const on = "rolling out";
    const next = `2026.11.26-rc.1+sha.${"0123456789abcdef".repeat(3)}`;
    const register = (worker_id, build_id) => api("/api/worker/register", { worker_id, task_queue: on, runtime: "hand", build_id, supported_workflow_types: ["shipment"] });
    const decided = (verb, build_id) => api(`/api/task-queues/${encodeURIComponent(on)}/build-ids/${verb}`, { build_id });
    const begin = async (workflow_id) => (await api("/api/workflows", { workflow_id, workflow_type: "shipment", task_queue: on })).run_id;
    for (const [id, build] of [["rolled-old", "2026.11.24"], ["rolled-next", next], ["rolled-plain", undefined]]) {
      await register(id, build);
      keepAlive(api, id);
    }
    await decided("promote", "2026.11.24");
    const old = await begin("of the old build");
    await decided("promote", next);
    const fresh = await begin("of the next build");
    await decided("drain", "2026.11.24");
    await page.goto(`${base}/queues/${encodeURIComponent(on)}`);
    const why = (run) => page.locator("[data-waiting] li", { has: page.locator(`a[href*="${run}"]`) });
    await shown(why(old).getByText("build 2026.11.24 of worker rolled-old is drained")); // and not that others have another build
    await shown(why(fresh).getByText("ready; worker rolled-next"));
    assert.equal(await page.locator("[data-unserved-build]").count(), 0);
    await shot("builds-rolling", true);
    await api("/api/workers/rolled-next", undefined, "default", "DELETE");
    const warning = page.locator("[data-unserved-build]");
    await shown(warning.getByText(`New runs are pinned to build ${next}, which no live worker has`));
    await shown(why(fresh).getByText(`pinned to build ${next}`)); // and not that a build is drained which it may not have anyway
    assert.deepEqual(await axe(), []);
    // On a phone the state of each build and its buttons are in sight, however long its id.
    await page.setViewportSize({ width: 390, height: 844 });
    const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(over <= 0, `${over} px too wide`);
    for (const name of ["Promote", "Drain", "Resume"]) {
      for (const button of await page.getByRole("region", { name: "Builds" }).getByRole("button", { name, exact: true }).all()) {
        const { x, width } = await button.boundingBox();
        assert.ok(x + width <= 390, `${name} ends at ${x + width} of 390`);
      }
    }
    await shot("builds-narrow", true);
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.locator('[data-build=""]').getByRole("button", { name: "Promote" }).click();
    await shown(dialog(page).getByText("go to any worker of the queue"));
    await dialog(page).getByRole("button", { name: "Stop pinning" }).click();
    await warning.waitFor({ state: "detached", timeout: patience });
    await shown(page.getByText("New runs: any build"));
  }],
  ["a schedule is triggered, paused with a note, and resumed", async ({ page, base, api, axe, shot }) => {
    await api("/api/schedules", {
      schedule_id: "nightly", spec: { cron_expressions: ["0 3 * * *"], timezone: "Europe/Berlin" }, action: { workflow_type: "report", task_queue: queue, input: ["all"] },
    });
    await page.goto(`${base}/schedules`);
    await shown(page.locator('[data-schedule="nightly"]').getByRole("cell", { name: "0 3 * * * (Europe/Berlin)", exact: true }));
    assert.deepEqual(await axe(), []);
    await shot("schedules");
    await page.getByRole("link", { name: "nightly" }).click();
    const turn = async (verb, act, note) => {
      await page.getByRole("button", { name: verb, exact: true }).click();
      if (note) await dialog(page).getByLabel("Note").fill(note);
      await dialog(page).getByRole("button", { name: act }).click();
      await gone(dialog(page));
    };
    await turn("Trigger", "Trigger run");
    await shown(page.locator("[data-came]").getByText("triggered: nightly"));
    await shown(page.locator('[data-schedule-event="ScheduleTriggered"]').getByRole("link"));
    await turn("Pause", "Pause schedule", "the printer is away");
    await shown(page.locator('main [data-status="paused"]'));
    await shown(page.getByText("the printer is away").first());
    assert.deepEqual(await axe(), []);
    await shot("schedule", true);
    await turn("Resume", "Resume schedule");
    await shown(page.locator('main span[data-status="active"]'));
  }],
  ["a namespace shows its search attributes", async ({ page, base, api, axe, shot }) => {
    await api("/api/search-attributes", { name: "Amount", type: "double" });
    await page.goto(`${base}/namespaces`);
    await shown(page.locator('[data-namespace="default"]').getByText("Amount", { exact: true }));
    assert.deepEqual(await axe(), []);
    await shot("namespaces");
  }],
  ["pages with data are not wider than a narrow screen", async ({ page, base, shot }) => {
    await page.setViewportSize({ width: 390, height: 844 });
    for (const [name, path] of [["order", `/runs/${order}`], ["queue", `/queues/${encodeURIComponent(queue)}`], ["schedule", "/schedules/nightly"], ["schedules", "/schedules"], ["queues", "/queues"], ["namespaces", "/namespaces"]]) {
      await page.goto(base + path);
      await shown(page.getByRole("heading", { level: 1 }));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(over <= 0, `${path} is ${over} px too wide`);
      // A table that has to be scrolled sideways hides times, reasons and buttons on a phone.
      const cut = await page.evaluate(() => [...document.querySelectorAll("main .card")].filter((c) => c.querySelector("table") && c.scrollWidth > c.clientWidth).length);
      assert.equal(cut, 0, `${path} has tables that are cut`);
      await shot(`${name}-narrow`, true);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  }],
  ["a failed run is redriven after a confirmation, and the new run opens", async ({ page, base, api, shot }) => {
    const own = { queue: "failing by hand", worker: "failing hand" };
    await api("/api/worker/register", { worker_id: own.worker, task_queue: own.queue, runtime: "hand", supported_workflow_types: ["fails"] });
    keepAlive(api, own.worker);
    const failed = (await api("/api/workflows", { workflow_id: "fails-1", workflow_type: "fails", task_queue: own.queue })).run_id;
    const { task } = await api("/api/worker/workflow-tasks/poll", { worker_id: own.worker, task_queue: own.queue, timeout_seconds: 60 });
    await api(`/api/worker/workflow-tasks/${task.task_id}/complete`, {
      lease_owner: own.worker, workflow_task_attempt: task.workflow_task_attempt, commands: [{ type: "fail_workflow", message: "out of stock" }],
    });
    await page.goto(`${base}/runs/${failed}`);
    await page.getByRole("button", { name: "Redrive", exact: true }).click();
    await shown(dialog(page).getByText("Redrive this run?"));
    await shot("redrive");
    await dialog(page).getByRole("button", { name: "Redrive run" }).click();
    await page.waitForURL((u) => u.pathname.includes("/runs/") && !u.pathname.includes(failed), { timeout: patience });
    await gone(dialog(page));
    await page.getByRole("button", { name: "Terminate", exact: true }).click(); // the new run is open
    await dialog(page).getByRole("button", { name: "Terminate run" }).click();
    await gone(dialog(page));
    await page.goto(`${base}/runs/${failed}`);
    const again = page.getByRole("button", { name: "Redrive", exact: true });
    await until("the failed run cannot be redriven again", async () => (await again.getAttribute("aria-disabled")) === "true");
  }],
];
