import type { RunView } from "../api/types";

export type Tone = "run" | "good" | "bad" | "warn" | "idle" | "stay";

const tones: Record<string, Tone> = {
  running: "run",
  pending: "run",
  waiting: "warn",
  completed: "good",
  continued: "good",
  failed: "bad",
  timed_out: "bad",
  cancelled: "idle",
  terminated: "idle",
  active: "good",
  draining: "warn",
  mismatched: "bad",
  stale: "idle",
  closed: "idle",
  expired: "warn",
  orphaned: "warn",
  unowned: "idle",
  unlimited: "idle",
  accepting: "good",
  throttled: "warn",
  active_with_draining: "warn",
  stale_only: "idle",
  no_workers: "idle",
  queued: "idle",
  backoff: "warn",
  returned: "idle",
  held: "stay",
  ended: "idle",
  paused: "warn",
  deleted: "idle",
};

export const tone = (status: string): Tone => tones[status] ?? "idle";

/** "timed_out" for people: "timed out". */
export const words = (status: string): string => status.replaceAll("_", " ");

/** The stored status of a run, from what the contract's routes make of it. */
export function runStatus(r: { status: string; closed_reason?: string | null }): string {
  if (r.closed_reason === "timed_out" || r.closed_reason === "continued") return r.closed_reason;
  return r.status === "pending" || r.status === "waiting" ? "running" : r.status;
}

export const isOpen = (r: { status: string; closed_reason?: string | null }): boolean => runStatus(r) === "running";

/** Whether somebody has to do something about an open run. */
export const stuck = (r: RunView): boolean => isOpen(r) && Boolean(r.wait?.needs_attention);

/** How runs may be filtered. The first three are wide and together hold all runs; the rest are parts of them. */
export const runFilters: { status: string; of: string[]; wide: boolean }[] = [
  { status: "running", of: ["running"], wide: true },
  { status: "completed", of: ["completed", "continued"], wide: true },
  { status: "failed", of: ["failed", "timed_out", "cancelled", "terminated"], wide: true },
  ...["timed_out", "cancelled", "terminated", "continued"].map((status) => ({ status, of: [status], wide: false })),
];
export const sessionStatuses = ["active", "expired", "orphaned", "failed", "closed"];
