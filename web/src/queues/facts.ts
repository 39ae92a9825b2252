import type { BuildCohort, QueueState, TaskAdmission, Wait } from "../api/types";
import { parseTime } from "../lib/time";

/** The label of a build ID, also of the missing one. */
export const buildName = (id: string | null): string => id ?? "no build ID";

export interface Bar {
  name: string;
  used: number;
  most: number | null; // null: no limit
}

/** The counters of one kind of task with their limits. */
export function bars(a: TaskAdmission): Bar[] {
  const list: Bar[] = [
    { name: "Leased", used: a.server_active_lease_count, most: a.server_max_active_leases_per_queue },
    { name: "Started this minute", used: a.server_dispatch_count_this_minute, most: a.server_max_dispatches_per_minute },
  ];
  if (a.server_max_active_leases_per_namespace !== null) {
    list.push({ name: "Leased in namespace", used: a.server_namespace_active_lease_count, most: a.server_max_active_leases_per_namespace });
  }
  if (a.server_max_dispatches_per_minute_per_namespace !== null) {
    list.push({
      name: "Started in namespace this minute",
      used: a.server_namespace_dispatch_count_this_minute,
      most: a.server_max_dispatches_per_minute_per_namespace,
    });
  }
  // The app counts starts only if there is a limit. Without one the counter would always be 0.
  return list.filter((b) => b.most !== null || b.name === "Leased");
}

/** The limit that currently delays tasks of a queue, if any. */
export const withheld = (q: QueueState): Wait | undefined => q.admission.workflow_tasks.wait ?? q.admission.activity_tasks.wait;

/** The time since which the oldest ready task of a queue waits, in milliseconds since 1970; null if no task is ready. */
export function oldestReady(q: QueueState): number | null {
  const times = [q.stats.workflow_tasks.oldest_ready_at, q.stats.activity_tasks.oldest_ready_at].map(parseTime).filter((t) => t !== null);
  return times.length ? Math.min(...times) : null;
}

/** Dispatch to a polling worker takes less than this many milliseconds. Younger tasks are not reported as waiting. */
const dispatchTime = 10_000;

/** The reason why tasks of a queue wait apart from limits, or "". The page of the queue has a reason for each task. */
export function waitsIn(q: QueueState, now: number): string {
  const ready = q.stats.workflow_tasks.ready_count + q.stats.activity_tasks.ready_count;
  if (ready === 0) return "";
  const { active_count: active, stale_count: stale, waiting_count: waiting } = q.stats.pollers;
  if (active === 0) return stale > 0 ? `No live worker is polling; ${stale} stopped sending heartbeats` : "No worker is polling";
  if (waiting === 0) return "Workers are busy or not polling";
  const since = oldestReady(q);
  return since !== null && now - since > dispatchTime ? "No polling worker can run all ready tasks" : "";
}

/** Whether ready tasks wait for an operator. They do not while workers are busy. */
export function unserved(q: QueueState, now: number): boolean {
  const { active_count: active, waiting_count: waiting } = q.stats.pollers;
  return waitsIn(q, now) !== "" && (active === 0 || waiting > 0);
}

/** The reason why all new runs of a queue wait: no active worker has the promoted build. Otherwise "". */
export function unservedBuild(q: QueueState): string {
  const build = q.build_ids?.find((b) => b.new_start_selected);
  if (!build || build.build_id === null || build.active_worker_count > 0) return "";
  const why = build.draining_worker_count > 0 ? "whose workers are all draining" : "which no live worker has";
  return `New runs are pinned to build ${build.build_id}, ${why}. They wait until a worker with this build polls or another build is promoted.`;
}

export type BuildVerb = "promote" | "drain" | "resume";

/** The actions that would change something for a build. */
export function verbs(c: BuildCohort): BuildVerb[] {
  if (c.drain_intent === "draining") return ["resume"];
  return c.new_start_selected ? ["drain"] : ["promote", "drain"];
}

/** Parses a limit: empty is null, otherwise a whole number above 0. */
export function parseBudget(text: string): number | null {
  if (text.trim() === "") return null;
  const n = Number(text);
  if (!Number.isInteger(n) || n < 1) throw new Error("A limit must be a whole number above 0, or empty for no limit.");
  return n;
}
