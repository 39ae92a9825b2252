// The request rate of pages while the app is busy: at most once per second, none for hidden tabs and closed runs.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { shown, until } from "./checks.mjs";

const space = "busy";
const worker = "busy hand";
const queue = "belt";

/** Counts the requests of a page while something is done. */
async function asked(page, during) {
  const all = [];
  const note = (r) => r.url().includes("/api/") && all.push(new URL(r.url()).pathname);
  page.on("request", note);
  const from = Date.now();
  await during();
  page.off("request", note);
  return { all, seconds: (Date.now() - from) / 1000, of: (path) => all.filter((p) => p === path).length };
}

export const quiet = [
  ["a page sends at most one request per second; a hidden tab and the page of a closed run send none", async ({ page, base, api, run }) => {
    await api("/api/namespaces", { name: space });
    const register = { worker_id: worker, task_queue: queue, runtime: "hand", build_id: "b1", supported_workflow_types: ["order"], supported_activity_types: ["charge"] };
    await api("/api/worker/register", register, space);
    keepAlive(api, worker, space);
    let n = 0;
    const start = async () => (await api("/api/workflows", { workflow_id: `order-${++n}`, workflow_type: "order", task_queue: queue }, space)).run_id;
    const hurry = (count) => async () => {
      for (let i = 0; i < count; i++) {
        await start();
        await page.waitForTimeout(20); // a busy app: what the page does of it is counted, whatever it takes
      }
    };
    const first = await start();
    await page.goto(`${base}/?namespace=${space}`);
    await shown(page.locator(`[data-run="${first}"]`));
    await shown(page.locator('[data-live="Live"]'));

    const list = await asked(page, hurry(60));
    const most = Math.ceil(list.seconds) + 2;
    assert.ok(list.of("/api/workflows") >= 1, "the list follows");
    for (const path of new Set(list.all)) assert.ok(list.of(path) <= most, `${path}: ${list.of(path)} times in ${list.seconds} s`);
    assert.deepEqual([...new Set(list.all)].filter((p) => !["/api/workflows", "/api/sojourn/run-counts", "/api/workers"].includes(p)), []);

    // The rows keep their places while the pointer is over them.
    await until("the list has come to rest", async () => (await page.locator("[data-run]").first().getAttribute("data-run")) !== first);
    const rows = () => page.locator("[data-row]").evaluateAll((all) => all.map((e) => [e.dataset.row, e.getBoundingClientRect().top]));
    await page.locator("[data-row]").nth(2).hover();
    await page.mouse.move(400, 500);
    const before = await rows();
    await hurry(3)();
    await shown(page.locator("[data-fresh]"));
    assert.deepEqual(await rows(), before, "rows moved under the pointer");
    await page.mouse.move(400, 10);
    await until("the new ones, once the pointer is elsewhere", async () => (await rows())[0][0] !== before[0][0]);

    // A background tab sends no request until it is visible again.
    const hide = (hidden) =>
      page.evaluate((to) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => to });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await hide(true);
    await page.waitForLoadState("networkidle");
    const hidden = await asked(page, hurry(40));
    assert.deepEqual(hidden.all, [], "a hidden tab asks");
    const last = await start();
    await hide(false);
    await shown(page.locator(`[data-run="${last}"]`));

    // A closed run in a busy namespace.
    await page.goto(`${base}/runs/${run}`);
    await shown(page.getByRole("list", { name: "Event history" }));
    await page.waitForLoadState("networkidle");
    const closed = await asked(page, async () => {
      for (let i = 0; i < 10; i++) await api("/api/workflows", { workflow_id: `other-${i}`, workflow_type: "nobody", task_queue: "nobody" });
      await page.waitForTimeout(1500); // longer than a round of hints
    });
    assert.deepEqual(closed.all, [], "the page of a closed run asks");
  }],
];
