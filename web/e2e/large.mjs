// A run whose values have megabytes: its page and the list of runs load the beginnings of values only, and a whole value on request.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { keepAlive } from "./alive.mjs";
import { patience, shown, until } from "./checks.mjs";

const space = "warehouse";
const queue = "crates";
const worker = "porter";
const results = 61;
const previewBytes = 4096;

const poll = async (api, kind) => (await api(`/api/worker/${kind}/poll`, { worker_id: worker, task_queue: queue, timeout_seconds: 60 }, space)).task;

/** An activity's result as an encoded value: a text of n characters. */
function encoded(text) {
  const bytes = Buffer.from(text);
  const length = [];
  for (let n = bytes.length * 2; ; n = Math.floor(n / 128)) {
    if (n < 128) {
      length.push(n);
      break;
    }
    length.push((n % 128) + 128);
  }
  return { codec: "avro", blob: Buffer.concat([Buffer.from("c301e2a33dff55802237", "hex"), Buffer.from([0x0a, ...length]), bytes]).toString("base64") };
}

/** Makes a run with 61 results, an input and an output of n characters each; finish closes it. */
async function run(api, id, n) {
  const text = "crate ".repeat(Math.ceil(n / 6)).slice(0, n);
  const { run_id } = await api("/api/workflows", { workflow_id: id, workflow_type: "haul", task_queue: queue, input: [text], memo: { label: text.slice(0, 200_000) } }, space);
  const task = await poll(api, "workflow-tasks");
  const complete = (t, commands) => api(`/api/worker/workflow-tasks/${t.task_id}/complete`, { lease_owner: worker, workflow_task_attempt: t.workflow_task_attempt, commands }, space);
  await complete(task, Array.from({ length: results }, () => ({ type: "schedule_activity", activity_type: "fetch" })));
  const result = encoded(text);
  for (let i = 0; i < results; i++) {
    const t = await poll(api, "activity-tasks");
    await api(`/api/worker/activity-tasks/${t.task_id}/complete`, { lease_owner: worker, activity_attempt_id: t.activity_attempt_id, result }, space);
  }
  return { run_id, text, finish: async () => complete(await poll(api, "workflow-tasks"), [{ type: "complete_workflow", result }]) };
}

export const large = [
  ["the page of a run with 61 results of 1 MB loads their beginnings only, and a whole value on request", async ({ page, base, api, axe, shot }) => {
    await api("/api/namespaces", { name: space });
    await api("/api/worker/register", { worker_id: worker, task_queue: queue, runtime: "hand", supported_workflow_types: ["haul"], supported_activity_types: ["fetch"] }, space);
    keepAlive(api, worker, space);
    // Bodies of the API's responses in bytes, before compression.
    let loaded = 0;
    const pending = new Set();
    const count = (r) => {
      if (!r.url().includes("/api/") || r.url().includes("/socket.io") || r.url().endsWith("values=preview") && r.url().includes("/stream")) return;
      const size = r.body().then((b) => (loaded += b.length), () => {}).finally(() => pending.delete(size));
      pending.add(size);
    };
    page.on("response", count);
    const during = async (what) => {
      await Promise.all(pending);
      const before = loaded;
      await what();
      await page.waitForTimeout(1500); // longer than a round of hints; an open stream keeps the network busy
      await Promise.all(pending);
      return loaded - before;
    };
    const open = (id) => during(async () => {
      await page.goto(`${base}/runs/${id}?namespace=${space}`);
      await shown(page.locator("[data-event]").first());
    });
    const small = await run(api, "haul-small", 1000);
    await small.finish();
    const big = await run(api, "haul-large", 1_000_000);

    // An open run: a change loads the new events only.
    await open(big.run_id);
    await shown(page.locator('[data-following="live"]'));
    const change = await during(async () => {
      await api(`/api/workflows/haul-large/signal/note`, { input: ["x".repeat(100_000)] }, space);
      await until("the signal", async () => {
        await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
        return page.locator('[data-event="SignalReceived"]').getByText(/note\("xxx/).isVisible();
      });
    });
    assert.ok(change < 64 << 10, `a signal had the page load ${change} bytes`);
    await big.finish();
    await shown(page.locator('main [data-status="completed"]').first());

    const before = await open(small.run_id);
    const after = await open(big.run_id);
    const most = before + (results + 8) * (previewBytes + 100);
    assert.ok(after <= most, `the page loads ${before} bytes with values of 1 kB and ${after} with values of 1 MB, at most ${most}`);
    const list = await during(async () => {
      await page.goto(`${base}/?namespace=${space}`);
      await shown(page.locator(`[data-run="${big.run_id}"]`));
    });
    assert.ok(list < 64 << 10, `the list of runs loads ${list} bytes`);

    await page.goto(`${base}/runs/${big.run_id}?namespace=${space}`);
    const result = page.getByRole("region", { name: "Result" });
    await shown(result.getByText("First 4.0 KiB of 977 KiB"));
    await shown(page.getByRole("region", { name: "Input" }).getByText("First 4.0 KiB of 977 KiB"));
    assert.deepEqual(await axe(), []);
    await shot("large", true);
    const file = page.waitForEvent("download", { timeout: patience });
    await result.getByRole("button", { name: "Download result" }).click();
    const saved = await file;
    assert.equal(saved.suggestedFilename(), `${big.run_id}-output.json`);
    assert.equal(await readFile(await saved.path(), "utf8"), JSON.stringify(big.text));
    await result.getByRole("button", { name: "Load all of result" }).click();
    await shown(result.getByText(/more; copy the value/));
    const memo = page.getByRole("region", { name: "Memo" });
    await memo.getByRole("button", { name: "Load all of memo" }).click();
    await shown(memo.getByText(/more; copy the value/));

    // One event of the list.
    const row = page.locator('[data-event="ActivityCompleted"]').last();
    await until("the last result", async () => {
      await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
      return row.getByText(/fetch.* → "crate crate/).isVisible();
    });
    await row.getByRole("button", { expanded: false }).click();
    await shown(row.getByText("First 4.0 KiB of 977 KiB"));
    const one = await during(async () => {
      await row.getByRole("button", { name: /^Load all of result of event/ }).click();
      await until("the whole value", async () => (await row.locator("[data-truncated] pre").innerText()).length >= 40_000);
    });
    assert.ok(one > 1_000_000 && one < 3_000_000, `one value loads ${one} bytes`);
    assert.deepEqual(await axe(), []);
    await shot("large-event");
    await page.emulateMedia({ colorScheme: "dark" });
    await shot("large-dark", true);
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 800 });
    await page.reload();
    await shown(page.locator("[data-event]").first());
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than the screen");
    await shot("large-390", true);
    await page.setViewportSize({ width: 1280, height: 900 });
    page.off("response", count);
  }],
  ["a schedule with a large input is shown in part, and edited whole", async ({ page, base, api, axe, shot }) => {
    const text = "crate ".repeat(20_000);
    await api("/api/schedules", { schedule_id: "weekly", spec: { intervals: [{ every: "PT168H" }] }, action: { workflow_type: "haul", task_queue: queue, input: [text] } }, space);
    const bodies = [];
    const count = async (r) => new URL(r.url()).pathname.startsWith("/api/schedules") && bodies.push(await r.body().then((b) => b.length, () => 0));
    page.on("response", count);
    await page.goto(`${base}/schedules?namespace=${space}`);
    await page.getByRole("link", { name: "weekly" }).first().click();
    const input = page.getByRole("region", { name: "Input" });
    await shown(input.getByText("First 4.0 KiB of 117 KiB"));
    assert.ok(bodies.length >= 2 && Math.max(...bodies) < 16 << 10, `responses about schedules have ${bodies} bytes`);
    page.off("response", count);
    assert.deepEqual(await axe(), []);
    await shot("large-schedule");
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await until("the whole input", async () => (await dialog.getByLabel(/^Input/).inputValue()).includes(text));
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "hidden", timeout: patience });
    assert.deepEqual((await api("/api/schedules/weekly", undefined, space)).action.input, [text]);
  }],
];
