import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { readLogs, type Logs } from "./logs";
import { readOn, type Past } from "./past";
import { untilFiring } from "../schedules/facts";
import type { ScheduleSpec } from "./types";
import { api, readHistory, type History, type QueueKey, type RunFilter, type RunKey, type ScheduleKey, type SessionKey } from "./client";

// Every key starts with the kind that hints name, then the namespace, so that a hint invalidates by prefix. Run IDs are globally unique.
export const keys = {
  me: ["me"] as const,
  about: ["about"] as const,
  counts: ["runs-counted"] as const,
  overview: ["overview"] as const,
  queues: (namespace: string) => ["overview", namespace, "queues"] as const, // stale whenever the overview is stale
  runs: ["runs"] as const,
  run: (id: string) => ["run", id] as const,
  history: (id: string) => ["run", id, "history"] as const,
  runsOf: (namespace: string, workflowId: string) => ["runs-of", namespace, workflowId] as const,
  workers: ["workers"] as const,
  sessions: ["sessions"] as const,
  session: (k: SessionKey) => ["session", k.namespace, k.session_id] as const,
  schedules: (namespace: string) => ["overview", namespace, "schedules"] as const, // stale whenever a schedule starts a run
  namespaces: ["namespaces"] as const,
};

export const meQuery = queryOptions({ queryKey: keys.me, queryFn: api.me, retry: false, staleTime: Infinity });

/** Information about the app. It changes when another app responds; then all queries are fetched again. */
export const aboutQuery = (namespace: string) => queryOptions({ queryKey: [...keys.about, namespace], queryFn: () => api.overview(namespace), staleTime: Infinity });

/** Number of runs by status. */
export const countsQuery = (namespace: string) => queryOptions({ queryKey: [...keys.counts, namespace], queryFn: () => api.runCounts(namespace) });

export const runsQuery = (namespace: string, f: RunFilter) =>
  queryOptions({
    queryKey: [...keys.runs, namespace, f],
    queryFn: ({ signal }) => api.runs(namespace, f, signal),
    placeholderData: (before) => before,
  });

/** Whether a search is for IDs: filters compare something. */
export const forIds = (text: string | undefined): text is string => Boolean(text) && !/[=<>!]/.test(text!) && new TextEncoder().encode(text).length <= 255;

/** The objects with an ID, of any kind, and some whose IDs begin with it. */
export const findQuery = (namespace: string, text: string | undefined) =>
  queryOptions({
    queryKey: ["find", namespace, text],
    enabled: forIds(text),
    queryFn: ({ signal }) => api.find(namespace, text!, signal),
    staleTime: 10_000,
    retry: false,
  });

export const runQuery = (namespace: string, id: string) =>
  queryOptions({ queryKey: [...keys.run(id), "view", namespace], queryFn: ({ signal }) => api.run(namespace, id, signal) });

export const historyQuery = (k: RunKey | undefined) =>
  queryOptions({
    queryKey: keys.history(k?.run_id ?? ""),
    enabled: k !== undefined,
    structuralSharing: false, // readHistory returns the same object if there are no new events
    queryFn: ({ client, queryKey, signal }) => {
      const before = client.getQueryData<History>(queryKey);
      const early = (h: History) => client.setQueryData(queryKey, h); // a long timeline is rendered after its first page
      return readHistory((from) => api.history(k!, from, signal), before, early);
    },
  });

/** One event with complete values, which may be megabytes, so it leaves the cache soon after it was shown. */
export const eventQuery = (k: RunKey, sequence: number) =>
  queryOptions({
    queryKey: ["event", k.run_id, sequence],
    queryFn: ({ signal }) => api.event(k, sequence, signal),
    staleTime: Infinity,
    gcTime: 60_000,
  });

/** Poll interval of the log of a running activity. There are no hints for log lines. */
const linesMs = 2000;

export const logsQuery = (namespace: string, task: string, attempt: number | undefined) =>
  queryOptions({
    queryKey: ["logs", namespace, task, attempt],
    structuralSharing: false, // loaded lines stay the same objects
    queryFn: ({ client, queryKey, signal }) => readLogs((after) => api.logs(namespace, task, attempt, after, signal), client.getQueryData<Logs>(queryKey)),
    refetchInterval: ({ state }) => state.data?.running && linesMs,
  });

export const runsOfQuery = (k: RunKey | undefined) =>
  queryOptions({ queryKey: keys.runsOf(k?.namespace ?? "", k?.workflow_id ?? ""), enabled: k !== undefined, queryFn: () => api.runsOf(k!) });

export const workersQuery = (namespace: string) => queryOptions({ queryKey: [...keys.workers, namespace], queryFn: () => api.workers(namespace) });

export const fleetSettingsQuery = (namespace: string) =>
  queryOptions({ queryKey: [...keys.workers, namespace, "settings"], queryFn: () => api.fleetSettings(namespace), retry: false });

/** Poll interval while a drain is in progress. There are no hints for it. */
export const drainsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [...keys.workers, namespace, "drains"],
    queryFn: () => api.drains(namespace),
    refetchInterval: (q) => (q.state.data?.drains?.some((d) => d.state === "draining") ? 3000 : false),
  });

export const queuesQuery = (namespace: string, after: string | undefined) =>
  queryOptions({ queryKey: [...keys.queues(namespace), { after }], queryFn: () => api.queues(namespace, after), placeholderData: (before) => before });

export const queueQuery = (k: QueueKey) => queryOptions({ queryKey: [...keys.queues(k.namespace), k.name], queryFn: () => api.queue(k) });

export const sessionsQuery = (namespace: string, status: string | undefined, after: string | undefined) =>
  queryOptions({
    queryKey: [...keys.sessions, namespace, { status, after }],
    queryFn: () => api.sessions(namespace, status, after),
    placeholderData: (before) => before,
  });

/** The sessions that a worker owns. */
export const heldQuery = (namespace: string, worker: string) =>
  queryOptions({ queryKey: [...keys.sessions, namespace, "held by", worker], queryFn: () => api.heldBy(namespace, worker) });

/** A session for the page of a closed run that used it. It is not updated: what happens later in the session does not belong to the run. */
export const sessionThenQuery = (k: SessionKey) => queryOptions({ queryKey: ["session-then", k.namespace, k.session_id], queryFn: () => api.session(k), retry: false });

export const sessionQuery = (k: SessionKey) => queryOptions({ queryKey: [...keys.session(k), "view"], queryFn: () => api.session(k) });

/** The part of a session's timeline before a page of it. It is immutable, so no hint makes it stale. */
export const sessionPastQuery = (k: SessionKey, token: string | undefined) =>
  infiniteQueryOptions({
    queryKey: ["session-past", k.namespace, k.session_id, token],
    queryFn: ({ pageParam }) => api.sessionTimeline(k, pageParam),
    initialPageParam: token ?? "",
    getNextPageParam: (last) => last.next_page_token,
    enabled: token !== undefined,
    staleTime: Infinity,
  });

/** The attempts under one epoch of a session, newest first. Its key begins with the session's, so hints of the session make it stale. */
export const sessionAttemptsQuery = (k: SessionKey, epoch: number) =>
  infiniteQueryOptions({
    queryKey: [...keys.session(k), "attempts", epoch],
    queryFn: ({ pageParam }) => api.sessionAttempts(k, epoch, pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_page_token,
  });

export const schedulesQuery = (namespace: string, after: string | undefined) =>
  queryOptions({
    queryKey: [...keys.schedules(namespace), { after }],
    queryFn: () => api.schedules(namespace, after),
    placeholderData: (before) => before,
    refetchInterval: ({ state }) => untilFiring(state.data?.schedules ?? []),
  });

export const scheduleQuery = (k: ScheduleKey) =>
  queryOptions({
    queryKey: [...keys.schedules(k.namespace), k.schedule_id],
    queryFn: () => api.schedule(k),
    refetchInterval: ({ state }) => untilFiring(state.data ? [state.data] : []),
  });

/** The history of a schedule, newest first, as far back as it was requested. */
export const scheduleHistoryQuery = (k: ScheduleKey) =>
  queryOptions({
    queryKey: [...keys.schedules(k.namespace), k.schedule_id, "history"],
    structuralSharing: false, // readOn returns the same object if there are no new events
    queryFn: ({ client, queryKey }) => readOn((where) => api.scheduleHistory(k, where), client.getQueryData<Past>(queryKey)),
  });

/** The next times at which a schedule with this spec would fire. */
export const timesQuery = (spec: ScheduleSpec | undefined) =>
  queryOptions({
    queryKey: ["times", spec],
    queryFn: ({ signal }) => api.scheduleTimes(spec!, signal),
    enabled: spec !== undefined,
    retry: false,
    placeholderData: (before) => before,
  });

export const namespacesQuery = queryOptions({ queryKey: keys.namespaces, queryFn: api.namespaces });

export const searchAttributesQuery = (namespace: string) =>
  queryOptions({ queryKey: [...keys.namespaces, namespace, "attributes"], queryFn: () => api.searchAttributes(namespace) });
