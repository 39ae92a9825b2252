import type { QueueState, Wait, WorkerDrain, WorkerView } from "../api/types";
import { slots } from "./facts";

/** A reason why a worker gets no tasks or fewer than possible. */
export interface Reason {
  text: string;
  weight: "stop" | "less" | "rest"; // no tasks at all; not all kinds; no tasks are ready
  needs?: boolean; // an operator has to act
  queue?: string; // the queue whose page has details
  wait?: Wait; // the wait whose text follows
}

export const of = (n: number, one: string) => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;
const list = (names: string[]) => (names.length < 3 ? names.join(" and ") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);

/** The target of a drain. */
export const drainedAs = (d: Pick<WorkerDrain, "group" | "build_id" | "release" | "worker_id">): string =>
  d.group ? `group ${d.group}` : d.build_id ? `build ${d.build_id}` : d.release ? `release ${d.release}` : `worker ${d.worker_id}`;

/** The reasons why a worker gets no tasks, most severe first, from its registration and its queues. None: it works, or no reason is known. */
export function whyNoWork(w: WorkerView, queues: readonly QueueState[]): Reason[] {
  const has = w.active_leases > 0 ? ` ${of(w.active_leases, "running task")} can finish.` : "";
  if (w.status === "stale") return [{ weight: "stop", text: "No heartbeats: the worker is considered lost. Its tasks and sessions are reassigned when their leases expire." }];
  if (w.gate) return [{ weight: "stop", needs: true, text: `Version mismatch: ${w.gate}.${has}` }];
  if (w.drain) {
    const left = has || (w.held_sessions > 0 ? ` It holds ${of(w.held_sessions, "session")}.` : " Nothing is running; the process can be stopped.");
    // An app without sign-in reports every caller as "local".
    const by = w.drain.by === "local" ? ", requested without sign-in" : w.drain.by ? `, requested by ${w.drain.by}` : "";
    const why = w.drain.reason ? `: ${w.drain.reason}` : "";
    return [{ weight: "stop", text: `${w.drain.evict ? "Evicted" : has || w.held_sessions > 0 ? "Draining" : "Drained"}${w.drain.worker_id ? "" : ` with ${drainedAs(w.drain)}`}${by}${why}.${w.drain.evict ? has : left}` }];
  }
  const out: Reason[] = [];
  const workflows = w.supported_workflow_types ?? [];
  const activities = w.supported_activity_types ?? [];
  const names = w.task_queues?.length ? w.task_queues : [w.task_queue];
  const mine = names.map((n) => queues.find((q) => q.name === n)).filter((q) => q !== undefined);
  const drained = mine.filter((q) => q.build_ids?.some((b) => b.build_id === w.build_id && b.drain_intent === "draining")).map((q) => q.name);
  if (w.status === "draining" && drained.length < names.length) { // also set if the build is drained on all queues of the worker
    return [{ weight: "stop", text: `Draining: no new tasks; the process exits when its tasks have finished.${has}` }];
  }
  for (const queue of drained) out.push({ weight: drained.length === names.length ? "stop" : "less", queue, text: `${w.build_id ? `Build ${w.build_id}` : "The build without an ID"} is drained on queue ${queue}.${drained.length === names.length ? has : ""}` });
  const [flow, act, held] = slots(w);
  if (flow && act) {
    if (workflows.length > 0 && flow.most === 0) out.push({ weight: "less", needs: true, text: "No workflow slots: the worker gets no workflow tasks." });
    if (activities.length > 0 && act.most === 0) out.push({ weight: "less", needs: true, text: "No activity slots: the worker gets no activities." });
    const full = [flow, act].filter((m) => m.most > 0 && m.used !== null && m.used >= m.most).map((m) => `${m.most} of ${m.most} ${m.name.toLowerCase()}`);
    if (full.length > 0) out.push({ weight: "less", text: `Slots in use: ${list(full)}.` });
  }
  if (held && held.most > 0 && (held.used ?? 0) >= held.most) out.push({ weight: "less", text: `Sessions in use: ${held.most} of ${held.most}; no new sessions.` });
  for (const q of mine) {
    if (drained.includes(q.name)) continue;
    for (const [admission, what] of [[q.admission.workflow_tasks, "Workflow tasks"], [q.admission.activity_tasks, "Activities"]] as const) {
      if (admission.wait) out.push({ weight: "less", needs: admission.wait.needs_attention, queue: q.name, text: `${what} are delayed`, wait: admission.wait });
    }
    const ready = readyIn(q);
    if (ready === 0) continue;
    if (full(w)) continue; // all slots are in use, which is reported above
    // A task is also ready for a moment during dispatch, so only the reasons of the oldest tasks show whether an operator has to act.
    const stuck = (q.waiting ?? []).some((t) => t.wait?.needs_attention);
    if (stuck) out.push({ weight: "less", needs: true, queue: q.name, text: `${of(ready, "ready task")} in ${q.name}; some cannot run on any polling worker.` });
    else if (q.stats.pollers.waiting_count === 0) out.push({ weight: "less", queue: q.name, text: `${of(ready, "ready task")} in ${q.name}; no worker is polling now.` });
  }
  if (out.length === 0 && w.active_leases === 0 && mine.length === names.length && mine.every((q) => readyIn(q) === 0)) {
    out.push({ weight: "rest", text: `No ready tasks in ${list(names)}.` });
  }
  const order = { stop: 0, less: 1, rest: 2 };
  return out.sort((a, b) => order[a.weight] - order[b.weight]);
}

const readyIn = (q: QueueState): number => q.stats.workflow_tasks.ready_count + q.stats.activity_tasks.ready_count;

/** Whether all slots of a worker are in use. */
const full = (w: WorkerView): boolean => slots(w).slice(0, 2).every((m) => m.used !== null && m.used >= m.most);
