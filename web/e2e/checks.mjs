// Page by page. The expected contents come from the API.
import assert from "node:assert/strict";

export const patience = 60_000;

/** Waits until fn gives something true, and gives that. */
export async function until(what, fn, ms = patience) {
  const end = Date.now() + ms;
  let last;
  for (;;) {
    try {
      const got = await fn();
      if (got) return got;
      last = undefined;
    } catch (err) {
      last = err;
    }
    if (Date.now() > end) throw new Error(`${what}: not within ${ms / 1000} s${last ? ` (${last.message})` : ""}`);
    await new Promise((r) => setTimeout(r, 100));
  }
}

export const shown = (locator) => locator.waitFor({ state: "visible", timeout: patience });

/** Presses g and a key until there is what they lead to: on a slow machine the second may come too late for the first. */
const go = (page, key, there) => until(`g ${key}`, async () => {
  await page.keyboard.press("g");
  await page.keyboard.press(key);
  return there.waitFor({ state: "visible", timeout: 2000 }).then(() => true);
});

/** The checks, as [name, async function(context)]. The context: page, base, run (its id), api(path, body to post), shot(name), axe(). */
export const checks = [
  ["a run page shows an open run", async ({ page, base, run, api, shot }) => {
    const view = await api(`/api/runs/${run}`);
    await page.goto(`${base}/runs/${run}`);
    await shown(page.getByRole("heading", { level: 1, name: view.workflow_type }));
    await shown(page.getByText(view.workflow_id, { exact: true }).first());
    await shown(page.getByText(run, { exact: true }).first());
    await shot("run-first");
  }],
  ["the page is connected to the app", async ({ page }) => {
    await shown(page.locator('[data-live="Live"]'));
  }],
  ["the close of a run appears without a reload", async ({ page, run, api }) => {
    const closed = await until("the run's end", async () => {
      const r = await api(`/api/runs/${run}`);
      return r.is_terminal && r;
    }, 120_000);
    const status = ["timed_out", "continued"].includes(closed.closed_reason) ? closed.closed_reason : closed.status;
    await shown(page.locator(`main [data-status="${status}"]`).first());
  }],
  ["the result of a run equals the API's", async ({ page, run, api, shot }) => {
    const view = await api(`/api/runs/${run}`);
    const pre = page.getByRole("region", { name: "Result" }).locator("pre");
    await shown(pre);
    const all = page.getByRole("region", { name: "Result" }).getByRole("button", { name: /^Show all/ });
    if (await all.count()) await all.click();
    assert.deepEqual(JSON.parse(await pre.innerText()), view.output);
    await shot("run", true);
  }],
  ["the timeline has a lane for every activity, timer and wait, with activities below their session", async ({ page, history }) => {
    const events = await history();
    const names = events.filter((e) => e.event_type === "ActivityScheduled").map((e) => e.payload.activity_type);
    const sessions = events.filter((e) => e.event_type === "SessionStarted").map((e) => e.payload.session_id);
    assert.ok(names.length > 0, "the run has no activity to look for");
    for (const name of names) await shown(page.locator('[data-lane="activity"]').getByRole("button", { name: new RegExp(`^activity ${name}, completed`) }).first());
    for (const id of sessions) await shown(page.locator('[data-lane="session"]').getByRole("button", { name: new RegExp(`^session ${id},`) }));
    const timers = events.filter((e) => e.event_type === "TimerScheduled" && !e.payload.timer_kind).length;
    const waits = events.filter((e) => e.event_type === "SignalWaitOpened").length;
    for (const [lane, n] of [["timer", timers], ["wait", waits]]) {
      await until(`${n} lanes of ${lane}`, async () => (await page.locator(`[data-lane="${lane}"]`).count()) === n);
    }
    if (sessions.length > 0) {
      const order = await page.locator("[data-lane]").evaluateAll((all) => all.map((e) => e.dataset.lane));
      const at = order.indexOf("session");
      assert.equal(order[at + 1], "activity", `what follows the session: ${order}`);
    }
  }],
  ["a lane shows its events, an event its payload", async ({ page, history }) => {
    const first = (await history()).find((e) => e.event_type === "ActivityCompleted");
    await page.locator('[data-lane="activity"] button').first().click();
    await shown(page.getByRole("button", { name: "Show all", exact: true }));
    const row = page.locator('[data-event="ActivityCompleted"]').first();
    await row.getByRole("button").first().click();
    const payload = JSON.parse(await row.locator("pre").innerText());
    assert.equal(payload.activity_type, first.payload.activity_type);
    assert.deepEqual(payload.result, first.decoded?.result, "the result, decoded");
    await page.getByRole("button", { name: "Show all", exact: true }).click();
    const last = (await history()).at(-1);
    await page.locator(`[data-event="${last.event_type}"]`).last().scrollIntoViewIfNeeded();
  }],
  ["the list of runs has the run and finds it by its workflow ID", async ({ page, base, run, api, shot }) => {
    const view = await api(`/api/runs/${run}`);
    await page.goto(base);
    await shown(page.locator(`[data-run="${run}"]`));
    await shot("runs");
    await page.locator("[data-search]").fill(view.workflow_id);
    await page.waitForURL((u) => u.searchParams.get("q") === view.workflow_id, { timeout: patience });
    await shown(page.locator(`[data-run="${run}"]`));
    await page.locator("[data-search]").fill("no-run-has-this-id");
    await shown(page.getByText("No matching runs"));
    await page.getByRole("link", { name: "Show all runs" }).click();
    await page.getByRole("navigation", { name: "Status" }).getByRole("link", { name: /^failed/ }).click();
    await until("only runs that failed", async () => {
      const statuses = await page.locator("tbody [data-status]").evaluateAll((all) => all.map((e) => e.dataset.status));
      return page.url().includes("status=failed") && statuses.every((s) => s === "failed");
    });
  }],
  ["a session shows its owners and their attempts", async ({ page, base, history, shot }) => {
    const started = (await history()).find((e) => e.event_type === "SessionStarted");
    assert.ok(started, "the run has no session to look for");
    const id = started.payload.session_id;
    await page.goto(`${base}/sessions`);
    await shown(page.locator(`[data-session="${id}"]`));
    await shot("sessions");
    await page.locator(`[data-session="${id}"]`).click();
    await shown(page.getByRole("heading", { level: 1, name: id }));
    const claim = page.locator('[data-owner-event="claimed"]').first();
    await shown(claim);
    await claim.getByRole("button", { name: "Show attempts" }).click();
    const ran = claim.locator("[data-attempt]").first();
    await shown(ran.locator('[data-status="completed"]'));
    const types = (await history()).map((e) => e.payload?.activity_type).filter(Boolean);
    const text = await ran.innerText();
    assert.ok(types.some((type) => text.includes(type)), `what ran is of the run: ${text}`);
    await shot("session", true);
  }],
  ["an operator migrates and closes a session, and the ownership history records both", async ({ page, base, api, shot }) => {
    const { workers } = await api("/api/workers");
    const worker = workers.find((w) => w.status === "active" && w.max_concurrent_worker_sessions > w.held_sessions);
    assert.ok(worker, "there is no worker that could hold a session");
    const id = `seen/${Date.now()}`;
    await api("/api/worker/sessions", { worker_id: worker.worker_id, session_id: id, ttl_seconds: 6000, lease_seconds: 6000 }); // the worker does not know of it, so renews nothing
    await page.goto(`${base}/sessions/${encodeURIComponent(id)}`);
    await shown(page.getByRole("heading", { level: 1, name: id }));
    await shown(page.getByRole("link", { name: worker.worker_id }));
    await until("the time to live counts down", async () => /^1h [34]\dm$/.test(await page.getByRole("timer").nth(1).innerText()));
    await shot("session-held", true);

    await page.getByRole("button", { name: "Migrate" }).focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog");
    await shown(dialog.getByLabel("Target worker"));
    await shown(dialog.getByLabel("Force: do not wait for running activities"));
    await shot("session-migrate");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached", timeout: patience });
    assert.equal(await page.locator('[data-owner-event="released"]').count(), 0, "Escape does nothing to the session");
    await page.getByRole("button", { name: "Migrate" }).click();
    await dialog.getByLabel("Reason").fill("rack 7 goes");
    await dialog.getByRole("button", { name: "Migrate" }).click();
    await shown(page.locator('[data-owner-event="released"]').getByText("rack 7 goes"));

    await page.getByRole("button", { name: "Close", exact: true }).click();
    await dialog.getByLabel("Reason").fill("no longer needed");
    await shot("session-close");
    await dialog.getByRole("button", { name: "Close session" }).click();
    await shown(page.locator('main [data-status="closed"]'));
    await shown(page.locator('[data-owner-event="closed"]').getByText("no longer needed"));
    await until("a session that has ended is left alone", async () => (await page.getByRole("button", { name: "Migrate" }).count()) === 0);
    await shot("session-closed", true);
  }],
  ["the workers page lists all workers with release and slots", async ({ page, base, api, shot }) => {
    const { workers } = await api("/api/workers");
    assert.ok(workers.length > 0, "there is no worker to look for");
    await page.goto(`${base}/workers`);
    for (const w of workers) {
      const card = page.locator(`[data-worker="${w.worker_id}"]`);
      await shown(card);
      await shown(card.locator(`[data-status="${w.status}"]`));
      if (w.release) await shown(card.getByText(w.release, { exact: true }).first());
    }
    await page.getByRole("button", { name: "More" }).first().click();
    await shot("workers", true);
  }],
  ["an operator drains a worker and resumes it", async ({ page, base, api, shot }) => {
    const { workers } = await api("/api/workers");
    const worker = workers.find((w) => w.status === "active" && w.held_sessions === 0) ?? workers[0];
    await page.goto(`${base}/workers`);
    const card = page.locator(`[data-worker="${worker.worker_id}"]`);
    await card.getByRole("button", { name: "Drain" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Reason").fill("a new kernel");
    await dialog.getByRole("button", { name: "Drain worker" }).click();
    await shown(card.locator('[data-status="draining"]'));
    await shown(card.getByText("a new kernel"));
    await shot("worker-drained");
    await card.getByRole("button", { name: "Resume" }).click();
    await dialog.getByRole("button", { name: "Resume worker" }).click();
    await shown(card.locator('[data-status="active"]'));
    assert.equal((await api("/api/sojourn/fleet/drains")).drains.length, 0, "a resumed drain is removed");
  }],
  ["an operator drains and resumes all workers of a release and sees the progress", async ({ page, base, api, axe, shot }) => {
    const { workers } = await api("/api/workers");
    const release = workers[0].release;
    const same = workers.filter((w) => w.release === release).length;
    await page.goto(`${base}/workers`);
    await page.getByRole("button", { name: "Drain workers" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Workers of").selectOption(`release ${release}`);
    await dialog.getByLabel("Minutes").fill("soon");
    await dialog.getByRole("button", { name: "Drain workers" }).click();
    await shown(dialog.getByText("A number of minutes above 0"));
    assert.equal((await api("/api/sojourn/fleet/drains")).drains.length, 0, "a deadline that is none drained something");
    await dialog.getByLabel("Minutes").fill("10");
    await dialog.getByLabel("Reason").fill("a new rack");
    await axe();
    await dialog.getByRole("button", { name: "Drain workers" }).click();
    const drain = page.locator(`[data-drain="release ${release}"]`);
    await shown(drain.getByText("a new rack"));
    await shown(page.locator(`[data-drain="release ${release}"][data-state="drained"]`));
    await shown(drain.getByText(`${same} of ${same} worker`));
    await shown(page.locator(`[data-worker="${workers[0].worker_id}"] [data-status="draining"]`));
    await shot("workers-drained");
    const { drains } = await api("/api/sojourn/fleet/drains");
    assert.equal(drains.length, 1);
    assert.ok(drains[0].deadline_at, "the deadline did not arrive");
    await drain.getByRole("button", { name: "Resume" }).click();
    await dialog.getByRole("button", { name: "Resume workers" }).click();
    await drain.waitFor({ state: "detached" });
    await shown(page.locator(`[data-worker="${workers[0].worker_id}"] [data-status="active"]`));
    assert.equal((await api("/api/sojourn/fleet/drains")).drains.length, 0, "a resumed drain is removed");
  }],
  ["an operator changes the settings of all workers, sees the progress and reverts them", async ({ page, base, api, axe, shot }) => {
    const set = () => api("/api/sojourn/fleet/settings");
    const first = (await set()).revision;
    await page.goto(`${base}/workers`);
    await page.getByRole("button", { name: "Settings", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Log level").selectOption("debug");
    await dialog.getByLabel("Concurrent activities").fill("0");
    await dialog.getByRole("button", { name: "Save" }).click();
    await shown(dialog.getByText("A whole number from 1"));
    assert.equal((await set()).revision, first, "a number that is none set something");
    await dialog.getByLabel("Concurrent activities").fill("7");
    await axe();
    await shot("fleet-settings");
    await dialog.getByRole("button", { name: "Save" }).click();
    const applied = page.locator(`[data-fleet-settings="${first + 1}"]`);
    await shown(applied.getByText("log level debug, 7 concurrent activities"));
    const { worker_count: all } = await set();
    assert.ok(all > 0, "no worker reports its settings");
    await shown(applied.getByText(`Applied by ${all} of ${all} workers.`));
    await page.getByRole("button", { name: "Settings", exact: true }).click();
    await dialog.getByLabel("Log level").selectOption("default of each worker");
    await dialog.getByLabel("Concurrent activities").fill("");
    await dialog.getByRole("button", { name: "Save" }).click();
    await shown(page.locator(`[data-fleet-settings="${first + 2}"]`).getByText("defaults of each worker"));
    assert.equal((await set()).worker_concurrency, undefined, "a reverted setting is still set");
  }],
  ["the queues page and the page of a queue open", async ({ page, base, api, shot }) => {
    const { task_queues: queues } = await api("/api/task-queues");
    await page.goto(`${base}/queues`);
    await shown(queues?.length ? page.getByRole("cell", { name: queues[0].name, exact: true }).first() : page.getByText("No task queues"));
    await shot("queues");
    if (!queues?.length) return;
    await page.goto(`${base}/queues/${encodeURIComponent(queues[0].name)}`);
    await shown(page.getByRole("heading", { name: queues[0].name }));
    await shown(page.getByRole("region", { name: "Builds" }));
    await shot("queue");
  }],
  ["keyboard shortcuts open pages, rows and the search", async ({ page, base, run }) => {
    await page.goto(base);
    await shown(page.locator(`[data-run="${run}"]`));
    await go(page, "w", page.getByRole("heading", { level: 1, name: "Workers" }));
    await go(page, "s", page.getByRole("heading", { level: 1, name: "Sessions" }));
    await page.keyboard.press("/");
    await until("the search has the focus", () => page.evaluate(() => document.activeElement?.hasAttribute("data-search")));
    await page.keyboard.type("gr");
    assert.equal(await page.locator("[data-search]").inputValue(), "gr", "keys typed into a field stay there");
    await page.keyboard.press("Escape");
    await page.goto(base);
    await shown(page.locator(`[data-run="${run}"]`));
    await page.keyboard.press("j");
    const at = () => page.evaluate(() => document.activeElement?.getAttribute("data-run"));
    const first = await until("j goes to the first run", at);
    await page.keyboard.press("j");
    await page.keyboard.press("k");
    await until("j and k lead back", async () => (await at()) === first);
    await page.keyboard.press("Enter");
    await page.waitForURL(`${base}/runs/${first}`, { timeout: patience });
    await page.keyboard.press("?");
    await shown(page.getByRole("dialog", { name: "Keyboard shortcuts" }));
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached", timeout: patience });
  }],
  ["times are in the browser's zone, or in UTC", async ({ page, base, run }) => {
    await page.goto(`${base}/runs/${run}`);
    const stamp = page.locator("dl time").first();
    await shown(stamp);
    const local = await stamp.getAttribute("title");
    await page.keyboard.press("u");
    await until("the time in UTC", async () => (await stamp.getAttribute("title")).endsWith(" UTC"));
    assert.notEqual(await stamp.getAttribute("title"), local, "the checks run in a zone that is not UTC");
    await page.keyboard.press("u");
    await until("the local time again", async () => (await stamp.getAttribute("title")) === local);
  }],
  ["the theme follows the system, and a chosen theme survives a reload", async ({ page, base, run, shot }) => {
    const theme = () => page.evaluate(() => [document.documentElement.dataset.theme, getComputedStyle(document.documentElement).backgroundColor]);
    await page.emulateMedia({ colorScheme: "light" });
    await page.goto(`${base}/runs/${run}`);
    const [, light] = await theme();
    await page.emulateMedia({ colorScheme: "dark" });
    await until("dark", async () => (await theme())[0] === "dark");
    await until("another ground", async () => (await theme())[1] !== light);
    await shown(page.getByRole("list", { name: "Event history" }));
    await shot("run-dark", true);
    await page.locator("[data-theme-toggle]").click();
    await until("light by choice", async () => (await theme())[0] === "light");
    await page.reload();
    await until("light after a reload", async () => (await theme())[0] === "light");
    await page.locator('[data-theme-toggle="light"]').click();
    await page.locator('[data-theme-toggle="dark"]').click();
    await page.emulateMedia({ colorScheme: "light" });
  }],
  ["no page is wider than a narrow screen", async ({ page, base, run, history, shot }) => {
    const session = (await history()).find((e) => e.event_type === "SessionStarted")?.payload.session_id;
    await page.setViewportSize({ width: 390, height: 844 });
    for (const path of ["/", `/runs/${run}`, "/sessions", ...(session ? [`/sessions/${session}`] : []), "/workers", "/queues"]) {
      await page.goto(base + path);
      await shown(page.getByRole("heading", { level: 1 }));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(over <= 0, `${path} is ${over} px too wide`);
    }
    await page.goto(`${base}/runs/${run}`);
    await shown(page.getByRole("list", { name: "Event history" }));
    await shot("run-narrow", true);
    await page.setViewportSize({ width: 1280, height: 900 });
  }],
  ["every page is accessible in both themes", async ({ page, base, run, history, axe }) => {
    const session = (await history()).find((e) => e.event_type === "SessionStarted")?.payload.session_id;
    const found = [];
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      for (const path of ["/", `/runs/${run}`, "/sessions", ...(session ? [`/sessions/${session}`] : []), "/workers", "/queues"]) {
        await page.goto(base + path);
        await shown(page.getByRole("heading", { level: 1 }));
        await page.locator('[aria-label="Loading"]').waitFor({ state: "detached", timeout: patience });
        found.push(...(await axe()).map((v) => `${colorScheme} ${path}: ${v}`));
      }
    }
    await page.emulateMedia({ colorScheme: "light", reducedMotion: null });
    assert.deepEqual(found, []);
  }],
];
