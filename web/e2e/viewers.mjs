// Measures the processor time of the app with no page open, one and four, while activities send heartbeats.
// The numbers of docs/performance.md come from here: npm --prefix web run viewers [-- --seconds N].
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { keepAlive } from "./alive.mjs";

const { values: flags } = parseArgs({ options: { seconds: { type: "string", default: "30" }, port: { type: "string", default: "25090" } } });
const seconds = Number(flags.seconds);
const activities = 20; // each heart-beats once a second
const worker = "beating";
const queue = "beats";
const ticks = 100; // of /proc, a second

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const base = `http://127.0.0.1:${flags.port}`;

async function api(path, body) {
  const headers = { "Content-Type": "application/json", "X-Durable-Workflow-Protocol-Version": "1.0", "X-Durable-Workflow-Control-Plane-Version": "2" };
  const res = await fetch(base + path, { method: body ? "POST" : "GET", headers, ...(body && { body: JSON.stringify(body) }) });
  if (!res.ok) throw new Error(`${path}: ${res.status} ${await res.text()}`);
  return res.json();
}

/** Leases activities and heart-beats for them until the program ends; gives their runs. */
async function beat() {
  await api("/api/worker/register", { worker_id: worker, task_queue: queue, runtime: "hand", supported_workflow_types: ["film"], supported_activity_types: ["render"], max_concurrent_activity_tasks: activities });
  keepAlive(api, worker);
  const runs = [];
  for (let i = 0; i < activities; i++) {
    runs.push((await api("/api/sojourn/activities", { workflow_id: `film-${i}`, activity_type: "render", task_queue: queue })).run_id);
    const { task } = await api("/api/worker/activity-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 30 });
    let current = 0;
    const send = () =>
      api(`/api/worker/activity-tasks/${task.task_id}/heartbeat`, { lease_owner: worker, activity_attempt_id: task.activity_attempt_id, progress: { current: ++current, total: 100_000, unit: "frames" } }).catch(() => {});
    setTimeout(() => setInterval(send, 1000).unref(), (i * 1000) / activities);
  }
  return runs;
}

/** Processor time of the app so far, in milliseconds. */
async function used(pid) {
  const after = (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ").at(-1).split(" ");
  return ((Number(after[11]) + Number(after[12])) * 1000) / ticks;
}

const dir = await mkdtemp(join(tmpdir(), "sojourn-viewers-"));
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("SOJOURN_")));
const app = spawn(fileURLToPath(new URL("../../bin/sojourn", import.meta.url)), ["app", "--auth", "none", "--addr", `127.0.0.1:${flags.port}`, "--data-dir", dir], { env, stdio: "ignore" });
let browser;
try {
  for (let i = 0; ; i++) {
    try {
      if ((await fetch(`${base}/readyz`)).ok) break;
    } catch (err) {
      if (i > 100) throw err;
    }
    await sleep(100);
  }
  const runs = await beat();
  browser = await chromium.launch({ executablePath: process.env.SOJOURN_TEST_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  const measure = async (path, viewers) => {
    let asked = 0;
    const contexts = [];
    for (let i = 0; i < viewers; i++) {
      const context = await browser.newContext(); // a person's own, so that no page is a tab in the background
      contexts.push(context);
      const page = await context.newPage();
      await page.goto(base + path(i));
      await page.locator("[data-live=Live]").waitFor();
      page.on("request", (r) => r.url().includes("/api/") && asked++);
    }
    await sleep(5000);
    asked = 0;
    const [before, from] = [await used(app.pid), Date.now()];
    await sleep(seconds * 1000);
    const passed = (Date.now() - from) / 1000;
    const result = { cpu: ((await used(app.pid)) - before) / passed, asked: asked / passed };
    for (const c of contexts) await c.close();
    return result;
  };
  for (const [name, path] of [["the list of runs", () => "/"], ["a run whose activity heart-beats", (i) => `/runs/${runs[i]}`], ["the workers", () => "/workers"], ["the queues", () => "/queues"]]) {
    // Measured without pages before and after, so that a drift over time cancels out.
    const first = await measure(path, 0);
    const [one, four] = [await measure(path, 1), await measure(path, 4)];
    const none = (first.cpu + (await measure(path, 0)).cpu) / 2;
    console.log(
      `${name}: none ${none.toFixed(1)} ms/s (${first.cpu.toFixed(1)} at first); one +${(one.cpu - none).toFixed(1)} ms/s, ${one.asked.toFixed(2)} requests/s; ` +
        `four +${(four.cpu - none).toFixed(1)} ms/s, ${four.asked.toFixed(2)} requests/s`,
    );
  }
} finally {
  await browser?.close();
  app.kill("SIGTERM");
  await new Promise((resolve) => app.once("exit", resolve));
  await rm(dir, { recursive: true, force: true });
}
process.exit(0);
