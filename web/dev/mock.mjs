// A mock of an app for work on the dashboard: npm run mock -- [--port 7701] [--token SECRET] [--empty].
// It serves dist and recorded responses, and sends hints about the open run every few seconds.
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Server } from "socket.io";
import * as data from "./data.mjs";

const { values: flags } = parseArgs({
  options: { port: { type: "string", default: "7701" }, token: { type: "string" }, empty: { type: "boolean", default: false } },
});
const dist = fileURLToPath(new URL("../dist", import.meta.url));
const born = Date.now();
const changed = new Map(); // sessions that were made or changed here, by id
const kinds = { ".js": "text/javascript", ".css": "text/css", ".html": "text/html; charset=utf-8", ".svg": "image/svg+xml" };
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const body = async (req) => {
  let text = "";
  for await (const part of req) text += part;
  return text ? JSON.parse(text) : {};
};

const refuse = (status, reason, message) => ({ status, body: { reason, message } });
const gone = (what) => refuse(404, `${what}_not_found`, `no such ${what}`);

function page(list, size, token) {
  const from = Number(token ?? 0);
  const rows = list.slice(from, from + size);
  return { rows, next: from + size < list.length ? String(from + size) : null };
}

async function answer(req, url) {
  const q = url.searchParams;
  const path = url.pathname.split("/").slice(2).map(decodeURIComponent);
  const is = (...parts) => parts.length === path.length && parts.every((p, i) => p === "*" || p === path[i]);
  if (is("sojourn", "login")) {
    if (req.method === "DELETE") return { status: 200, body: {}, cookie: "sojourn=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict" };
    const { token } = await body(req);
    if (token !== flags.token) return refuse(401, "unauthorized", "this token is not known");
    return { status: 200, body: {}, cookie: `sojourn=${encodeURIComponent(token)}; Path=/; HttpOnly; SameSite=Strict` };
  }
  const known = req.headers.cookie?.includes(`sojourn=${encodeURIComponent(flags.token)}`) || req.headers.authorization === `Bearer ${flags.token}`;
  if (flags.token && !known) return refuse(401, "unauthorized", "sign in first");
  if (req.headers["x-durable-workflow-control-plane-version"] !== "2") return refuse(400, "missing_control_plane_version", "the header is missing");
  if (is("sojourn", "me")) return { status: 200, body: { identity: "bootstrap", roles: ["admin"] } };
  if (is("sojourn", "run-counts")) return { status: 200, body: { runs: flags.empty ? {} : data.overview(born).counts.runs, stuck: flags.empty ? 0 : 1, counted_up_to: 10_000 } };
  if (is("sojourn", "overview")) {
    const o = data.overview(born);
    return { status: 200, body: flags.empty ? { ...o, queues: [], counts: { runs: {}, sessions: {}, workers: {} } } : o };
  }
  const runs = flags.empty ? [] : data.runs(born);
  if (is("workflows")) {
    const status = q.get("stored_status");
    const fits = runs.filter(
      (r) =>
        (!status || (r.closed_reason ?? "running") === status) &&
        (!q.get("workflow_type") || r.workflow_type === q.get("workflow_type")) &&
        (!q.get("query") || `${r.workflow_id} ${r.business_key ?? ""}`.includes(q.get("query"))),
    );
    const { rows, next } = page(fits, Number(q.get("page_size") ?? 50), q.get("next_page_token"));
    return { status: 200, body: { workflows: rows, workflow_count: rows.length, next_page_token: next } };
  }
  if (is("runs", "*")) {
    const run = runs.find((r) => r.run_id === path[1]);
    return run ? { status: 200, body: run } : gone("run");
  }
  if (is("workflows", "*", "runs")) {
    const current = runs.find((r) => r.workflow_id === path[1]);
    if (!current) return gone("instance");
    const all = Array.from({ length: current.run_count }, (_, i) => ({ ...current, run_number: i + 1, run_id: i + 1 === current.run_number ? current.run_id : `${current.run_id}${i}` }));
    return { status: 200, body: { workflow_id: path[1], run_count: all.length, runs: all } };
  }
  if (is("workflows", "*", "runs", "*", "history")) {
    const { rows, next } = page(data.history(path[3], born), Number(q.get("page_size") ?? 100), q.get("next_page_token"));
    return { status: 200, body: { workflow_id: path[1], run_id: path[3], events: rows, next_page_token: next } };
  }
  if (req.method === "POST" && (is("workflows", "*", "signal", "*") || is("workflows", "*", "cancel") || is("workflows", "*", "terminate"))) {
    return { status: path[2] === "signal" ? 202 : 200, body: { outcome: "recorded", ...(await body(req)) } };
  }
  if (is("schedules")) return { status: 200, body: { schedules: [], next_page_token: null } };
  if (is("namespaces")) return { status: 200, body: { namespaces: [{ name: "default", description: "", retention_days: 30, status: "active", created_at: null, quotas: [] }] } };
  if (is("search-attributes")) return { status: 200, body: { system_attributes: { WorkflowType: "keyword" }, custom_attributes: { Amount: "double" } } };
  if (req.method === "POST" && is("worker", "sessions")) {
    const { worker_id, session_id, ttl_seconds = 1800 } = await body(req);
    const [at, epoch] = [new Date().toISOString(), Date.now() * 1000];
    changed.set(session_id, {
      ...data.sessions(born)[0], session_id, door: "worker", queue: "default", requirements: [], lease_owner: worker_id, epoch, idle_seconds: 0, lease_seconds: 120,
      holder: { worker_id, status: "active", last_heartbeat_at: at, is_stale: false }, active_activity_count: 0, ttl_seconds, max_concurrent_activities: 1,
      ttl_expires_at: new Date(Date.now() + ttl_seconds * 1000).toISOString(), created_at: at, last_activity_at: at,
      timeline: [{ at, what: "claimed", worker_id, by: worker_id, epoch, release: "0.1.0" }],
    });
    return { status: 201, body: { admitted: true, outcome: "created" } };
  }
  if (is("workers")) return { status: 200, body: { namespace: "default", workers: flags.empty ? [] : data.workers(born) } };
  const renewed = new Date(Date.now() + 21_000).toISOString();
  const recorded = flags.empty ? [] : data.sessions(born);
  const sessions = [...changed.values(), ...recorded.filter((s) => !changed.has(s.session_id))].map((s) =>
    s.status === "active" && s.lease_owner ? { ...s, lease_expires_at: renewed } : s,
  );
  if (req.method === "POST" && (is("worker-sessions", "*", "close") || is("worker-sessions", "*", "migrate"))) {
    const s = sessions.find((s) => s.session_id === path[1]);
    if (!s) return gone("worker_session");
    const [{ reason, worker_id }, at, close] = [await body(req), new Date().toISOString(), path[2] === "close"];
    if (s.closed_at) return refuse(409, "worker_session_not_active", `session ${s.session_id} has ended`);
    const why = close ? `${reason || "closed"} by bootstrap` : `migrated${reason && `: ${reason}`}`;
    const event = { at, what: close ? "closed" : "released", by: "bootstrap", why, ran: 0, renewals: 2, idle_seconds: 4, ...(s.lease_owner && { worker_id: s.lease_owner, epoch: s.epoch }) };
    const now = { ...s, holder: null, ended_reason: why, timeline: [...s.timeline, event], ...(close ? { status: "closed", closed_at: at } : { lease_owner: null, kept_for: worker_id }) };
    changed.set(s.session_id, now);
    return { status: 200, body: { namespace: "default", outcome: close ? "closed" : "migrated", session: now } };
  }
  if (is("worker-sessions")) {
    const fits = sessions.filter((s) => !q.get("status") || s.status === q.get("status"));
    return { status: 200, body: { namespace: "default", metrics: { total: sessions.length, active: 1, closed: 1, orphaned: 1 }, sessions: fits.map(({ timeline, ...s }) => s), next_page_token: null } };
  }
  if (is("worker-sessions", "*", "attempts")) {
    const all = data.attempts(born).filter((a) => a.session_id === path[1] && (!Number(q.get("epoch")) || a.epoch === Number(q.get("epoch"))));
    const { rows, next } = page(all, Number(q.get("page_size") ?? 50), q.get("next_page_token"));
    return { status: 200, body: { namespace: "default", session_id: path[1], attempts: rows, next_page_token: next } };
  }
  if (is("worker-sessions", "*")) {
    const session = sessions.find((s) => s.session_id === path[1]);
    return session ? { status: 200, body: { namespace: "default", session } } : gone("worker_session");
  }
  const queues = flags.empty ? [] : data.taskQueues(born);
  if (is("task-queues")) return { status: 200, body: { namespace: "default", task_queues: queues, next_page_token: null } };
  if (is("task-queues", "*")) {
    const queue = queues.find((queue) => queue.name === path[1]) ?? (queues[0] && { ...queues[0], name: path[1] });
    return queue ? { status: 200, body: queue } : gone("task_queue");
  }
  return refuse(404, "not_found", "no such route");
}

function file(path, res) {
  const name = normalize(join(dist, path));
  const found = name.startsWith(dist) && existsSync(name) && statSync(name).isFile() ? name : join(dist, "index.html");
  res.writeHead(200, { "Content-Type": kinds[extname(found)] ?? "application/octet-stream", "Content-Security-Policy": policy });
  createReadStream(found).pipe(res);
}

const server = createServer((req, res) => {
  const url = new URL(req.url, "http://localhost");
  if (!url.pathname.startsWith("/api/")) return file(url.pathname, res);
  if (url.pathname.endsWith("/history/stream")) {
    // Recorded runs do not change, so the stream stays open without events.
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    res.write("retry: 1000\n\n");
    const beat = setInterval(() => res.write(": still here\n\n"), 15_000);
    return void res.on("close", () => clearInterval(beat));
  }
  answer(req, url).then(
    ({ status, body, cookie }) => {
      res.writeHead(status, { "Content-Type": "application/json", ...(cookie && { "Set-Cookie": cookie }) });
      res.end(JSON.stringify(body));
    },
    (err) => {
      res.writeHead(500, { "Content-Type": "application/json" });
      res.end(JSON.stringify({ reason: "internal", message: String(err) }));
    },
  );
});
const dashboard = new Server(server, { path: "/api/socket.io", serveClient: false }).of("/dashboard");
setInterval(() => dashboard.emit("hint", { kind: "run", id: data.openRun, namespace: "default", workflow_id: "film-0042", last_seq: 13 }), 4000).unref();
server.listen(Number(flags.port), "127.0.0.1", () => {
  console.log(`ready http://127.0.0.1:${server.address().port} http://127.0.0.1:${server.address().port}/runs/${data.sampleRun}`);
});
