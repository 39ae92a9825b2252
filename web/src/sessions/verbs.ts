import type { SessionView, WorkerView } from "../api/types";

/** Whether a session has ended for good; one that has only expired may be claimed again. */
export const isOver = (s: SessionView): boolean => Boolean(s.closed_at);

/** Whether somebody owns the session. */
export const isHeld = (s: SessionView): boolean => s.status === "active" && Boolean(s.holder ?? s.lease_owner);

/** A worker a session could be moved to, and what speaks against it. */
export interface Target {
  id: string;
  held: number;
  most: number;
  against: string; // "" for one that could have it
}

/** The workers a session could be moved to: those that hold sessions and are there, the best first. */
export function targets(s: SessionView, workers: WorkerView[]): Target[] {
  const owner = isHeld(s) ? s.lease_owner : null;
  return workers
    .filter((w) => w.status === "active" && w.max_concurrent_worker_sessions > 0 && w.worker_id !== owner)
    .map((w) => ({ id: w.worker_id, held: w.held_sessions, most: w.max_concurrent_worker_sessions, against: against(s, w) }))
    .sort((a, b) => Number(a.against !== "") - Number(b.against !== "") || a.held - b.held || a.id.localeCompare(b.id));
}

function against(s: SessionView, w: WorkerView): string {
  if (s.queue && !(w.task_queues ?? [w.task_queue]).includes(s.queue)) return `does not serve ${s.queue}`;
  // A requirement may compare, like "memory>=8": only the app knows who meets that.
  const missing = (s.requirements ?? []).filter((r) => !/[<>=^~]/.test(r) && !(w.capabilities ?? []).includes(r));
  if (missing.length > 0) return `has no ${missing.join(", ")}`;
  return w.held_sessions >= w.max_concurrent_worker_sessions ? "is full" : "";
}
