import type { AttemptOutcome, RunShown, RunStatus, RunView, ScheduleStatus, SessionStatus, WorkerStatus } from "../api/types";

export type Tone = "run" | "good" | "bad" | "warn" | "idle" | "stay";

/** The statuses of the API. A new one does not compile until it has a tone. */
type Known = RunStatus | RunShown | SessionStatus | WorkerStatus | ScheduleStatus | AttemptOutcome;

// Amber means that an operator has to act. No status is amber, because only the reason of a wait shows that: drains, retries
// and expired sessions need no operator.
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
  expired: "idle", // acquired again when there is a task
  orphaned: "idle", // likewise
  unowned: "idle",
  unlimited: "idle",
  accepting: "good",
  throttled: "idle", // expected effect of a limit
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

/** A code as words: "timed_out" is "timed out". */
export const words = (status: string): string => status.replaceAll("_", " ");

/** The stored status of a run, derived from the status of the API like StoredRun in protocol. */
export function runStatus(r: { status: string; closed_reason?: string | null }): string {
  if (r.closed_reason) return r.closed_reason;
  return r.status === "pending" || r.status === "waiting" ? "running" : r.status;
}

export const isOpen = (r: { status: string; closed_reason?: string | null }): boolean => runStatus(r) === "running";

/** Whether an open run needs an operator. */
export const stuck = (r: RunView): boolean => isOpen(r) && Boolean(r.stuck ?? r.wait?.needs_attention);

export const sessionStatuses: SessionStatus[] = ["active", "expired", "orphaned", "failed", "closed"];
