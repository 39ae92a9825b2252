import type { SessionView, WorkerView } from "../api/types";

/** Whether a session has ended. An expired session has not: it can be acquired again. */
export const isOver = (s: SessionView): boolean => Boolean(s.closed_at);

/** Whether the session has an owner. */
export const isHeld = (s: SessionView): boolean => s.status === "active" && Boolean(s.holder ?? s.lease_owner);

/** A worker a session can be moved to. */
export interface Target {
  id: string;
  held: number;
  most: number;
}

/** The workers that can take a session, those with the fewest first; as the app chooses when none is named. */
export function targets(s: SessionView, workers: WorkerView[]): Target[] {
  const owner = isHeld(s) ? s.lease_owner : null;
  const queues = s.queue ? [s.queue] : served(workers.find((w) => w.worker_id === s.lease_owner));
  return workers
    .filter((w) => w.status === "active" && w.worker_id !== owner && w.held_sessions < w.max_concurrent_worker_sessions)
    .filter((w) => queues.every((q) => served(w).includes(q)) && (s.requirements ?? []).every((r) => meets(r, w.capabilities ?? [])))
    .filter((w) => s.release_policy !== "finish" || !s.release || w.release === s.release)
    .map((w) => ({ id: w.worker_id, held: w.held_sessions, most: w.max_concurrent_worker_sessions }))
    .sort((a, b) => a.held - b.held || a.id.localeCompare(b.id));
}

const served = (w: WorkerView | undefined): string[] => (w ? (w.task_queues ?? [w.task_queue]) : []);

/** Whether a worker with these capabilities meets a requirement, by the rule of app/engine/require.go: "cuda>=12.2,<13" is met by "cuda=12.4". */
export function meets(requirement: string, capabilities: string[]): boolean {
  const at = requirement.search(/[<>]/);
  return capabilities.some((c) => {
    if (c === requirement) return true;
    if (at <= 0 || !c.startsWith(`${requirement.slice(0, at)}=`)) return false;
    const have = version(c.slice(at + 1));
    return have !== null && requirement.slice(at).split(",").every((bound) => within(have, bound));
  });
}

function within(have: number[], bound: string): boolean {
  const [, sign = "", than = ""] = /^([<>=]*)(.*)$/.exec(bound) ?? [];
  const want = version(than);
  if (want === null) return false;
  const order = compare(have, want);
  switch (sign) {
    case ">=":
      return order >= 0;
    case ">":
      return order > 0;
    case "<=":
      return order <= 0;
    case "<":
      return order < 0;
  }
  return false;
}

const version = (text: string): number[] | null => (/^\d+(\.\d+)*$/.test(text) ? text.split(".").map(Number) : null);

/** Compares versions number by number; missing numbers are zero. */
function compare(a: number[], b: number[]): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const d = (a[i] ?? 0) - (b[i] ?? 0);
    if (d !== 0) return d;
  }
  return 0;
}
