import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, readHistory, type History, type RunFilter, type RunKey } from "./client";

// Every key starts with what hints name, so that a hint invalidates by prefix.
export const keys = {
  me: ["me"] as const,
  overview: ["overview"] as const,
  queues: ["overview", "queues"] as const, // what makes the overview stale makes these stale
  runs: ["runs"] as const,
  run: (id: string) => ["run", id] as const,
  history: (id: string) => ["run", id, "history"] as const,
  runsOf: (workflowId: string) => ["runs-of", workflowId] as const,
  workers: ["workers"] as const,
  sessions: ["sessions"] as const,
  session: (id: string) => ["session", id] as const,
  schedules: ["overview", "schedules"] as const, // every run a schedule starts makes these stale
  namespaces: ["namespaces"] as const,
};

export const meQuery = queryOptions({ queryKey: keys.me, queryFn: api.me, retry: false, staleTime: Infinity });

export const overviewQuery = queryOptions({ queryKey: keys.overview, queryFn: api.overview });

export const runsQuery = (f: RunFilter) =>
  queryOptions({ queryKey: [...keys.runs, f], queryFn: ({ signal }) => api.runs(f, signal), placeholderData: (before) => before });

export const runQuery = (id: string) => queryOptions({ queryKey: [...keys.run(id), "view"], queryFn: ({ signal }) => api.run(id, signal) });

export const historyQuery = (k: RunKey | undefined) =>
  queryOptions({
    queryKey: keys.history(k?.run_id ?? ""),
    enabled: k !== undefined,
    structuralSharing: false, // readHistory returns the very same value when nothing is new
    queryFn: ({ client, queryKey, signal }) => {
      const before = client.getQueryData<History>(queryKey);
      return readHistory((token) => api.history(k!, token, signal), before);
    },
  });

export const runsOfQuery = (k: RunKey | undefined) =>
  queryOptions({ queryKey: keys.runsOf(k?.workflow_id ?? ""), enabled: k !== undefined, queryFn: () => api.runsOf(k!) });

export const workersQuery = queryOptions({ queryKey: keys.workers, queryFn: api.workers });

export const queuesQuery = (after: string | undefined) =>
  queryOptions({ queryKey: [...keys.queues, { after }], queryFn: () => api.queues(after), placeholderData: (before) => before });

export const queueQuery = (name: string) => queryOptions({ queryKey: [...keys.queues, name], queryFn: () => api.queue(name) });

export const sessionsQuery = (status: string | undefined, after: string | undefined) =>
  queryOptions({
    queryKey: [...keys.sessions, { status, after }],
    queryFn: () => api.sessions(status, after),
    placeholderData: (before) => before,
  });

export const sessionQuery = (id: string) => queryOptions({ queryKey: [...keys.session(id), "view"], queryFn: () => api.session(id) });

/** What ran in one holding of a session, newest first; part of the session's key, so that a hint of it reads this again as well. */
export const sessionAttemptsQuery = (id: string, epoch: number) =>
  infiniteQueryOptions({
    queryKey: [...keys.session(id), "attempts", epoch],
    queryFn: ({ pageParam }) => api.sessionAttempts(id, epoch, pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_page_token,
  });

export const schedulesQuery = (after: string | undefined) =>
  queryOptions({ queryKey: [...keys.schedules, { after }], queryFn: () => api.schedules(after), placeholderData: (before) => before });

export const scheduleQuery = (id: string) => queryOptions({ queryKey: [...keys.schedules, id], queryFn: () => api.schedule(id) });

export const scheduleHistoryQuery = (id: string) => queryOptions({ queryKey: [...keys.schedules, id, "history"], queryFn: () => api.scheduleHistory(id) });

export const namespacesQuery = queryOptions({ queryKey: keys.namespaces, queryFn: api.namespaces });

export const searchAttributesQuery = (namespace: string) =>
  queryOptions({ queryKey: [...keys.namespaces, namespace, "attributes"], queryFn: () => api.searchAttributes(namespace) });
