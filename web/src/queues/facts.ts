import type { BuildCohort, QueueState, TaskAdmission, Wait } from "../api/types";
import { parseTime } from "../lib/time";

/** The name of a build id for people: that of none is said. */
export const buildName = (id: string | null): string => id ?? "no build id";

export interface Bar {
  name: string;
  used: number;
  most: number | null; // null: no budget
}

/** What is counted of one kind of task, and against which budget. */
export function bars(a: TaskAdmission): Bar[] {
  const list: Bar[] = [
    { name: "Leased now", used: a.server_active_lease_count, most: a.server_max_active_leases_per_queue },
    { name: "Begun this minute", used: a.server_dispatch_count_this_minute, most: a.server_max_dispatches_per_minute },
  ];
  if (a.server_max_active_leases_per_namespace !== null) {
    list.push({ name: "Leased in the namespace", used: a.server_namespace_active_lease_count, most: a.server_max_active_leases_per_namespace });
  }
  if (a.server_max_dispatches_per_minute_per_namespace !== null) {
    list.push({
      name: "Begun in the namespace",
      used: a.server_namespace_dispatch_count_this_minute,
      most: a.server_max_dispatches_per_minute_per_namespace,
    });
  }
  // A rate nobody bounds is not counted, so it would always say 0.
  return list.filter((b) => b.most !== null || b.name === "Leased now");
}

/** The budget by which a queue hands out less than it could, if there is one. */
export const withheld = (q: QueueState): Wait | undefined => q.admission.workflow_tasks.wait ?? q.admission.activity_tasks.wait;

/** Since when the oldest ready task of a queue waits, in milliseconds since 1970; null while none is ready. */
export function oldestReady(q: QueueState): number | null {
  const times = [q.stats.workflow_tasks.oldest_ready_at, q.stats.activity_tasks.oldest_ready_at].map(parseTime).filter((t) => t !== null);
  return times.length ? Math.min(...times) : null;
}

/** For how long a task may be on its way to a worker that asks, in milliseconds: in less nothing is said of it. */
const onItsWay = 10_000;

/** Why tasks of a queue wait that no budget withholds, in a line of a list, or "". The page of the queue says it of each task. */
export function waitsIn(q: QueueState, now: number): string {
  const ready = q.stats.workflow_tasks.ready_count + q.stats.activity_tasks.ready_count;
  if (ready === 0) return "";
  const { active_count: active, stale_count: stale, waiting_count: waiting } = q.stats.pollers;
  if (active === 0) return stale > 0 ? `no live worker serves it; ${stale} ${stale === 1 ? "was" : "were"} not heard of for too long` : "no worker serves it";
  if (waiting === 0) return "its workers are busy, or do not ask";
  const since = oldestReady(q);
  return since !== null && now - since > onItsWay ? "no worker that asks takes all that is ready" : "";
}

/** Whether what is ready waits for somebody to do something: it does not while its workers are busy. */
export function unserved(q: QueueState, now: number): boolean {
  const { active_count: active, waiting_count: waiting } = q.stats.pollers;
  return waitsIn(q, now) !== "" && (active === 0 || waiting > 0);
}

/** What keeps all new runs of a queue waiting, or "": they are pinned to a build that nobody has, or nobody who takes work. */
export function unmanned(q: QueueState): string {
  const build = q.build_ids?.find((b) => b.new_start_selected);
  if (!build || build.build_id === null || build.active_worker_count > 0) return "";
  const nobody = build.draining_worker_count > 0 ? "whose workers are all drained" : "which no live worker has";
  return `New runs are pinned to build ${build.build_id}, ${nobody}: they wait until one takes them, or another build is promoted.`;
}

export type BuildVerb = "promote" | "drain" | "resume";

/** What an operator may do to a cohort. */
export function verbs(c: BuildCohort): BuildVerb[] {
  if (c.drain_intent === "draining") return ["resume"];
  return c.new_start_selected ? ["drain"] : ["promote", "drain"];
}

/** What was typed as a budget: nothing is none, else a whole number above 0. */
export function parseBudget(text: string): number | null {
  if (text.trim() === "") return null;
  const n = Number(text);
  if (!Number.isInteger(n) || n < 1) throw new Error("A budget is a whole number above 0; leave it empty for none.");
  return n;
}
