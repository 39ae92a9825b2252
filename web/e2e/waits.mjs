// Reasons of waits on the pages of runs, queues, workers and sessions. This file is the workers.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { patience, shown, until } from "./checks.mjs";

const space = "waiting-room";
const queue = "desk";
const worker = "clerk";

const task = async (api, kind, poll = {}) => (await api(`/api/worker/${kind}/poll`, { worker_id: worker, task_queue: queue, timeout_seconds: 30, ...poll }, space)).task;

export const waiting = [
  ["the list of runs shows why each open run waits", async ({ page, base, api, axe, shot }) => {
    await api("/api/namespaces", { name: space });
    const start = (workflow_id, task_queue = queue) => api("/api/workflows", { workflow_id, workflow_type: "order", task_queue }, space);
    const register = (worker_id, more) =>
      api("/api/worker/register", {
        worker_id, task_queue: queue, runtime: "hand", build_id: "b1", supported_workflow_types: ["order"], supported_activity_types: ["charge"],
        max_concurrent_worker_sessions: 2, capabilities: ["worker_sessions"], ...more,
      }, space);
    await register("teller", { task_queue: "counter", max_concurrent_worker_sessions: 1 }); // it sends no heartbeats: see below
    await api("/api/worker/sessions", { worker_id: "teller", session_id: "till", ttl_seconds: 3600, lease_seconds: 3600 }, space);
    await register(worker);
    keepAlive(api, worker, space);
    const decide = async (workflow_id, commands) => {
      await start(workflow_id);
      const t = await task(api, "workflow-tasks");
      await api(`/api/worker/workflow-tasks/${t.task_id}/complete`, { lease_owner: worker, workflow_task_attempt: t.workflow_task_attempt, commands }, space);
    };
    await decide("signal", [{ type: "open_signal_wait", signal_name: "go" }]);
    await decide("timer", [{ type: "start_timer", delay_seconds: 3600 }]);
    await decide("type", [{ type: "schedule_activity", activity_type: "print" }]);
    await decide("budget", [{ type: "schedule_activity", activity_type: "charge" }, { type: "schedule_activity", activity_type: "charge" }]);
    await start("nobody", "deserted");
    await api("/api/workflows", { workflow_id: "later", workflow_type: "order", task_queue: queue, start_delay_seconds: 7200 }, space);
    await page.goto(`${base}/?namespace=${space}`);
    const row = (id) => page.locator("tr", { has: page.getByText(id, { exact: true }) }).locator("[data-waits]");
    for (const [id, text, kind] of [
      ["signal", 'waiting for signal "go"', "open"],
      ["type", 'has registered activity "print"', "stuck"],
      ["nobody", 'no live worker is polling queue "deserted"', "stuck"],
      ["later", "start delayed until", "open"],
    ]) {
      await shown(row(id).getByText(text));
      await until(`${id} is ${kind}`, async () => (await row(id).getAttribute("data-waits")) === kind);
    }
    // The time in the text is in the zone of this browser, with the remaining time.
    const from = row("later").locator("time");
    const at = new Date(await from.getAttribute("datetime"));
    const clock = at.toLocaleTimeString("en-GB", { timeZone: "Asia/Kolkata" });
    await shown(from.getByText(`${clock} (in 1h)`));
    assert.deepEqual(await axe(), []);
    await shot("waits-runs");
    for (const [id, text] of [["timer", "fires"], ["nobody", "no live worker is polling"]]) { // also on its page, and once
      await page.locator("tr", { has: page.getByText(id, { exact: true }) }).locator("[data-run]").click();
      const open = page.getByRole("region", { name: "Pending work" });
      await shown(open.getByText(text).first());
      assert.equal((await open.innerText()).split(text).length, 2, await open.innerText());
      await page.goBack();
    }
  }],
  ["a reached limit is shown in the list of queues and at the worker", async ({ page, base, api, axe, shot }) => {
    await api(`/api/task-queues/${queue}/limits`, { activity_tasks: { max_active_leases: 1 } }, space, "PUT");
    assert.ok(await task(api, "activity-tasks"), "the one that the budget allows");
    await page.goto(`${base}/queues?namespace=${space}`);
    await shown(page.locator(`[data-queue="${queue}"] [data-waits]`).getByText("concurrency limit (1 of 1"));
    const chip = page.locator(`[data-queue="${queue}"] [data-status="throttled"]`);
    assert.doesNotMatch(await chip.getAttribute("class"), /warn/, "a reached limit needs no operator");
    await shown(page.locator('[data-queue="deserted"] [data-waits]').getByText("No worker is polling"));
    assert.deepEqual(await axe(), []);
    await shot("waits-queues");
    await page.goto(`${base}/workers?namespace=${space}`);
    const card = page.locator(`[data-worker="${worker}"]`);
    await shown(card.locator('[data-why="less"]').getByText("concurrency limit (1 of 1"));
    await card.locator('[data-why="less"]').getByRole("link", { name: `Open queue ${queue}` }).first().click();
    await page.waitForURL(`${base}/queues/${queue}?namespace=${space}`, { timeout: patience });
    await shown(page.locator("[data-waiting]").getByText("1 of 1").first());
  }],
  ["a worker shows that its build is drained, and its sessions", async ({ page, base, api, axe, shot }) => {
    await api("/api/worker/sessions", { worker_id: worker, session_id: "drawer", ttl_seconds: 6000, lease_seconds: 6000 }, space);
    await api(`/api/task-queues/${queue}/build-ids/drain`, { build_id: "b1" }, space);
    await page.goto(`${base}/workers?namespace=${space}`);
    const card = page.locator(`[data-worker="${worker}"]`);
    await shown(card.locator('[data-why="stop"]').getByText(`Build b1 is drained on queue ${queue}`));
    await card.getByRole("button", { name: "Holds 1 session" }).click();
    await shown(card.getByRole("link", { name: "drawer" }));
    await shown(card.getByRole("group", { name: "Capabilities" }).getByText("worker_sessions"));
    assert.deepEqual(await axe(), []);
    await shot("waits-worker", true);
    await page.setViewportSize({ width: 380, height: 844 });
    await page.emulateMedia({ colorScheme: "dark" });
    for (const [name, path] of [["workers", "/workers"], ["runs", "/"], ["queues", "/queues"], ["sessions", "/sessions"], ["namespaces", "/namespaces"], ["continued", "/?status=continued"]]) {
      await page.goto(`${base}${path}${path.includes("?") ? "&" : "?"}namespace=${space}`);
      await shown(page.getByRole("heading", { level: 1 }));
      await page.locator('[aria-label="Loading"]').waitFor({ state: "detached", timeout: patience });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(over <= 0, `${path} is ${over} px too wide`);
      for (const tab of await page.locator("nav [aria-current]").all()) {
        const { x, width } = await tab.boundingBox();
        assert.ok(x >= 0 && x + width <= page.viewportSize().width, `${path}: the chosen ${await tab.innerText()} is out of view`);
      }
      await shot(`waits-${name}-narrow-dark`, true);
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: 900 });
    await api(`/api/task-queues/${queue}/build-ids/resume`, { build_id: "b1" }, space);
  }],
];

// The worker "teller" must send no heartbeats for a minute first, so other checks run before.
export const held = [
  ["an owned session, a full worker and a pinned build are named as the reason of a wait, with the time", async ({ page, base, api, axe, shot }) => {
    const register = async (worker_id, task_queue, build_id, more) => {
      await api("/api/worker/register", {
        worker_id, task_queue, runtime: "hand", build_id, supported_workflow_types: ["order"], supported_activity_types: ["charge"], max_concurrent_worker_sessions: 1,
        capabilities: ["worker_sessions"], ...more,
      }, space);
    };
    const begin = async (workflow_id, on, worker_id, session_id) => {
      const run = (await api("/api/workflows", { workflow_id, workflow_type: "order", task_queue: on }, space)).run_id;
      if (!worker_id) return run;
      const t = await task(api, "workflow-tasks", { worker_id, task_queue: on });
      const commands = [{ type: "schedule_activity", activity_type: "charge", session_id }];
      await api(`/api/worker/workflow-tasks/${t.task_id}/complete`, { lease_owner: worker_id, workflow_task_attempt: t.workflow_task_attempt, commands }, space);
      return run;
    };
    await register("guard", "vault", "v1");
    keepAlive(api, "guard", space);
    await api("/api/worker/sessions", { worker_id: "guard", session_id: "box-1", ttl_seconds: 900, lease_seconds: 900 }, space);
    const capped = await begin("capped", "vault", "guard", "box-2");
    const held = await begin("held", "vault", "guard", "till");
    await register("press-1", "press", "p1");
    await api("/api/task-queues/press/build-ids/promote", { build_id: "p1" }, space);
    const pinned = await begin("pinned", "press");
    await api("/api/workers/press-1", undefined, space, "DELETE");
    await register("press-2", "press", "p2");
    keepAlive(api, "press-2", space);
    const says = async (name, run, text) => {
      await page.goto(`${base}/runs/${run}?namespace=${space}`);
      await shown(page.getByText(text).first());
      assert.deepEqual(await axe(), []);
      await shot(`waits-${name}`, true);
    };
    await says("capped", capped, "worker guard holds its maximum number of sessions (1)");
    await says("pinned", pinned, "pinned to build p1, but worker press-2 has build p2");
    await until("the teller is stale", async () => (await api("/api/workers/teller", undefined, space)).status === "stale");
    await says("held", held, "session till is held by worker teller until");
    const at = page.locator("[data-why] time, [data-waits] time").or(page.getByText("is held by worker teller").locator("time")).first();
    const { lease_expires_at } = (await api("/api/worker-sessions/till", undefined, space)).session;
    assert.equal(Date.parse(await at.getAttribute("datetime")), Date.parse(lease_expires_at));
    // Remaining times are updated; this page has a mocked clock.
    const later = await page.context().newPage();
    await later.clock.install({ time: new Date() });
    await later.goto(`${base}/runs/${held}?namespace=${space}`);
    const left = later.getByText("is held by worker teller").locator("time").first();
    await shown(left);
    const first = await left.innerText();
    await later.clock.fastForward(120_000);
    await until("its time goes down", async () => (await left.innerText()) !== first);
    await later.close();
    await page.goto(`${base}/?namespace=${space}`);
    const row = page.locator("tr", { has: page.getByText("held", { exact: true }) }).locator("[data-waits]");
    await shown(row.getByText("session till is held by worker teller until"));
    await shot("waits-why");
  }],
];
