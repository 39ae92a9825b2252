// Every page and dialog in both themes and at three widths, with IDs of maximum length, right-to-left text and many
// activities of one name. axe checks WCAG 2.2 at levels A and AA.
import assert from "node:assert/strict";
import { keepAlive } from "./alive.mjs";
import { patience, shown } from "./checks.mjs";

const queue = "طابور " + "q".repeat(120);
const worker = "عامل-" + "w".repeat(100);
const widths = [390, 1024, 1440];
const colours = ["color-contrast", "link-in-text-block"]; // what a theme decides: all else of a page is the same in both
const rules = (colorScheme) => (colorScheme === "light" ? undefined : colours);

/** Makes the data, and gives the pages that show it. */
async function hard(api) {
  const type = "تحصيل";
  const session = "جلسة-" + "s".repeat(120);
  await api("/api/worker/register", { worker_id: worker, task_queue: queue, runtime: "hand", build_id: "نسخة", supported_workflow_types: [type], supported_activity_types: ["charge"], max_concurrent_worker_sessions: 3, capabilities: ["worker_sessions", "query_tasks"] });
  keepAlive(api, worker);
  const workflow = "طلب/٤٢-" + "i".repeat(200);
  const start = { workflow_id: workflow, workflow_type: type, task_queue: queue, input: ["مرحبا", { sku: "x".repeat(300) }], memo: { note: "ملاحظة طويلة ".repeat(20) }, search_attributes: { Who: "سلمى" } };
  const run = (await api("/api/workflows", start)).run_id;
  const { task } = await api("/api/worker/workflow-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 60 });
  const commands = [...Array.from({ length: 24 }, (_, n) => ({ type: "schedule_activity", activity_type: n % 2 ? "charge" : "تحصيل-" + "a".repeat(90) })), { type: "open_signal_wait", signal_name: "موافقة" }, { type: "start_timer", delay_seconds: 86400 }];
  await api(`/api/worker/workflow-tasks/${task.task_id}/complete`, { lease_owner: worker, workflow_task_attempt: task.workflow_task_attempt, commands });
  await api("/api/worker/sessions", { worker_id: worker, session_id: session, ttl_seconds: 6000, lease_seconds: 6000 });
  await api("/api/namespaces", { name: "l" + "o".repeat(50) + "ng", description: "مساحة للتجارب", retention_days: 7 });
  const alone = (await api("/api/sojourn/activities", { workflow_id: "وحده-" + "o".repeat(200), activity_type: "charge", task_queue: queue, input: ["مرحبا"], session_id: session })).run_id;
  const doomed = (await api("/api/sojourn/activities", { workflow_id: "فشل-" + "o".repeat(200), activity_type: "charge", task_queue: queue, priority: 0 })).run_id;
  const lost = (await api("/api/workflows", { ...start, workflow_id: "خطأ-" + "i".repeat(200) })).run_id;
  const stack = Array.from({ length: 40 }, (_, n) => `    at charge${n} (/srv/${"deep/".repeat(30)}دفع.js:${n}:17)`).join("\n");
  const failure = { type: "Declined", message: "مرفوض " + "no ".repeat(100), stack_trace: stack };
  const first = (await api("/api/worker/activity-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 60 })).task;
  assert.equal(first.run_id, doomed);
  await api(`/api/worker/activity-tasks/${first.task_id}/fail`, { lease_owner: worker, activity_attempt_id: first.activity_attempt_id, failure });
  const next = (await api("/api/worker/workflow-tasks/poll", { worker_id: worker, task_queue: queue, timeout_seconds: 60 })).task;
  assert.equal(next.run_id, lost);
  await api(`/api/worker/workflow-tasks/${next.task_id}/complete`, {
    lease_owner: worker, workflow_task_attempt: next.workflow_task_attempt,
    commands: [{ type: "fail_workflow", message: failure.message, exception: { type: "Declined", message: failure.message, stack_trace: stack } }],
  });
  await api("/api/schedules", { schedule_id: "warm-" + "d".repeat(60), spec: { intervals: [{ every: "PT1H" }] }, action: { activity_type: "charge", task_queue: queue, session_id: session } });
  await api("/api/schedules", { schedule_id: "every-" + "d".repeat(60), spec: { intervals: [{ every: "PT1H" }] }, action: { workflow_type: type, task_queue: queue }, note: "كل ساعة" });
  const coded = encodeURIComponent;
  return ["/", `/runs/${run}`, `/runs/${alone}`, `/runs/${doomed}`, `/runs/${lost}`, `/schedules/warm-${"d".repeat(60)}`, "/sessions", `/sessions/${coded(session)}`, "/workers", "/queues", `/queues/${coded(queue)}`, "/schedules", `/schedules/every-${"d".repeat(60)}`, "/namespaces"];
}

async function open(page, base, path) {
  await page.goto(base + path);
  await shown(page.getByRole("heading", { level: 1 }));
  await page.locator('[aria-label="Loading"]').waitFor({ state: "detached", timeout: patience });
}

let pages;

export const access = [
  ["every page is accessible with long and right-to-left data, in both themes and at every width", async ({ page, base, api, axe, shot }) => {
    pages = await hard(api);
    const found = [];
    for (const path of pages) {
      await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
      await open(page, base, path);
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        for (const width of widths) {
          await page.setViewportSize({ width, height: 900 });
          const where = `${colorScheme} ${width} ${path.slice(0, 24)}`;
          const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          if (over > 0) found.push(`${where}: ${over} px too wide`);
          found.push(...(await axe(undefined, rules(colorScheme))).map((v) => `${where}: ${v}`));
          if (colorScheme === "dark" || width === 390) await shot(`hard-${pages.indexOf(path)}-${colorScheme}-${width}`, true);
        }
      }
    }
    assert.deepEqual(found, []);
  }],
  ["every dialog is accessible in both themes and at every width", async ({ page, base, axe, shot }) => {
    const found = [];
    const titles = new Set();
    const look = async (where, way) => {
      const dialog = page.getByRole("dialog");
      await page.setViewportSize({ width: widths[2], height: 900 });
      await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
      await way();
      await shown(dialog);
      const title = await dialog.getByRole("heading").first().innerText();
      if (!titles.has(title)) {
        titles.add(title);
        // A dialog has one layout on a phone and one on all wider screens, and the same elements in both, so its colours are
        // checked at one width.
        const boxes = [];
        for (const [colorScheme, width] of [["light", widths[0]], ["light", widths[1]], ["light", widths[2]], ["dark", widths[2]]]) {
          await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
          await page.setViewportSize({ width, height: 900 });
          const over = await dialog.evaluate((e) => e.scrollWidth - e.clientWidth);
          if (over > 0) found.push(`${colorScheme} ${width} ${where} "${title}": ${over} px too wide`);
          if (width > widths[0]) boxes.push((await dialog.boundingBox()).width);
          if (width === widths[1]) continue;
          found.push(...(await axe("[role=dialog]", rules(colorScheme))).map((v) => `${colorScheme} ${width} ${where} "${title}": ${v}`));
        }
        if (new Set(boxes).size > 1) found.push(`${where} "${title}": widths ${boxes.join(", ")} on screens of ${widths[1]} and ${widths[2]}`);
        await shot(`dialog-${titles.size}`);
      }
      await page.keyboard.press("Escape");
      await dialog.waitFor({ state: "detached", timeout: patience });
    };
    for (const path of pages) {
      await page.setViewportSize({ width: widths[2], height: 900 });
      await open(page, base, path);
      const buttons = page.locator('main button[aria-haspopup="dialog"]:not([aria-disabled])');
      const names = [...new Set(await buttons.allInnerTexts())];
      for (const name of names) await look(path.slice(0, 24), () => buttons.filter({ hasText: new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`) }).first().click());
    }
    await look("anywhere", () => page.keyboard.press("?"));
    await page.emulateMedia({ colorScheme: "light", reducedMotion: null });
    await page.setViewportSize({ width: 1280, height: 900 });
    assert.ok(titles.size >= 16, `only ${titles.size} dialogs were seen: ${[...titles].join(", ")}`);
    assert.deepEqual(found, []);
  }],
  ["on a narrow screen the first screen of a run shows its status and its timeline", async ({ page, base, run }) => {
    await page.setViewportSize({ width: 390, height: 844 });
    await open(page, base, `/runs/${run}`);
    const timeline = await page.locator("[data-timeline]").boundingBox();
    await page.setViewportSize({ width: 1280, height: 900 });
    assert.ok(timeline.y < 500, `the timeline begins at ${timeline.y} of 844`);
  }],
  ["at 1024 the header is one row", async ({ page, base }) => {
    await page.setViewportSize({ width: 1024, height: 800 });
    await open(page, base, "/");
    const { height } = await page.getByRole("banner").boundingBox();
    await page.setViewportSize({ width: 1280, height: 900 });
    assert.ok(height < 60, `it is ${height} high`);
  }],
];
