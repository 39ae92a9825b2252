// Opens the dashboard of a running app in Chromium and checks its pages.
//   npm run e2e                                   starts bin/sojourn dev with a separate database, and stops it
//   npm run e2e -- --base URL --run RUN_ID        checks a running server (--token TOKEN if it requires one)
//   npm run e2e -- --mock                         checks the recorded responses of dev/mock.mjs
//   npm run e2e -- --only PATTERN                 runs the checks whose names match
//   npm run e2e -- --shots DIR                    writes screenshots to DIR; without it only those of failed checks, to a new directory
// SOJOURN_TEST_CHROMIUM names another browser.
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { access } from "./access.mjs";
import { away } from "./away.mjs";
import { below } from "./below.mjs";
import { checks, patience } from "./checks.mjs";
import { codec } from "./codec.mjs";
import { doing } from "./doing.mjs";
import { failures } from "./failures.mjs";
import { find } from "./find.mjs";
import { forms } from "./forms.mjs";
import { large } from "./large.mjs";
import { long } from "./long.mjs";
import { quiet } from "./quiet.mjs";
import { samples } from "./samples.mjs";
import { setUp } from "./set_up.mjs";
import { slow } from "./slow.mjs";
import { spaces } from "./spaces.mjs";
import { held, waiting } from "./waits.mjs";
import { startApp, startMock } from "./server.mjs";

const { values: flags } = parseArgs({
  options: {
    base: { type: "string" },
    run: { type: "string" },
    token: { type: "string" },
    shots: { type: "string" },
    only: { type: "string" },
    mock: { type: "boolean", default: false },
  },
});

function browserPath() {
  const named = process.env.SOJOURN_TEST_CHROMIUM;
  const found = [named, ...["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"].map((name) => `/usr/bin/${name}`)].find((p) => p && existsSync(p));
  if (!found) throw new Error("no Chromium here: install Debian's chromium, or name one in SOJOURN_TEST_CHROMIUM");
  return found;
}

async function main() {
  if (Boolean(flags.base) !== Boolean(flags.run)) throw new Error("--base and --run go together");
  const executablePath = browserPath();
  const server = flags.base ? { base: flags.base.replace(/\/$/, ""), run: flags.run, stop: async () => {} } : await (flags.mock ? startMock() : startApp());
  const profile = await mkdtemp(join(tmpdir(), "sojourn-chromium-"));
  let browser;
  try {
    // A separate profile, and a zone other than UTC, so that a missing zone is noticed.
    browser = await chromium.launchPersistentContext(profile, {
      executablePath,
      headless: true,
      viewport: { width: 1280, height: 900 },
      timezoneId: "Asia/Kolkata",
      colorScheme: "light",
      args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
    });
    return await look(browser, server);
  } finally {
    await browser?.close();
    await server.stop();
    await rm(profile, { recursive: true, force: true });
  }
}

async function look(browser, { base, run, stop: halt, stand }) {
  const page = browser.pages()[0] ?? (await browser.newPage());
  page.setDefaultTimeout(patience);
  const complaints = [];
  const meant = ["query=Amount"]; // parts of addresses that are refused on purpose
  const purpose = (url) => meant.some((part) => url.includes(part));
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && !purpose(m.location().url) && !purpose(m.text()) && complaints.push(`console ${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => complaints.push(`page error: ${e.message}`));
  page.on("request", (r) => !r.url().startsWith(base) && !/^(data|blob):/.test(r.url()) && !purpose(r.url()) && complaints.push(`asked another host: ${r.url()}`));
  page.on("response", (r) => r.status() >= 400 && !(r.status() < 500 && purpose(r.url())) && complaints.push(`${r.status()} ${r.url()}`));

  const headers = { "X-Durable-Workflow-Control-Plane-Version": "2", ...(flags.token && { Authorization: `Bearer ${flags.token}` }) };
  const api = async (path, body, namespace = "default", method = body ? "POST" : "GET") => {
    const content = body && { "Content-Type": "application/json", "X-Durable-Workflow-Protocol-Version": "1.0" };
    const res = await fetch(base + path, { method, headers: { ...headers, "X-Namespace": namespace, ...content }, ...(body && { body: JSON.stringify(body) }) });
    if (!res.ok) throw new Error(`${method} ${path}: ${res.status} ${await res.text()}`);
    return res.json();
  };
  const history = async () => {
    const { workflow_id } = await api(`/api/runs/${run}`);
    const events = [];
    for (let token = ""; token !== null; ) {
      const q = `decoded=true&page_size=500${token && `&next_page_token=${encodeURIComponent(token)}`}`;
      const p = await api(`/api/workflows/${encodeURIComponent(workflow_id)}/runs/${run}/history?${q}`);
      events.push(...p.events);
      token = p.next_page_token ?? null;
    }
    return events;
  };
  if (flags.token) await signIn(page, base, complaints);
  const source = await readFile(fileURLToPath(new URL("../node_modules/axe-core/axe.min.js", import.meta.url)), "utf8");
  const axe = async (within, rules) => {
    if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(source);
    // Wait for fade-ins, because their colours are not final. Endless animations are skipped.
    await page.evaluate(() => Promise.allSettled(document.getAnimations().filter((a) => a.effect?.getComputedTiming().endTime < Infinity).map((a) => a.finished)));
    const runOnly = rules ?? ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const { violations } = await page.evaluate(([where, only]) => globalThis.axe.run(where ?? document, { runOnly: only, resultTypes: ["violations"] }), [within, runOnly]);
    return violations.flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id}: ${n.target.join(" ")} (${n.any.map((a) => a.message).join("; ")})`));
  };
  let shots = flags.shots;
  if (shots) await mkdir(shots, { recursive: true });
  const shot = async (name, fullPage = false) => shots && page.screenshot({ path: join(shots, `${name}.png`), fullPage });

  // Checks that change data need a separate app: the mock is read-only, and a server given by URL is not ours.
  const own = flags.mock || flags.base ? [] : [...samples, ...setUp, ...quiet, ...doing, ...forms, ...spaces, ...find, ...waiting, ...failures, ...access, ...below, ...large, ...codec, ...long, ...slow, ...held, ...away];
  const refused = (part) => meant.push(part);
  const all = [...checks, ...own, ["no error in the console, no failed request, no other host", async () => {
    if (complaints.length > 0) throw new Error([...new Set(complaints)].join("\n    "));
  }]];
  let failed = 0;
  const chosen = all.filter(([name]) => !flags.only || new RegExp(flags.only).test(name));
  for (const [name, check] of chosen) {
    const from = Date.now();
    try {
      await check({ page, base, run, api, history, shot, axe, refused, halt, stand });
      console.log(`ok    ${name} (${Date.now() - from} ms)`);
    } catch (err) {
      failed++;
      shots ??= await mkdtemp(join(tmpdir(), "sojourn-shots-"));
      await shot(`failed-${failed}`, true).catch(() => {});
      console.log(`FAIL  ${name}\n    ${err.message}\n    at ${page.url()}, seen in failed-${failed}.png`);
    }
  }
  if (shots) console.log(`screenshots in ${shots}`);
  console.log(`${chosen.length - failed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

/** Signs in as a person would; the refusals before that are expected. */
async function signIn(page, base, complaints) {
  await page.goto(base);
  await page.getByLabel("Token").fill(flags.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { level: 1, name: "Runs" }).waitFor({ timeout: patience });
  complaints.length = 0;
}

main().then(
  (code) => process.exit(code),
  (err) => {
    console.error(`e2e: ${err.message}`);
    process.exit(1);
  },
);
