// Recorded responses of an app with times moved to the present, for work on the dashboard without an app. Times are in
// milliseconds before now.

const iso = (now, before) => new Date(now - before).toISOString().replace("Z", "000Z");
export const epochOf = (now, before) => Math.round((now - before) * 1000);

const ulid = (n) => `01KAJ7Q2M4W8Y6${String(n).padStart(3, "0")}T5R9HXZBD`.slice(0, 26);
export const sampleRun = ulid(1);
export const openRun = ulid(2);
export const failedRun = ulid(3);
export const longRun = ulid(4);

const session = (run) => `${run}-1`;

function base(now, o) {
  return {
    namespace: "default", business_key: null, status_bucket: "running", is_terminal: false, closed_reason: null, task_queue: "default", run_number: 1,
    run_count: 1, is_current_run: true, payload_codec: "avro", execution_timeout_seconds: null, run_timeout_seconds: null,
    kind: "workflow", execution_deadline_at: null, run_deadline_at: null, output_envelope: null, closed_at: null, wait_kind: null, wait_reason: null, wait: null,
    memo: null, search_attributes: null, history_length: 0,
    actions: { can_signal: true, can_query: true, can_update: true, can_cancel: true, can_terminate: true, can_repair: false, can_archive: false },
    last_progress_at: iso(now, 1000), ...o,
  };
}

const closed = (status, bucket = status) => ({
  status, status_bucket: bucket, is_terminal: true, closed_reason: status,
  actions: { can_signal: false, can_query: true, can_update: false, can_cancel: false, can_terminate: false, can_repair: false, can_archive: true },
});

/** Makes events from rows [ms before now, type, payload, decoded?]. */
const record = (now, rows) =>
  rows.map(([before, event_type, payload, decoded], i) => ({
    id: `e${i + 1}`, sequence: i + 1, event_type, timestamp: iso(now, before), recorded_at: iso(now, before), payload, ...(decoded && { decoded }),
  }));

function activity(now, run, seq, name, session_id, at, start, end, args, result, more = {}) {
  const who = { activity_execution_id: `${run}-${seq}`, activity_type: name, sequence: seq };
  return [
    [at, "ActivityScheduled", { ...who, arguments: "AAAA", payload_codec: "avro", activity: { queue: "default" }, ...(session_id && { session_id }) }, { arguments: args }],
    [end, "ActivityCompleted", { ...who, result: "AAAA", payload_codec: "avro", activity_attempt_id: `${run}-${seq}-1`, attempt_number: 1, worker_id: "local", release: "0.1.0",
      ...(session_id && { session_epoch: epochOf(now, start) }), started_at: iso(now, start), ...more }, { result }],
  ];
}

function sample(now) {
  const t = 95_000;
  const s = session(sampleRun);
  const epoch = epochOf(now, t - 40);
  const act = (...a) => activity(now, sampleRun, ...a, { session_epoch: epoch });
  return record(now, [
    [t, "WorkflowStarted", { workflow_type: "research", workflow_id: "sample", run_id: sampleRun, run_number: 1, task_queue: "default", arguments: "AAAA", payload_codec: "avro" }, { arguments: ["testdata/corpus.txt"] }],
    [t - 18, "SessionStarted", { command_sequence: 1, session_id: s }],
    ...act(2, "index", s, t - 18, t - 40, t - 610, ["testdata/corpus.txt"], { documents: 412, terms: 9310 }),
    [t - 616, "SideEffectRecorded", { sequence: 3, result: "AAAA", payload_codec: "avro" }, { result: "01KAJ7Q2M4W8Y6" }],
    ...act(4, "search", s, t - 616, t - 619, t - 702, ["durable"], [{ word: "durable", score: 0.93 }, { word: "lasting", score: 0.71 }]),
    ...act(5, "summarize", s, t - 708, t - 711, t - 1004, [3], "Three passages speak of work that stays where its memory is."),
    [t - 1010, "TimerScheduled", { sequence: 6, timer_id: `${sampleRun}-6`, delay_seconds: 2, fire_at: iso(now, t - 3010) }],
    [t - 3012, "TimerFired", { sequence: 6, timer_id: `${sampleRun}-6`, delay_seconds: 2 }],
    [t - 3018, "SignalWaitOpened", { sequence: 7, signal_name: "approve", signal_wait_id: `${sampleRun}-7` }],
    [t - 41_200, "SignalReceived", { signal_name: "approve", workflow_signal_id: "sg1", value: "AAAA", payload_codec: "avro", request_id: `${sampleRun}-approve`, identity: "dev" }, { value: [true] }],
    [t - 41_206, "SignalApplied", { sequence: 7, signal_name: "approve", signal_wait_id: `${sampleRun}-7`, workflow_signal_id: "sg1", value: "AAAA", payload_codec: "avro" }, { value: [true] }],
    [t - 41_206, "SessionEnded", { command_sequence: 8, session_id: s, effect: "ended" }],
    [t - 41_206, "WorkflowCompleted", { output: "AAAA", payload_codec: "avro" }, { output: { approved: true, documents: 412, summary: "Three passages speak of work that stays where its memory is." } }],
  ]);
}

function open(now) {
  const t = 64_000;
  const s = "gpu-render-7";
  const mine = (seq, name) => ({ sequence: seq, activity_execution_id: `${openRun}-${seq}`, activity_type: name });
  const e1 = epochOf(now, t - 300);
  const e2 = epochOf(now, t - 31_000);
  const sched = (seq, name, args) => ({ ...mine(seq, name), arguments: "AAAA", payload_codec: "avro", activity: { queue: "gpu" }, session_id: s });
  return record(now, [
    [t, "WorkflowStarted", { workflow_type: "render", workflow_id: "film-0042", run_id: openRun, task_queue: "gpu", arguments: "AAAA", payload_codec: "avro" }, { arguments: [{ scene: 42, frames: 1800, quality: "final" }] }],
    [t - 30, "ActivityScheduled", sched(1, "load_scene"), { arguments: [42] }],
    [t - 30, "TimerScheduled", { sequence: 2, timer_id: `${openRun}-2`, delay_seconds: 3600, fire_at: iso(now, t - 3_600_030) }],
    [t - 9_300, "ActivityCompleted", { ...mine(1, "load_scene"), result: "AAAA", payload_codec: "avro", activity_attempt_id: `${openRun}-1-1`, attempt_number: 1, worker_id: "render-eu-3", session_epoch: e1, started_at: iso(now, t - 300) }, { result: { triangles: 18_442_091 } }],
    [t - 9_320, "ActivityScheduled", sched(3, "bake_light"), { arguments: [] }],
    [t - 9_320, "ActivityScheduled", { ...mine(4, "fetch_audio"), arguments: "AAAA", payload_codec: "avro", activity: { queue: "default" } }, { arguments: ["take-3.wav"] }],
    [t - 14_000, "ActivityRetryScheduled", { ...mine(4, "fetch_audio"), attempt_number: 1, worker_id: "local", started_at: iso(now, t - 9_400), retry_available_at: iso(now, t - 19_000), message: "503 from the store of takes", failure_category: "application" }],
    [t - 24_900, "ActivityCompleted", { ...mine(4, "fetch_audio"), result: "AAAA", payload_codec: "avro", attempt_number: 2, worker_id: "local", started_at: iso(now, t - 19_200) }, { result: "take-3.wav" }],
    [t - 38_000, "SessionRecovered", { command_sequence: 3, session_id: s, epoch: e2, rebuild_activity: "load_scene", cause: "worker_died", retries: 1 }],
    [t - 46_000, "ActivityCompleted", { ...mine(3, "bake_light"), result: "AAAA", payload_codec: "avro", attempt_number: 2, worker_id: "render-eu-5", session_epoch: e2, started_at: iso(now, t - 31_000), lost_deliveries: [{ delivery: 1, worker_id: "render-eu-3", session_epoch: e1, at: iso(now, t - 30_400), why: "lease_expired" }] }, { result: true }],
    [t - 46_020, "ActivityScheduled", sched(5, "render_frames"), { arguments: [0, 1800] }],
    [t - 46_020, "ActivityScheduled", { ...mine(6, "notify_lab"), arguments: "AAAA", payload_codec: "avro", activity: { queue: "lab" } }, { arguments: ["film-0042"] }],
    [t - 52_000, "SignalReceived", { signal_name: "note", value: "AAAA", payload_codec: "avro", identity: "mira" }, { value: ["warmer"] }],
  ]);
}

const openPending = (now) => ({
  activities: [
    { sequence: 5, activity_execution_id: `${openRun}-5`, activity_type: "render_frames", task_queue: "gpu", state: "leased", attempt_number: 1, worker_id: "render-eu-5", session_id: "gpu-render-7", session_epoch: epochOf(now, 33_000), scheduled_at: iso(now, 17_980), started_at: iso(now, 17_900), next_attempt_at: null, lease_expires_at: iso(now, -102_000), last_heartbeat_at: iso(now, 2000), progress: { current: 512, total: 1800, unit: "frames" } },
    { sequence: 6, activity_execution_id: `${openRun}-6`, activity_type: "notify_lab", task_queue: "lab", state: "ready", attempt_number: 1, scheduled_at: iso(now, 17_980), started_at: null, next_attempt_at: null, lease_expires_at: null, last_heartbeat_at: null, wait: { kind: "activity", reason: "no_worker", needs_attention: true, name: "notify_lab", task_queue: "lab", message: 'activity "notify_lab": no live worker is polling queue "lab"' } },
  ],
  timers: [{ sequence: 2, timer_id: `${openRun}-2`, fire_at: iso(now, 64_000 - 3_600_030) }],
  waits: [], sessions: ["gpu-render-7"], workflow_task: null,
});

function failed(now) {
  const t = 3_900_000;
  const who = { sequence: 1, activity_execution_id: `${failedRun}-1`, activity_type: "charge_card" };
  const tries = [[0, 340, 1340], [1400, 1700, 3700], [3750, 4100, 4100]];
  return record(now, [
    [t, "WorkflowStarted", { workflow_type: "checkout", workflow_id: "order-8841", run_id: failedRun, arguments: "AAAA", payload_codec: "avro" }, { arguments: [{ order: 8841, cents: 12_900 }] }],
    [t - 20, "ActivityScheduled", { ...who, arguments: "AAAA", payload_codec: "avro", activity: { queue: "default" } }, { arguments: [12_900] }],
    ...tries.slice(0, 2).map(([from, to, next], i) => [t - 30 - to, "ActivityRetryScheduled", { ...who, attempt_number: i + 1, worker_id: "local", started_at: iso(now, t - 30 - from), retry_available_at: iso(now, t - 30 - next), message: "gateway timed out", failure_category: "timeout", timeout_kind: i ? "" : "start_to_close" }]),
    [t - 4130, "ActivityFailed", { ...who, attempt_number: 3, worker_id: "local", started_at: iso(now, t - 3780), message: "card declined: insufficient funds", exception_type: "CardDeclined", non_retryable: true, failure_category: "application" }],
    [t - 4140, "WorkflowFailed", { message: "card declined: insufficient funds", exception_type: "CardDeclined", failure_category: "application" }],
  ]);
}

function long(now) {
  const t = 700_000;
  const rows = [[t, "WorkflowStarted", { workflow_type: "backfill", workflow_id: "backfill-2026", run_id: longRun, arguments: "AAAA", payload_codec: "avro" }, { arguments: [{ year: 2026 }] }]];
  for (let i = 1; i <= 700; i++) {
    const at = t - i * 60;
    rows.push(...activity(now, longRun, i, `import_day`, undefined, at, at - 4, at - 40 - (i % 17) * 9, [i], i * 31));
  }
  rows.sort((a, b) => b[0] - a[0]);
  rows.push([t - 43_000, "WorkflowCompleted", { output: "AAAA", payload_codec: "avro" }, { output: 700 }]);
  return record(now, rows);
}

const histories = { [sampleRun]: sample, [openRun]: open, [failedRun]: failed, [longRun]: long };

export const history = (id, now) => (histories[id] ?? ((n) => sample(n).slice(0, 1)))(now);

export function runs(now) {
  const named = [
    base(now, { workflow_id: "film-0042", run_id: openRun, workflow_type: "render", status: "running", task_queue: "gpu", started_at: iso(now, 64_000), input: [{ scene: 42, frames: 1800, quality: "final" }], wait: { kind: "activity", reason: "no_worker", needs_attention: true, name: "notify_lab", task_queue: "lab", message: 'activity "notify_lab": no live worker is polling queue "lab"' }, pending: openPending(now) }),
    base(now, { workflow_id: "sample", run_id: sampleRun, workflow_type: "research", ...closed("completed"), started_at: iso(now, 95_000), closed_at: iso(now, 53_794), input: ["testdata/corpus.txt"], output: { approved: true, documents: 412, summary: "Three passages speak of work that stays where its memory is." } }),
    base(now, { workflow_id: "backfill-2026", run_id: longRun, workflow_type: "backfill", ...closed("completed"), started_at: iso(now, 700_000), closed_at: iso(now, 657_000), input: [{ year: 2026 }], output: 700, run_number: 3, run_count: 3 }),
    base(now, { workflow_id: "order-8841", run_id: failedRun, workflow_type: "checkout", business_key: "8841", ...closed("failed"), started_at: iso(now, 3_900_000), closed_at: iso(now, 3_895_860), input: [{ order: 8841, cents: 12_900 }], error: "card declined: insufficient funds", failure: { message: "card declined: insufficient funds", exception_type: "CardDeclined", failure_category: "application", non_retryable: true } }),
  ];
  const kinds = ["checkout", "research", "ingest_mailbox", "nightly_report", "render"];
  const ends = ["completed", "completed", "completed", "failed", "completed", "cancelled", "completed", "terminated", "completed", "timed_out"];
  const rest = Array.from({ length: 116 }, (_, i) => {
    const status = ends[i % ends.length];
    const at = 4_000_000 + i * i * 9_000 + i * 311_000;
    const end = status === "timed_out" ? { ...closed("failed"), closed_reason: "timed_out" } : closed(status, status === "completed" ? "completed" : "failed");
    return base(now, { workflow_id: `${kinds[i % 5]}-${9000 - i}`, run_id: ulid(100 + i), workflow_type: kinds[i % 5], ...end, started_at: iso(now, at), closed_at: iso(now, at - 900 - (i % 13) * 7_300) });
  });
  return [...named, ...rest].map((r) => ({ ...r, history_length: histories[r.run_id] ? history(r.run_id, now).length : 1 }));
}

export function sessions(now) {
  const s = (o) => ({
    namespace: "default", door: "workflow", scope: "workflow", connection: null, requirements: [], lease_owner: null, holder: null, ttl_expires_at: null,
    closed_at: null, failure_reason: null, lease_seconds: 30, max_concurrent_activities: 8, create_if_missing: true, allow_reacquire_after_failure: true,
    active_activity_count: 0, ready_activity_count: 0, release: "0.1.0", last_heartbeat_at: iso(now, 4000), ...o,
  });
  return [
    s({ session_id: "gpu-render-7", door: "implicit", scope: "namespace", queue: "gpu", requirements: ["gpu:nvidia-l4"], status: "active", epoch: epochOf(now, 33_000), lease_owner: "render-eu-5", holder: { worker_id: "render-eu-5", task_queue: "gpu", status: "active", last_heartbeat_at: iso(now, 3000), is_stale: false }, lease_expires_at: iso(now, -21_000), ttl_expires_at: iso(now, -1_920_000), ttl_seconds: 3600, claims: 2, idle_seconds: 300, active_activity_count: 1, last_activity_at: iso(now, 2000), created_at: iso(now, 63_700), updated_at: iso(now, 2000), timeline: [
      { at: iso(now, 63_700), what: "claimed", worker_id: "render-eu-3", by: "render-eu-3", epoch: epochOf(now, 63_700), task_id: `${openRun}-1`, release: "0.1.0" },
      { at: iso(now, 33_600), what: "expired", worker_id: "render-eu-3", epoch: epochOf(now, 63_700), why: "lease_expired", ran: 2, renewals: 1, idle_seconds: 30 },
      { at: iso(now, 33_000), what: "reclaimed", worker_id: "render-eu-5", by: "render-eu-5", epoch: epochOf(now, 33_000), task_id: `${openRun}-3`, release: "0.1.0" },
    ] }),
    s({ session_id: session(sampleRun), workflow_id: "sample", queue: "default", status: "closed", epoch: epochOf(now, 94_960), lease_owner: "local", lease_expires_at: iso(now, 53_794), last_activity_at: iso(now, 94_000), created_at: iso(now, 94_982), updated_at: iso(now, 53_794), closed_at: iso(now, 53_794), timeline: [
      { at: iso(now, 94_982), what: "started" },
      { at: iso(now, 94_960), what: "claimed", worker_id: "local", epoch: epochOf(now, 94_960), task_id: `${sampleRun}-2-1` },
      { at: iso(now, 53_794), what: "closed", worker_id: "local", epoch: epochOf(now, 94_960), by: `run ${sampleRun}`, why: "ended_by_workflow", ran: 3, renewals: 2 },
    ] }),
    s({ session_id: "mail-import-anna", door: "worker", scope: "namespace", queue: "mail", status: "orphaned", epoch: epochOf(now, 900_000), lease_owner: "mail-1", lease_expires_at: iso(now, 600_000), ready_activity_count: 3, failure_reason: "worker_heartbeat_stale", ended_reason: "worker_heartbeat_stale", wait: { kind: "activity", reason: "no_worker", needs_attention: true, task_queue: "mail", message: 'an activity: no live worker is polling queue "mail"' }, lease_seconds: 120, last_activity_at: iso(now, 640_000), created_at: iso(now, 900_000), updated_at: iso(now, 600_000), timeline: [
      { at: iso(now, 900_000), what: "claimed", worker_id: "mail-1", by: "mail-1", epoch: epochOf(now, 900_000), release: "0.1.0" },
      { at: iso(now, 600_000), what: "orphaned", worker_id: "mail-1", epoch: epochOf(now, 900_000), why: "worker_heartbeat_stale", ran: 12, renewals: 9, idle_seconds: 40 },
    ] }),
  ];
}

/** The attempts in the sessions. */
export function attempts(now) {
  const a = (run, seq, type, at, took, o) => ({
    workflow_id: run === openRun ? "film-0042" : "sample", run_id: run, task_id: `${run}-${seq}`, activity_attempt_id: `${run}-${seq}-1`, activity_type: type,
    attempt_number: 1, outcome: "completed", started_at: iso(now, at), ended_at: iso(now, at - took), ...o,
  });
  const held = (session_id, worker_id, at) => ({ session_id, worker_id, epoch: epochOf(now, at) });
  const [first, second, mine] = [held("gpu-render-7", "render-eu-3", 63_700), held("gpu-render-7", "render-eu-5", 33_000), held(session(sampleRun), "local", 94_960)];
  return [
    a(openRun, 5, "render_frames", 17_900, 0, { ...second, outcome: "running", ended_at: null }),
    a(openRun, 3, "bake_light", 31_000, 13_000, { ...second, activity_attempt_id: `${openRun}-3-2`, attempt_number: 2 }),
    a(openRun, 3, "bake_light", 51_000, 17_400, { ...first, outcome: "expired", why: "lease_expired", attempt_number: undefined }),
    a(openRun, 1, "load_scene", 63_700, 9_000, first),
    a(sampleRun, 2, "index", 94_960, 812, mine),
  ];
}

export function workers(now) {
  const w = (o) => ({
    namespace: "default", runtime: "go", sdk_version: "0.1.0", build_id: null, release: "0.1.0", capabilities: ["worker_sessions"], supported_workflow_types: ["research"],
    supported_activity_types: ["index", "search", "summarize"], max_concurrent_workflow_tasks: 4, max_concurrent_activity_tasks: 4, max_concurrent_worker_sessions: 10,
    session_settings: { lease_ms: 30_000, buffer_ms: 5000, idle_ms: 300_000 }, heartbeat_interval_seconds: 10, registered_at: iso(now, 5_000_000),
    updated_at: iso(now, 3000), last_heartbeat_at: iso(now, 3000), active_leases: 0, held_sessions: 0, incarnation: "01KAJ7Q2M4W8Y6ZZZT5R9HXZBD",
    isolation: { level: "process", uid_per_session: false, landlock_abi: 0, missing: ["read files of the worker's user", "open network connections"], memory: "watchdog", disk: "watchdog", egress: "open", runtimes: { node: "/usr/bin/node" } },
    machine: { workerId: "local", ip: "127.0.0.1", cpuUsagePercentage: 12.4, ramUsagePercentage: 38, totalAvailableRamInBytes: 25_769_803_776, totalCpuCores: 2, diskInfo: { total: 1e11, free: 7e10, used: 3e10, percentage: 30 } },
    task_slots: { workflow_available: 4, activity_available: 3, session_available: 9 }, ...o,
  });
  return [
    w({ worker_id: "local", task_queue: "default", task_queues: ["default"], status: "active", held_sessions: 1, active_leases: 1 }),
    w({ worker_id: "render-eu-5", task_queue: "gpu", task_queues: ["gpu"], status: "active", held_sessions: 1, active_leases: 1, capabilities: ["worker_sessions", "gpu:nvidia-l4"], max_concurrent_activity_tasks: 1, task_slots: { workflow_available: 4, activity_available: 0 }, isolation: { level: "namespaced", uid_per_session: true, missing: [], memory: "cgroup2", disk: "tmpfs", egress: "filtered", runtimes: {} } }),
    w({ worker_id: "render-eu-6", task_queue: "gpu", task_queues: ["gpu", "default"], status: "mismatched", release: "0.0.9", gate: "its release 0.0.9 is not the app's 0.1.0; it gets no new work" }),
    w({ worker_id: "mail-1", task_queue: "mail", task_queues: ["mail"], status: "stale", runtime: "python", sdk_version: "2.12.0", release: "", build_id: "mail@4f2c", last_heartbeat_at: iso(now, 640_000), machine: null, isolation: null, task_slots: null }),
  ];
}

export function overview(now) {
  const of = (status, list) => list.filter((x) => (x.closed_reason === "timed_out" ? "timed_out" : x.status) === status).length;
  const all = runs(now);
  const names = ["running", "completed", "failed", "cancelled", "terminated", "timed_out", "continued"];
  return {
    release: "0.1.0", app_id: "01KAJ7APP", store: "sqlite", uptime_seconds: 5000,
    counts: {
      runs: Object.fromEntries(names.map((n) => [n, of(n, all)])),
      sessions: { active: 1, closed: 1, orphaned: 1 },
      workers: { active: 2, draining: 0, mismatched: 1, stale: 1 },
    },
    queues: [
      { namespace: "default", queue: "default", kind: "activity", ready: 0, leased: 1, delayed: 0, oldest_ready: null },
      { namespace: "default", queue: "lab", kind: "activity", ready: 1, leased: 0, delayed: 0, oldest_ready: iso(now, 17_980) },
      { namespace: "default", queue: "mail", kind: "activity", ready: 3, leased: 0, delayed: 2, oldest_ready: iso(now, 640_000) },
    ],
  };
}

export const taskQueues = (born) => {
  const now = Date.now();
  const tally = (more) => ({ ready_count: 0, leased_count: 0, expired_lease_count: 0, delayed_count: 0, oldest_ready_at: null, ...more });
  const admission = (more) => ({
    status: "unlimited", server_active_lease_count: 0, server_max_active_leases_per_queue: null, server_namespace_active_lease_count: 0,
    server_max_active_leases_per_namespace: null, server_dispatch_count_this_minute: 0, server_max_dispatches_per_minute: null,
    server_namespace_dispatch_count_this_minute: 0, server_max_dispatches_per_minute_per_namespace: null, ...more,
  });
  const cohort = (more) => ({
    build_id: null, rollout_status: "active", active_worker_count: 1, draining_worker_count: 0, stale_worker_count: 0, total_worker_count: 1, runtimes: ["go"],
    sdk_versions: [], last_heartbeat_at: iso(now, 4_000), first_seen_at: iso(born, 900_000), drain_intent: "active", drained_at: null, promoted_at: null,
    new_start_selected: false, ...more,
  });
  const queue = (name, more) => ({
    name, namespace: "default", promoted_build_id: null, limits: {}, build_ids: [cohort({})], pollers: [], current_leases: [],
    stats: { approximate_backlog_count: 0, workflow_tasks: tally({}), activity_tasks: tally({}), pollers: { active_count: 1, stale_count: 0, waiting_count: 2 } },
    admission: { workflow_tasks: admission({}), activity_tasks: admission({}) }, ...more,
  });
  const why = "queue \"gpu\" is at its concurrency limit (2 of 2 activity tasks leased)";
  return [
    queue("default", {}),
    queue("gpu", {
      promoted_build_id: "render@9c1", limits: { activity_tasks: { max_active_leases: 2, max_dispatches_per_minute: 120 } },
      stats: {
        approximate_backlog_count: 7, workflow_tasks: tally({}), pollers: { active_count: 2, stale_count: 0, waiting_count: 1 },
        activity_tasks: tally({ ready_count: 7, leased_count: 2, oldest_ready_at: iso(now, 95_000) }),
      },
      admission: {
        workflow_tasks: admission({}),
        activity_tasks: admission({
          status: "throttled", wait: { kind: "activity", reason: "budget_leases", needs_attention: false, task_queue: "gpu", used: 2, limit: 2, message: why }, server_active_lease_count: 2, server_max_active_leases_per_queue: 2, server_dispatch_count_this_minute: 31,
          server_max_dispatches_per_minute: 120,
        }),
      },
      build_ids: [
        cohort({ build_id: "render@9c1", new_start_selected: true, promoted_at: iso(now, 300_000) }),
        cohort({ build_id: "render@8a0", rollout_status: "draining", active_worker_count: 0, draining_worker_count: 1, drain_intent: "draining", drained_at: iso(now, 200_000) }),
      ],
      pollers: [
        { worker_id: "render-eu-5", runtime: "go", build_id: "render@9c1", status: "active", last_heartbeat_at: iso(now, 4_000) },
        { worker_id: "render-eu-4", runtime: "go", build_id: "render@8a0", status: "active", last_heartbeat_at: iso(now, 6_000) },
      ],
    }),
  ];
};
