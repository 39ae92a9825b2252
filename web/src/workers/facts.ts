import type { FleetSettings, Json, WorkerView } from "../api/types";
import { bytes } from "../lib/format";
import { isObject, numberOf } from "../lib/json";

// A worker's reports are objects that each SDK defines. These functions read the known members and ignore others.

type Report = Json | undefined;

const num = (r: Report, ...names: string[]): number | null => {
  if (!isObject(r)) return null;
  for (const n of names) {
    const found = numberOf(r[n]);
    if (found !== null) return found;
  }
  return null;
};
const member = (r: Report, name: string): Json | undefined => (isObject(r) ? r[name] : undefined);
const str = (r: Report, name: string): string => {
  const found = member(r, name);
  return typeof found === "string" ? found : "";
};

export interface Meter {
  name: string;
  used: number | null; // null: not reported
  most: number;
}

/** Used and total slots of a worker by kind. */
export function slots(w: WorkerView): Meter[] {
  // Leased tasks are the used slots, even if the worker does not report free slots.
  const used = (most: number, free: number | null, leased: number | undefined) => leased ?? (free === null ? null : Math.max(0, most - free));
  return [
    { name: "Workflow slots", most: w.max_concurrent_workflow_tasks, used: used(w.max_concurrent_workflow_tasks, num(w.task_slots, "workflow_available"), w.active_workflow_tasks) },
    { name: "Activity slots", most: w.max_concurrent_activity_tasks, used: used(w.max_concurrent_activity_tasks, num(w.task_slots, "activity_available"), w.active_activity_tasks) },
    { name: "Sessions", most: w.max_concurrent_worker_sessions, used: w.held_sessions ?? 0 },
  ];
}

/** The isolation that a worker's sandbox provides. */
export function isolation(r: Report): { level: string; limits: string; missing: string[] } | null {
  const level = str(r, "level");
  if (!level) return null;
  const limits = [
    str(r, "memory") && `memory: ${str(r, "memory")}`,
    str(r, "processes") && `processes: ${str(r, "processes")}`,
    str(r, "cpu") && `CPU: ${str(r, "cpu")}`,
    str(r, "disk") && `disk: ${str(r, "disk")}`,
    str(r, "egress") && `network: ${str(r, "egress")}`,
  ].filter(Boolean);
  const listed = member(r, "missing");
  const missing = Array.isArray(listed) ? listed.filter((m): m is string => typeof m === "string") : [];
  return { level, limits: limits.join(", "), missing };
}

/** Workers with different code under the same release, where either version may run. */
export function otherCode(w: WorkerView): string[] {
  const by = new Map<string, string[]>();
  for (const d of w.code_differs ?? []) by.set(d.worker_id, [...(by.get(d.worker_id) ?? []), d.activity_type]);
  return [...by].map(([worker, types]) => `Worker ${worker} registered different code for ${types.join(", ")} under the same release; either version may run.`);
}

export interface Executor {
  id: string;
  runtime: string;
  session: string;
  epoch: number | null;
  busy: boolean;
  calls: number;
  memory: number; // bytes
  since: string; // empty: not reported
}

/** The executors in the last heartbeat of a worker. */
export function executors(r: Report): Executor[] {
  const all = member(r, "sandboxes");
  return (Array.isArray(all) ? all : []).filter(isObject).map((e) => ({
    id: str(e, "sandboxId"),
    runtime: str(e, "runtime"),
    session: str(e, "sessionId"),
    epoch: num(e, "epoch"),
    busy: e.busy === true,
    calls: num(e, "calls") ?? 0,
    memory: num(e, "memoryUsageBytes") ?? 0,
    since: str(e, "since"),
  }));
}

export interface Packages {
  runtime: string;
  files: string; // package manifests
  state: string;
  detail: string;
  path: string;
  size: string; // empty: not reported
  since: string;
  again: string;
  look: string;
}

const states: Record<string, { text: string; look: string }> = {
  installed: { text: "installed", look: "text-soft" },
  installing: { text: "installing", look: "text-run" },
  failed: { text: "installation failed", look: "text-bad" },
  pending: { text: "not installed yet", look: "text-soft" },
  others: { text: "installed outside Sojourn", look: "text-soft" },
};

/** The packages of a worker's handlers, from its last heartbeat. */
export function packages(r: Report): Packages[] {
  const all = member(r, "handlerPackages");
  return (Array.isArray(all) ? all : []).filter(isObject).map((p) => {
    const files = member(p, "files");
    const size = num(p, "bytes");
    const state = states[str(p, "state")] ?? { text: str(p, "state"), look: "text-soft" };
    return {
      runtime: str(p, "runtime"),
      files: (Array.isArray(files) ? files : []).filter((f): f is string => typeof f === "string").join(", "),
      state: state.text,
      detail: str(p, "detail"),
      path: str(p, "path"),
      size: size ? bytes(size) : "",
      since: str(p, "since"),
      again: str(p, "again"),
      look: state.look,
    };
  });
}

/** The machine of a worker. */
export function machine(r: Report): { size: string; load: string; address: string } | null {
  const cores = num(r, "totalCpuCores");
  const ram = num(r, "totalAvailableRamInBytes");
  const cpu = num(r, "cpuUsagePercentage");
  const used = num(r, "ramUsagePercentage");
  const disk = num(member(r, "diskInfo"), "percentage");
  const size = [cores !== null && `${cores} ${cores === 1 ? "core" : "cores"}`, ram !== null && bytes(ram)].filter(Boolean).join(", ");
  const load = [cpu !== null && `CPU ${Math.round(cpu)}\u00a0%`, used !== null && `memory ${Math.round(used)}\u00a0%`, disk !== null && `disk ${Math.round(disk)}\u00a0%`]
    .filter(Boolean)
    .join(", ");
  const address = str(r, "ip");
  return size || load || address ? { size, load, address } : null;
}

/** The settings of all workers. */
export function fleetWide(s: FleetSettings): string {
  const all: string[] = [];
  if (s.log_level) all.push(`log level ${s.log_level}`);
  if (s.worker_concurrency) all.push(`${s.worker_concurrency} ${s.worker_concurrency === 1 ? "concurrent activity" : "concurrent activities"}`);
  if (s.isolation_min_level) all.push(`isolation ${s.isolation_min_level} or stronger`);
  if (s.fresh) all.push("new executor for each call");
  if (s.rebalance === "off") all.push("sessions do not move to new workers");
  return all.join(", ") || "defaults of each worker";
}

export const logLevels = ["trace", "debug", "info", "warn", "error"] as const satisfies readonly FleetSettings["log_level"][];

/** Levels of isolation, the weakest first. */
export const isolationLevels = ["none", "process", "confined"] as const satisfies readonly FleetSettings["isolation_min_level"][];

/** Parses a number of concurrent activities: undefined if empty, null if invalid. */
export function atOnce(text: string): number | null | undefined {
  const digits = text.trim();
  if (digits === "") return undefined;
  const n = Number(digits);
  return /^\d+$/.test(digits) && n >= 1 && n <= 10_000 ? n : null;
}
