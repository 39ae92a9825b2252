// Namespaces: the switch, links, and that a page shows one namespace only. This file is the worker.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { patience, shown, until } from "./checks.mjs";

const team = "team-a";
const queue = "ours";
const worker = "team hand";
let ours; // a run of the team's

export const spaces = [
  ["the namespace switch opens another namespace, whose pages show no other data", async ({ page, base, run, api, axe, shot }) => {
    await api("/api/namespaces", { name: team, description: "what the team tries", retention_days: 7 });
    const register = { worker_id: worker, task_queue: queue, runtime: "hand", build_id: "b1", supported_workflow_types: ["order"], supported_activity_types: ["charge"], max_concurrent_worker_sessions: 3, capabilities: ["worker_sessions"] };
    await api("/api/worker/register", register, team);
    keepAlive(api, worker, team);
    ours = (await api("/api/workflows", { workflow_id: "ours-1", workflow_type: "order", task_queue: queue }, team)).run_id;
    await api("/api/worker/sessions", { worker_id: worker, session_id: "ours/1", ttl_seconds: 6000, lease_seconds: 6000 }, team);
    await page.goto(`${base}/?status=completed&type=${(await api(`/api/runs/${run}`)).workflow_type}`);
    await shown(page.locator(`[data-run="${run}"]`));
    const at = page.getByLabel("Namespace", { exact: true });
    await until("the switch says where it is", async () => (await at.inputValue()) === "default");
    await page.keyboard.press("n");
    await until("the switch has the focus", () => page.evaluate(() => document.activeElement?.hasAttribute("data-namespace-switch")));
    await page.keyboard.press("Escape");
    await at.selectOption(team);
    await page.waitForURL(`${base}/?namespace=${team}`, { timeout: patience });
    await shown(page.locator(`[data-run="${ours}"]`));
    await until("the runs of the team alone", async () => (await page.locator("[data-run]").count()) === 1);
    await until("counts of the team alone", async () => /^all\s*1$/.test(await page.getByRole("navigation", { name: "Status" }).getByRole("link").first().innerText()));
    assert.deepEqual(await axe(), []);
    await shot("team-runs");
    const nav = page.getByRole("navigation", { name: "Pages", exact: true });
    for (const [name, there] of [["Sessions", '[data-session="ours/1"]'], ["Workers", `[data-worker="${worker}"]`], ["Queues", `[data-queue="${queue}"]`], ["Schedules", null]]) {
      await nav.getByRole("link", { name }).click();
      await shown(page.getByRole("heading", { level: 1, name }));
      assert.equal(new URL(page.url()).searchParams.get("namespace"), team);
      await shown(there ? page.locator(there) : page.getByText(`No schedules in ${team}`));
      await until("nothing of the others", async () => (await page.locator('[data-worker="local"], [data-queue="default"]').count()) === 0);
    }
    await shot("team-schedules");
  }],
  ["the URL of a run without its ID opens the list of runs", async ({ page, base }) => {
    for (const path of ["runs", "workflows"]) {
      await page.goto(`${base}/${path}?status=running&namespace=${team}`);
      await shown(page.locator(`[data-run="${ours}"]`));
      assert.equal(page.url(), `${base}/?status=running&namespace=${team}`);
    }
  }],
  ["a page of another namespace receives updates", async ({ page, base, api }) => {
    await page.goto(`${base}/?namespace=${team}`);
    await shown(page.locator('[data-live="Live"]'));
    await shown(page.locator(`[data-run="${ours}"]`));
    const theirs = (await api("/api/workflows", { workflow_id: "theirs", workflow_type: "order", task_queue: "nobody" })).run_id;
    const second = (await api("/api/workflows", { workflow_id: "ours-2", workflow_type: "order", task_queue: queue }, team)).run_id;
    await shown(page.locator(`[data-run="${second}"]`));
    assert.equal(await page.locator(`[data-run="${theirs}"]`).count(), 0);
    await page.locator(`[data-run="${ours}"]`).click();
    await shown(page.locator('[data-following="live"]'));
    assert.equal(page.url(), `${base}/runs/${ours}?namespace=${team}`);
    await api("/api/workflows/ours-1/signal/note", { input: ["to the team"] }, team);
    await shown(page.locator('[data-event="SignalReceived"]').getByText("to the team"));
    await page.getByRole("button", { name: "Signal", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("from-the-page");
    await dialog.getByRole("button", { name: "Send" }).click();
    await shown(page.locator('[data-event="SignalReceived"]').getByText("from-the-page"));
    await page.goto(`${base}/sessions/${encodeURIComponent("ours/1")}?namespace=${team}`);
    await shown(page.getByRole("heading", { level: 1, name: "ours/1" }));
    await page.locator('[data-owner-event="claimed"]').getByRole("button", { name: "Show attempts" }).click();
    await shown(page.getByText("No attempts recorded, or they have expired."));
    await page.goto(`${base}/queues/${queue}?namespace=${team}`);
    await shown(page.getByRole("region", { name: "Workers" }).getByText(worker));
  }],
  ["a long timeline is paged back to its first entry", async ({ page, base, api, shot }) => {
    for (let n = 0; n < 260; n++) {
      await api("/api/worker/sessions", { worker_id: worker, session_id: "often" }, team);
      await api("/api/worker/sessions/often/release", { worker_id: worker }, team);
    }
    await page.goto(`${base}/sessions/often?namespace=${team}`);
    const entries = page.locator("[data-owner-event]");
    await until("the newest", async () => (await entries.count()) === 100);
    for (let n = 0; n < 9 && (await page.locator("[data-older]").count()) > 0; n++) {
      const before = await entries.count();
      await page.locator("[data-older]").click();
      await until("older ones", async () => (await entries.count()) > before);
    }
    assert.equal(await page.locator('[data-owner-event="released"]').count(), 260);
    assert.equal(await entries.last().getAttribute("data-owner-event"), "claimed");
    await shot("timeline-long");
  }],
  ["a link to a run opens in the run's namespace, also without a namespace in the URL", async ({ page, base, refused }) => {
    refused(`/api/runs/${ours}`); // asked in the namespace of the link first
    await page.goto(`${base}/runs/${ours}`);
    await page.waitForURL(`${base}/runs/${ours}?namespace=${team}`, { timeout: patience });
    await shown(page.getByRole("heading", { level: 1, name: "order" }));
    await page.goto(`${base}/runs/${ours}?namespace=default`);
    await page.waitForURL(`${base}/runs/${ours}?namespace=${team}`, { timeout: patience });
    refused("/api/runs/01KAJ7Q2M4W8Y6000000000000");
    await page.goto(`${base}/runs/01KAJ7Q2M4W8Y6000000000000`);
    await shown(page.getByText("Run not found", { exact: true }));
    await page.getByRole("link", { name: "All runs", exact: true }).click();
    await shown(page.getByRole("heading", { level: 1, name: "Runs" }));
  }],
  ["the page of an unknown run, session or schedule links to the list", async ({ page, base, refused }) => {
    for (const [kind, title, asked] of [["session", "Sessions", "worker-sessions"], ["schedule", "Schedules", "schedules"]]) {
      refused(`/api/${asked}/gone-by-now`);
      await page.goto(`${base}/${kind}s/gone-by-now`);
      await shown(page.getByText(`${kind[0].toUpperCase()}${kind.slice(1)} not found`, { exact: true }));
      await page.getByRole("link", { name: `All ${kind}s`, exact: true }).click();
      await shown(page.getByRole("heading", { level: 1, name: title }));
    }
  }],
  ["an unknown namespace shows an error with links to the others", async ({ page, base, axe, refused, shot }) => {
    refused("/api/sojourn/overview");
    refused("/api/sojourn/run-counts");
    refused("/api/workflows?");
    refused("/api/workers");
    await page.goto(`${base}/?namespace=nowhere`);
    await shown(page.getByText("Namespace nowhere not found"));
    assert.deepEqual(await axe(), []);
    await shot("nowhere");
    await page.getByRole("main").getByRole("link", { name: team }).click();
    await shown(page.locator(`[data-run="${ours}"]`));
  }],
  ["the namespace switch fits a narrow screen in dark mode", async ({ page, base, shot }) => {
    await page.setViewportSize({ width: 380, height: 844 });
    await page.emulateMedia({ colorScheme: "dark" });
    await page.goto(`${base}/?namespace=${team}`);
    await shown(page.locator(`[data-run="${ours}"]`));
    const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(over <= 0, `${over} px too wide`);
    await shot("team-narrow-dark");
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: 900 });
  }],
];
