import type { AttemptOutcome, RunShown, RunStatus, RunView, ScheduleStatus, SessionStatus, WorkerStatus } from "../api/types";

export type Tone = "run" | "good" | "bad" | "warn" | "idle" | "stay";

/** The closed lists whose words have a look here: one that the app adds to them does not compile until it has one. */
type Known = RunStatus | RunShown | SessionStatus | WorkerStatus | ScheduleStatus | AttemptOutcome;

// What is amber needs somebody, and no status by itself tells that: why something waits does. What an operator asked for,
// what a policy tries again and what the next claim takes up goes on without anybody.
export const tones: Record<Known, Tone> & Record<string, Tone> = {
  running: "run",
  pending: "run",
  waiting: "run",
  completed: "good",
  continued: "good",
  failed: "bad",
  timed_out: "bad",
  cancelled: "idle",
  terminated: "idle",
  active: "good",
  draining: "idle",
  mismatched: "bad",
  stale: "idle",
  closed: "idle",
  expired: "idle", // who has work for it takes it
  orphaned: "idle", // likewise
  unowned: "idle",
  unlimited: "idle",
  accepting: "good",
  throttled: "idle", // a budget does what it is for
  active_with_draining: "good",
  stale_only: "idle",
  no_workers: "idle",
  queued: "idle",
  backoff: "idle",
  returned: "idle",
  held: "stay",
  ended: "idle",
  paused: "idle",
  deleted: "idle",
};

export const tone = (status: string): Tone => tones[status] ?? "idle";

/** "timed_out" for people: "timed out". */
export const words = (status: string): string => status.replaceAll("_", " ");

/** The stored status of a run, from what the contract's routes make of it; as StoredRun does in shared/protocol. */
export function runStatus(r: { status: string; closed_reason?: string | null }): string {
  if (r.closed_reason) return r.closed_reason;
  return r.status === "pending" || r.status === "waiting" ? "running" : r.status;
}

export const isOpen = (r: { status: string; closed_reason?: string | null }): boolean => runStatus(r) === "running";

/** Whether an open run needs an operator. */
export const stuck = (r: RunView): boolean => isOpen(r) && Boolean(r.stuck ?? r.wait?.needs_attention);

export const sessionStatuses: SessionStatus[] = ["active", "expired", "orphaned", "failed", "closed"];
