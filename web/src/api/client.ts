import type {
  HistoryEvent, HistoryPage, Json, Limits, Me, NamespaceView, Overview, QueueList, QueueState, RunList, RunOfWorkflow, RunView, Schedule, ScheduleEvent, ScheduleList,
  SearchAttributes, SessionAttempts, SessionDone, SessionList, SessionView, WorkerView,
} from "./types";

/** A refusal by the API: reason is for programs, message for people. status 0 means that no answer came. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly position?: number, // of the character of a filter that is wrong, from 1
  ) {
    super(message);
    this.name = "ApiError";
  }
}

const onUnauthorized = new Set<() => void>();

/** Calls fn whenever a request is answered 401; returns the way to stop. */
export function whenUnauthorized(fn: () => void): () => void {
  onUnauthorized.add(fn);
  return () => onUnauthorized.delete(fn);
}

let skew = 0;

/** The server's time now, in milliseconds: leases count down by its clock, not by this machine's. */
export function serverNow(): number {
  return Date.now() + skew;
}

/** Learns how far this machine's clock is off. A Date header has whole seconds, so less than two are taken for none. */
export function learnSkew(date: string | null, now = Date.now()): void {
  const at = date ? Date.parse(date) : NaN;
  if (Number.isNaN(at)) return;
  const off = at + 500 - now;
  skew = Math.abs(off) < 2000 ? 0 : off;
}

interface Options {
  method?: string;
  body?: unknown;
  namespace?: string;
  signal?: AbortSignal;
}

async function request<T>(path: string, { method = "GET", body, namespace, signal }: Options = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json", "X-Durable-Workflow-Control-Plane-Version": "2" };
  if (namespace) headers["X-Namespace"] = namespace;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let res: Response;
  try {
    res = await fetch(path, {
      method,
      headers,
      credentials: "same-origin",
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
    });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new ApiError(0, "unreachable", "The app does not answer.");
  }
  learnSkew(res.headers.get("Date"));
  const text = await res.text();
  let answer: unknown = null;
  try {
    answer = text === "" ? null : JSON.parse(text);
  } catch {
    if (res.ok) throw new ApiError(res.status, "malformed_json", `The answer to ${path} is not JSON.`);
  }
  if (!res.ok) {
    const refusal = (answer ?? {}) as { reason?: string; message?: string; error?: string; position?: number };
    if (res.status === 401) for (const fn of onUnauthorized) fn();
    const message = refusal.message ?? refusal.error ?? `${res.status} ${res.statusText}`;
    throw new ApiError(res.status, refusal.reason ?? "unknown", message, refusal.position);
  }
  return answer as T;
}

/** A query string of the members that have a value, or "". */
export function query(members: Record<string, string | number | boolean | undefined | null>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (value !== undefined && value !== null && value !== "") q.set(name, String(value));
  }
  const text = q.toString();
  return text && `?${text}`;
}

export interface RunFilter {
  status?: string | undefined;
  type?: string | undefined;
  q?: string | undefined;
  after?: string | undefined;
}

/** Which run an action or a history is about. */
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

/** How a session is to change hands: to a worker, or to any that can have it; at once, or when what runs in it has ended. */
export interface Migration {
  worker: string;
  force: boolean;
  reason: string;
}

const session = (k: SessionKey) => `/api/worker-sessions/${encodeURIComponent(k.session_id)}`;

const schedule = (k: ScheduleKey) => `/api/schedules/${encodeURIComponent(k.schedule_id)}`;

/** Which schedule a command is about. */
export interface ScheduleKey {
  namespace: string;
  schedule_id: string;
}

const queue = (name: string) => `/api/task-queues/${encodeURIComponent(name)}`;

export const api = {
  runs: (f: RunFilter, signal?: AbortSignal) =>
    request<RunList>(
      `/api/workflows${query({ status: f.status, workflow_type: f.type, query: f.q, page_size: 50, next_page_token: f.after })}`,
      { ...(signal && { signal }) },
    ),
  run: (id: string, signal?: AbortSignal) => request<RunView>(`/api/runs/${encodeURIComponent(id)}`, { ...(signal && { signal }) }),
  runsOf: (k: RunKey) => request<{ runs: RunOfWorkflow[] | null }>(`${workflow(k)}/runs`, { namespace: k.namespace }),
  history: (k: RunKey, token: string | null, signal?: AbortSignal) =>
    request<HistoryPage>(`${run(k)}/history${query({ page_size: 500, next_page_token: token, decoded: true })}`, {
      namespace: k.namespace,
      ...(signal && { signal }),
    }),
  signal: (k: RunKey, name: string, input: Json[]) =>
    request(`${workflow(k)}/signal/${encodeURIComponent(name)}`, { method: "POST", namespace: k.namespace, body: { input } }),
  update: (k: RunKey, name: string, input: Json[]) =>
    request<{ update_status: string; result: Json; update_id: string }>(`${workflow(k)}/update/${encodeURIComponent(name)}`, {
      method: "POST",
      namespace: k.namespace,
      body: { input, wait_for: "completed" },
    }),
  query: (k: RunKey, name: string, input: Json[]) =>
    request<{ result: Json }>(`${run(k)}/query/${encodeURIComponent(name)}`, { method: "POST", namespace: k.namespace, body: { input } }),
  repair: (k: RunKey) => request(`${workflow(k)}/repair`, { method: "POST", namespace: k.namespace, body: {} }),
  cancel: (k: RunKey, reason: string) => request(`${workflow(k)}/cancel`, { method: "POST", namespace: k.namespace, body: { reason } }),
  terminate: (k: RunKey, reason: string) =>
    request(`${workflow(k)}/terminate`, { method: "POST", namespace: k.namespace, body: { reason } }),
  workers: () => request<{ workers: WorkerView[] | null }>("/api/workers"),
  sessions: (status: string | undefined, after: string | undefined) =>
    request<SessionList>(`/api/worker-sessions${query({ status, next_page_token: after })}`),
  session: (id: string) => request<{ namespace: string; session: SessionView }>(`/api/worker-sessions/${encodeURIComponent(id)}`),
  sessionAttempts: (id: string, epoch: number, token: string | null) =>
    request<SessionAttempts>(`/api/worker-sessions/${encodeURIComponent(id)}/attempts${query({ epoch, page_size: 20, next_page_token: token })}`),
  closeSession: (k: SessionKey, reason: string) => request<SessionDone>(`${session(k)}/close`, { method: "POST", namespace: k.namespace, body: { reason } }),
  migrateSession: (k: SessionKey, m: Migration) =>
    request<SessionDone>(`${session(k)}/migrate`, {
      method: "POST",
      namespace: k.namespace,
      body: { reason: m.reason, force: m.force, ...(m.worker && { worker_id: m.worker }) },
    }),
  queues: (after: string | undefined) => request<QueueList>(`/api/task-queues${query({ page_size: 50, next_page_token: after })}`),
  queue: (name: string) => request<QueueState>(queue(name)),
  decideBuild: (q: { name: string; namespace: string }, verb: "promote" | "drain" | "resume", build: string | null) =>
    request(`${queue(q.name)}/build-ids/${verb}`, { method: "POST", namespace: q.namespace, body: { build_id: build } }),
  limitQueue: (q: { name: string; namespace: string }, limits: Limits) =>
    request(`${queue(q.name)}/limits`, { method: "PUT", namespace: q.namespace, body: limits }),
  schedules: (after: string | undefined) => request<ScheduleList>(`/api/schedules${query({ page_size: 50, next_page_token: after })}`),
  schedule: (id: string) => request<Schedule>(`/api/schedules/${encodeURIComponent(id)}`),
  scheduleHistory: (id: string) => request<{ events: ScheduleEvent[] | null }>(`/api/schedules/${encodeURIComponent(id)}/history${query({ limit: 1000 })}`),
  turnSchedule: (k: ScheduleKey, verb: "pause" | "resume" | "trigger", note: string) =>
    request<{ outcome: string; reason?: string; workflow_id?: string }>(`${schedule(k)}/${verb}`, {
      method: "POST",
      namespace: k.namespace,
      body: { ...(note && verb !== "trigger" && { note }) },
    }),
  namespaces: () => request<{ namespaces: NamespaceView[] | null }>("/api/namespaces"),
  searchAttributes: (namespace: string) => request<SearchAttributes>("/api/search-attributes", { namespace }),
  overview: () => request<Overview>("/api/sojourn/overview"),
  me: () => request<Me>("/api/sojourn/me"),
  signIn: (token: string) => request("/api/sojourn/login", { method: "POST", body: { token } }),
  signOut: () => request("/api/sojourn/login", { method: "DELETE" }),
};

/** A history as far as it was read. Full pages never change, so reading on starts at the last page's own token. */
export interface History {
  events: HistoryEvent[];
  pages: { token: string | null; events: HistoryEvent[]; next: string | null }[];
  complete: boolean;
}

/** The most pages one reading takes, so that an endless history does not fill the browser. */
export const pageLimit = 40;

/** Reads what is new since before; pages that were full are not asked for again. */
export async function readHistory(
  fetchPage: (token: string | null) => Promise<HistoryPage>,
  before?: History,
): Promise<History> {
  const pages = (before?.pages ?? []).filter((p) => p.next !== null);
  let token = pages.at(-1)?.next ?? null;
  let next: string | null = token;
  for (let first = true; (first || token !== null) && pages.length < pageLimit; first = false) {
    const page = await fetchPage(token);
    next = page.next_page_token ?? null;
    pages.push({ token, events: page.events ?? [], next });
    token = next;
  }
  const last = before?.pages.at(-1);
  const now = pages.at(-1);
  const same = before && last && now && before.pages.length === pages.length && last.events.length === now.events.length;
  if (same && before.complete === (next === null)) return before; // the same value again: nothing renders anew
  return { pages, events: pages.flatMap((p) => p.events), complete: next === null };
}
