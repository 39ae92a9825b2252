import type { QueueState, Wait, WorkerDrain, WorkerView } from "../api/types";
import { slots } from "./facts";

/** Why a worker gets no work, or none of some kind. */
export interface Reason {
  text: string;
  weight: "stop" | "less" | "rest"; // nothing at all; not everything; there is nothing to get
  needs?: boolean; // somebody has to do something: it is not as it was asked for, and does not go on by itself
  queue?: string; // where more is said
  wait?: Wait; // what goes on from the text
}

export const of = (n: number, one: string) => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;
const list = (names: string[]) => (names.length < 3 ? names.join(" and ") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);

/** Whom a drain names. */
export const drainedAs = (d: Pick<WorkerDrain, "group" | "build_id" | "release" | "worker_id">): string =>
  d.group ? `group ${d.group}` : d.build_id ? `build ${d.build_id}` : d.release ? `release ${d.release}` : `worker ${d.worker_id}`;

/** What keeps a worker from work, the heaviest first, as far as its registration and its queues tell. None: it works, or nothing speaks against it. */
export function whyNoWork(w: WorkerView, queues: readonly QueueState[]): Reason[] {
  const has = w.active_leases > 0 ? ` What it has, ${of(w.active_leases, "task")}, it may finish.` : "";
  if (w.status === "stale") return [{ weight: "stop", text: "It was not heard of for too long and is taken for gone. Its sessions and tasks go to others when their leases end." }];
  if (w.gate) return [{ weight: "stop", needs: true, text: `${w.gate}.${has}` }];
  if (w.drain) {
    const left = has || (w.held_sessions > 0 ? ` It holds ${of(w.held_sessions, "session")}.` : " It has nothing left, and may be stopped.");
    // "local" is who asks an app that wants no sign-in, which may be anybody at its machine
    const by = w.drain.by === "local" ? ", by somebody without sign-in" : w.drain.by ? ` by ${w.drain.by}` : "";
    const why = w.drain.reason ? `: ${w.drain.reason}` : "";
    return [{ weight: "stop", text: `${w.drain.worker_id ? "It" : `It is one of ${drainedAs(w.drain)}, which`} ${w.drain.evict ? "was evicted" : "is drained"}${by}${why}.${w.drain.evict ? has : left}` }];
  }
  const out: Reason[] = [];
  const workflows = w.supported_workflow_types ?? [];
  const activities = w.supported_activity_types ?? [];
  const names = w.task_queues?.length ? w.task_queues : [w.task_queue];
  const mine = names.map((n) => queues.find((q) => q.name === n)).filter((q) => q !== undefined);
  const drained = mine.filter((q) => q.build_ids?.some((b) => b.build_id === w.build_id && b.drain_intent === "draining")).map((q) => q.name);
  if (w.status === "draining" && drained.length < names.length) { // one whose build is drained on all its queues is shown as draining, too
    return [{ weight: "stop", text: `It drains: it is given nothing new, and leaves when it has finished.${has}` }];
  }
  for (const queue of drained) out.push({ weight: drained.length === names.length ? "stop" : "less", queue, text: `${w.build_id ? `Build ${w.build_id}` : "The build without an id"} is drained on ${queue}.${drained.length === names.length ? has : ""}` });
  const [flow, act, held] = slots(w);
  if (flow && act) {
    if (workflows.length > 0 && flow.most === 0) out.push({ weight: "less", needs: true, text: "It has no workflow slots, so it takes no workflow task." });
    if (activities.length > 0 && act.most === 0) out.push({ weight: "less", needs: true, text: "It has no activity slots, so it takes no activity." });
    const full = [flow, act].filter((m) => m.most > 0 && m.used !== null && m.used >= m.most).map((m) => `${m.most} ${m.name.toLowerCase()}`);
    if (full.length > 0) out.push({ weight: "less", text: `All its ${list(full)} are taken: more comes when one is free.` });
  }
  if (held && held.most > 0 && (held.used ?? 0) >= held.most) out.push({ weight: "less", text: `It holds all ${held.most} sessions it may hold, and takes no further one.` });
  for (const q of mine) {
    if (drained.includes(q.name)) continue;
    for (const [admission, what] of [[q.admission.workflow_tasks, "workflow tasks"], [q.admission.activity_tasks, "activities"]] as const) {
      if (admission.wait) out.push({ weight: "less", needs: admission.wait.needs_attention, queue: q.name, text: `${what} are held back`, wait: admission.wait });
    }
    const ready = readyIn(q);
    if (ready === 0) continue;
    if (full(w)) continue; // it rightly asks for nothing, and that is said above
    // A task that is on its way to a worker is ready for a moment, too. So why the oldest wait tells whether somebody has to do something.
    const stuck = (q.waiting ?? []).some((t) => t.wait?.needs_attention);
    if (stuck) out.push({ weight: "less", needs: true, queue: q.name, text: `${of(ready, "task")} ready in ${q.name}, among them some that no worker there takes.` });
    else if (q.stats.pollers.waiting_count === 0) out.push({ weight: "less", queue: q.name, text: `${of(ready, "task")} ready in ${q.name}, and no poll waits there now.` });
  }
  if (out.length === 0 && w.active_leases === 0 && mine.length === names.length && mine.every((q) => readyIn(q) === 0)) {
    out.push({ weight: "rest", text: `Nothing is ready in ${list(names)}.` });
  }
  const order = { stop: 0, less: 1, rest: 2 };
  return out.sort((a, b) => order[a.weight] - order[b.weight]);
}

const readyIn = (q: QueueState): number => q.stats.workflow_tasks.ready_count + q.stats.activity_tasks.ready_count;

/** Whether every slot of a worker is taken, so that it rightly asks for nothing. */
const full = (w: WorkerView): boolean => slots(w).slice(0, 2).every((m) => m.used !== null && m.used >= m.most);
