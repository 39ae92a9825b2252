import type { FleetDrain, FleetRequest, WorkerView } from "../api/types";
import { of } from "./why";

/** Workers that can be drained together. */
export interface Several {
  id: string;
  name: string;
  target: Pick<FleetRequest, "group" | "build_id" | "release">;
  workers: number;
}

/** The groups, builds and releases of workers, the largest of each kind first. */
export function severals(workers: readonly WorkerView[]): Several[] {
  const kinds = [
    ["group", "group", (w: WorkerView) => w.group],
    ["build_id", "build", (w: WorkerView) => w.build_id],
    ["release", "release", (w: WorkerView) => w.release],
  ] as const;
  return kinds.flatMap(([member, word, value]) => {
    const counts = new Map<string, number>();
    for (const w of workers) {
      const v = value(w);
      if (v) counts.set(v, (counts.get(v) ?? 0) + 1);
    }
    return [...counts]
      .sort(([a, n], [b, m]) => m - n || a.localeCompare(b))
      .map(([v, n]) => ({ id: `${member} ${v}`, name: `${word} ${v}`, target: { [member]: v }, workers: n }));
  });
}

/** The progress of a drain. */
export function progress(d: FleetDrain): string {
  if (d.worker_count === 0) return "No matching workers.";
  const left: string[] = [];
  if (d.active_leases > 0) left.push(`${of(d.active_leases, "task")} running`);
  if (d.held_sessions > 0) left.push(`${of(d.held_sessions, "session")} held`);
  return `${d.drained_worker_count} of ${of(d.worker_count, "worker")} drained${left.length > 0 ? `: ${left.join(", ")}` : ""}.`;
}

/** Converts a deadline in minutes to seconds: undefined if empty, null if invalid. */
export function deadline(minutes: string): number | null | undefined {
  const text = minutes.trim();
  if (text === "") return undefined;
  const n = Number(text);
  return /^\d+(\.\d+)?$/.test(text) && n > 0 && n <= 525_600 ? Math.max(1, Math.round(n * 60)) : null;
}
