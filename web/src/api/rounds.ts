import type { Query, QueryClient, QueryKey } from "@tanstack/react-query";
import type { RunView, Topic } from "./types";
import { isOpen } from "../lib/status";

/** Time in milliseconds for which stale queries are collected before they are fetched again. */
export const gatherMs = 50;
/** Minimum time in milliseconds between two rounds of fetches: a page sends at most one request per query and second. */
export const roundMs = 1000;

/** Whether a query is being fetched. Such a query is not restarted, because a fetch that takes longer than a round would never finish. */
export const beingRead = ({ state }: Pick<Query, "state">): boolean => state.fetchStatus === "fetching";

/** Fetches stale queries in rounds: each query once per round. A query that is being fetched is fetched again in a later round. */
export class Rounds {
  private stale = new Map<string, QueryKey>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last = -Infinity;

  constructor(private readonly client: QueryClient) {}

  take(keys: readonly QueryKey[]): void {
    for (const key of keys) this.stale.set(JSON.stringify(key), key);
    if (this.stale.size === 0) return;
    this.timer ??= setTimeout(() => this.flush(), Math.max(gatherMs, this.last + roundMs - performance.now()));
  }

  private flush(): void {
    this.timer = undefined;
    this.last = performance.now();
    const stale = [...this.stale.values()];
    this.stale.clear();
    // A page that was hidden is reloaded when it becomes visible.
    const refetchType = globalThis.document?.hidden ? "none" : "active";
    const later = stale.flatMap((queryKey) => this.client.getQueryCache().findAll({ queryKey, predicate: beingRead }).map((q) => q.queryKey));
    for (const queryKey of stale) void this.client.invalidateQueries({ queryKey, refetchType, predicate: (q) => !beingRead(q) });
    this.take(later);
  }
}

const all = new WeakMap<QueryClient, Rounds>();

/** The rounds of a client, shared by hints and streams. */
export function roundsOf(client: QueryClient): Rounds {
  let rounds = all.get(client);
  if (!rounds) all.set(client, (rounds = new Rounds(client)));
  return rounds;
}

/** The topic whose hints invalidate a query. Queries without one are streamed or immutable, for example of a closed run. */
export function topicsOf(key: QueryKey, view?: (runId: string) => RunView | undefined): Topic[] {
  const [kind, a, b] = key.map(String);
  switch (kind) {
    case "run": {
      const run = a ? view?.(a) : undefined;
      return run && isOpen(run) ? [{ kind: "run", id: run.run_id, namespace: run.namespace }] : [];
    }
    case "runs":
    case "runs-counted":
      return a ? [{ kind: "run", namespace: a }] : [];
    case "overview":
      return a ? (["run", "session", "worker"] as const).map((k) => ({ kind: k, namespace: a })) : [];
    case "session":
      return a && b ? [{ kind: "session", id: b, namespace: a }] : [];
    case "sessions":
      return a ? [{ kind: "session", namespace: a }] : [];
    case "workers":
      return a ? [{ kind: "worker", namespace: a }] : [];
    default:
      return [];
  }
}

/** The topics of all queries on the page, sorted and without duplicates. */
export function wanted(client: QueryClient): Topic[] {
  const topics = new Map<string, Topic>();
  const view = (id: string) => client.getQueriesData<RunView>({ queryKey: ["run", id, "view"] }).find(([, run]) => run)?.[1];
  for (const q of client.getQueryCache().findAll({ type: "active" })) {
    for (const t of topicsOf(q.queryKey, view)) topics.set(`${t.kind} ${t.namespace} ${t.id ?? ""}`, t);
  }
  return [...topics].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, t]) => t);
}
