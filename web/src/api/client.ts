import type { From } from "./history";
import type { Where } from "./past";
import { ApiError, query, request } from "./request";
import type {
  FindResponse,
  ActivityLogs, ActivityStarted, FleetDrains, FleetRequest, FleetSettings, FleetSettingsRequest, FleetVerb, HistoryEvent, HistoryPage, Json, Limits, Me, NamespaceList, NamespaceRequest, NamespaceView, Overview, QueryResponse,
  QueueList, QueueState, Redriven, ResetRequest, RunCounts, RunList, RunView, RunsOfWorkflow, Schedule, ScheduleHistory, ScheduleList, ScheduleReceipt, ScheduleRequest,
  ScheduleSpec, ScheduleTimes, SearchAttributes, SessionAttempts, SessionDone, SessionList, SessionPast, SessionShown, StartActivity, StartRequest,
  Started, Updated, WasReset, WorkerList,
} from "./types";

export * from "./history";
export * from "./request";

export interface RunFilter {
  status?: string | undefined;
  kind?: string | undefined;
  type?: string | undefined;
  q?: string | undefined;
  after?: string | undefined;
}

/** Identifies a run. */
export interface RunKey {
  namespace: string;
  workflow_id: string;
  run_id: string;
}

const run = (k: RunKey) => `/api/workflows/${encodeURIComponent(k.workflow_id)}/runs/${encodeURIComponent(k.run_id)}`;

// The signal, cancel and terminate routes act on the workflow's current run, which is the only one that can be open.
const workflow = (k: RunKey) => `/api/workflows/${encodeURIComponent(k.workflow_id)}`;

export interface SessionKey {
  namespace: string;
  session_id: string;
}

/** Options of a migration: the new owner, or any suitable worker; at once, or after the running activities have ended. */
export interface Migration {
  worker: string;
  force: boolean;
  reason: string;
}

const session = (k: SessionKey) => `/api/worker-sessions/${encodeURIComponent(k.session_id)}`;

const schedule = (k: ScheduleKey) => `/api/schedules/${encodeURIComponent(k.schedule_id)}`;

/** Identifies a schedule. */
export interface ScheduleKey {
  namespace: string;
  schedule_id: string;
}

/** Identifies a task queue. */
export interface QueueKey {
  namespace: string;
  name: string;
}

const queue = (name: string) => `/api/task-queues/${encodeURIComponent(name)}`;

export const api = {
  runs: (namespace: string, f: RunFilter, signal?: AbortSignal) =>
    request<RunList>(`/api/workflows${query({ stored_status: f.status === "stuck" ? undefined : f.status, stuck: f.status === "stuck" || undefined, kind: f.kind, workflow_type: f.type, query: f.q, page_size: 50, wait_reasons: true, partial: f.q || f.kind ? true : undefined, values: "none", next_page_token: f.after })}`, {
      namespace,
      ...(signal && { signal }),
    }),
  start: (namespace: string, body: StartRequest) =>
    request<Started>("/api/workflows", { method: "POST", namespace, body }),
  startActivity: (namespace: string, body: StartActivity) =>
    request<ActivityStarted>("/api/sojourn/activities", { method: "POST", namespace, body }),
  run: (namespace: string, id: string, signal?: AbortSignal) =>
    request<RunView>(`/api/runs/${encodeURIComponent(id)}?values=preview`, { namespace, ...(signal && { signal }) }),
  runsOf: (k: RunKey) => request<RunsOfWorkflow>(`${workflow(k)}/runs`, { namespace: k.namespace }),
  /** The complete memo of a run. */
  memo: (k: RunKey) => request<RunView>(`/api/runs/${encodeURIComponent(k.run_id)}`, { namespace: k.namespace }).then((r) => r.memo),
  history: (k: RunKey, from: From, signal?: AbortSignal) =>
    request<HistoryPage>(`${run(k)}/history${query({ page_size: 500, ...from, values: "preview" })}`, {
      namespace: k.namespace,
      ...(signal && { signal }),
    }),
  /** One event with complete values. */
  event: async (k: RunKey, sequence: number, signal?: AbortSignal): Promise<HistoryEvent> => {
    const page = await request<HistoryPage>(`${run(k)}/history${query({ page_size: 1, after: sequence - 1, decoded: true })}`, {
      namespace: k.namespace,
      ...(signal && { signal }),
    });
    const event = page.events[0];
    if (!event) throw new ApiError(404, "not_found", `Event ${sequence} was not found.`);
    return event;
  },
  logs: (namespace: string, task: string, attempt: number | undefined, after: number, signal?: AbortSignal) =>
    request<ActivityLogs>(`/api/tasks/${encodeURIComponent(task)}/logs${query({ attempt, after })}`, { namespace, ...(signal && { signal }) }),
  signal: (k: RunKey, name: string, input: Json[]) =>
    request(`${workflow(k)}/signal/${encodeURIComponent(name)}`, { method: "POST", namespace: k.namespace, body: { input } }),
  update: (k: RunKey, name: string, input: Json[]) =>
    request<Updated>(`${workflow(k)}/update/${encodeURIComponent(name)}`, {
      method: "POST",
      namespace: k.namespace,
      body: { input, wait_for: "completed" },
    }),
  query: (k: RunKey, name: string, input: Json[]) =>
    request<QueryResponse>(`${run(k)}/query/${encodeURIComponent(name)}`, { method: "POST", namespace: k.namespace, body: { input } }),
  repair: (k: RunKey) => request(`${workflow(k)}/repair`, { method: "POST", namespace: k.namespace, body: {} }),
  redrive: (k: RunKey, id: string) =>
    request<Redriven>(`${run(k)}/redrive`, { method: "POST", namespace: k.namespace, body: { request_id: id } }),
  reset: (k: RunKey, body: ResetRequest) =>
    request<WasReset>(`${run(k).replace("/api/", "/api/sojourn/")}/reset`, { method: "POST", namespace: k.namespace, body }),
  cancel: (k: RunKey, reason: string) => request(`${workflow(k)}/cancel`, { method: "POST", namespace: k.namespace, body: { reason } }),
  requestCancellation: (k: RunKey, reason: string) =>
    request(`${workflow(k)}/request-cancellation`, { method: "POST", namespace: k.namespace, body: { reason } }),
  terminate: (k: RunKey, reason: string) =>
    request(`${workflow(k)}/terminate`, { method: "POST", namespace: k.namespace, body: { reason } }),
  workers: (namespace: string) => request<WorkerList>("/api/workers", { namespace }),
  fleetSettings: (namespace: string) => request<FleetSettings>("/api/sojourn/fleet/settings", { namespace }),
  setFleetSettings: (namespace: string, body: FleetSettingsRequest) =>
    request<FleetSettings>("/api/sojourn/fleet/settings", { method: "PUT", namespace, body }),
  drains: (namespace: string) => request<FleetDrains>("/api/sojourn/fleet/drains", { namespace }),
  operateFleet: (namespace: string, verb: FleetVerb, body: FleetRequest) => request(`/api/sojourn/fleet/${verb}`, { method: "POST", namespace, body }),
  sessions: (namespace: string, status: string | undefined, after: string | undefined) =>
    request<SessionList>(`/api/worker-sessions${query({ status, next_page_token: after })}`, { namespace }),
  heldBy: (namespace: string, owner: string) =>
    request<SessionList>(`/api/worker-sessions${query({ owner, status: "active", page_size: 200 })}`, { namespace }),
  session: (k: SessionKey) => request<SessionShown>(session(k), { namespace: k.namespace }),
  sessionTimeline: (k: SessionKey, token: string) =>
    request<SessionPast>(`${session(k)}/timeline${query({ page_size: 100, next_page_token: token })}`, { namespace: k.namespace }),
  sessionAttempts: (k: SessionKey, epoch: number, token: string | null) =>
    request<SessionAttempts>(`${session(k)}/attempts${query({ epoch, page_size: 20, next_page_token: token })}`, { namespace: k.namespace }),
  closeSession: (k: SessionKey, reason: string) => request<SessionDone>(`${session(k)}/close`, { method: "POST", namespace: k.namespace, body: { reason } }),
  migrateSession: (k: SessionKey, m: Migration) =>
    request<SessionDone>(`${session(k)}/migrate`, {
      method: "POST",
      namespace: k.namespace,
      body: { reason: m.reason, force: m.force, ...(m.worker && { worker_id: m.worker }) },
    }),
  queues: (namespace: string, after: string | undefined) =>
    request<QueueList>(`/api/task-queues${query({ page_size: 50, next_page_token: after })}`, { namespace }),
  queue: (q: QueueKey) => request<QueueState>(queue(q.name), { namespace: q.namespace }),
  decideBuild: (q: QueueKey, verb: "promote" | "drain" | "resume", build: string | null) =>
    request(`${queue(q.name)}/build-ids/${verb}`, { method: "POST", namespace: q.namespace, body: { build_id: build } }),
  limitQueue: (q: QueueKey, limits: Limits) =>
    request(`${queue(q.name)}/limits`, { method: "PUT", namespace: q.namespace, body: limits }),
  schedules: (namespace: string, after: string | undefined) =>
    request<ScheduleList>(`/api/schedules${query({ page_size: 50, values: "none", next_page_token: after })}`, { namespace }),
  /** A schedule, complete or with previews of large values. */
  schedule: (k: ScheduleKey, whole = false) =>
    request<Schedule>(`${schedule(k)}${query({ values: whole ? undefined : "preview" })}`, { namespace: k.namespace }),
  scheduleHistory: (k: ScheduleKey, where: Where) =>
    request<ScheduleHistory>(`${schedule(k)}/history${query({ ...where })}`, { namespace: k.namespace }),
  scheduleTimes: (spec: ScheduleSpec, signal?: AbortSignal) =>
    request<ScheduleTimes>(`/api/sojourn/schedule-times${query({ spec: JSON.stringify(spec), count: 5 })}`, { ...(signal && { signal }) }),
  createSchedule: (namespace: string, body: ScheduleRequest) => request<ScheduleReceipt>("/api/schedules", { method: "POST", namespace, body }),
  updateSchedule: (k: ScheduleKey, body: ScheduleRequest) => request(schedule(k), { method: "PUT", namespace: k.namespace, body }),
  deleteSchedule: (k: ScheduleKey) => request(schedule(k), { method: "DELETE", namespace: k.namespace }),
  backfillSchedule: (k: ScheduleKey, start: string, end: string, overlap: string) =>
    request<ScheduleReceipt>(`${schedule(k)}/backfill`, {
      method: "POST",
      namespace: k.namespace,
      body: { start_time: start, end_time: end, ...(overlap && { overlap_policy: overlap }) },
    }),
  turnSchedule: (k: ScheduleKey, verb: "pause" | "resume" | "trigger", note: string) =>
    request<ScheduleReceipt>(`${schedule(k)}/${verb}`, {
      method: "POST",
      namespace: k.namespace,
      body: { ...(note && verb !== "trigger" && { note }) },
    }),
  namespaces: () => request<NamespaceList>("/api/namespaces"),
  createNamespace: (body: NamespaceRequest) => request<NamespaceView>("/api/namespaces", { method: "POST", body }),
  updateNamespace: (name: string, body: Omit<NamespaceRequest, "name">) =>
    request<NamespaceView>(`/api/namespaces/${encodeURIComponent(name)}`, { method: "PUT", body }),
  createAttribute: (namespace: string, body: { name: string; type: string }) => request("/api/search-attributes", { method: "POST", namespace, body }),
  searchAttributes: (namespace: string) => request<SearchAttributes>("/api/search-attributes", { namespace }),
  find: (namespace: string, id: string, signal?: AbortSignal) => request<FindResponse>(`/api/sojourn/find?id=${encodeURIComponent(id)}`, { namespace, signal }),
  runCounts: (namespace: string) => request<RunCounts>("/api/sojourn/run-counts", { namespace }),
  overview: (namespace: string) => request<Overview>("/api/sojourn/overview", { namespace }),
  me: () => request<Me>("/api/sojourn/me"),
  signIn: (token: string) => request("/api/sojourn/login", { method: "POST", body: { token } }),
  signOut: () => request("/api/sojourn/login", { method: "DELETE" }),
};
