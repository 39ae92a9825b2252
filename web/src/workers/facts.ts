import type { FleetSettings, Json, WorkerView } from "../api/types";
import { bytes } from "../lib/format";
import { isObject, numberOf } from "../lib/json";

// What a worker reports of itself comes in objects of its own making; these read the members we know and pass over the rest.

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

/** How full a worker is, by kind of slot. */
export function slots(w: WorkerView): Meter[] {
  // What it has leased is what it runs, whether it reports its free slots or not.
  const used = (most: number, free: number | null, leased: number | undefined) => leased ?? (free === null ? null : Math.max(0, most - free));
  return [
    { name: "Workflow slots", most: w.max_concurrent_workflow_tasks, used: used(w.max_concurrent_workflow_tasks, num(w.task_slots, "workflow_available"), w.active_workflow_tasks) },
    { name: "Activity slots", most: w.max_concurrent_activity_tasks, used: used(w.max_concurrent_activity_tasks, num(w.task_slots, "activity_available"), w.active_activity_tasks) },
    { name: "Sessions", most: w.max_concurrent_worker_sessions, used: w.held_sessions ?? 0 },
  ];
}

/** The isolation a worker's sandbox really gives, in words. */
export function isolation(r: Report): { level: string; limits: string; missing: string[] } | null {
  const level = str(r, "level");
  if (!level) return null;
  const limits = [
    str(r, "memory") && `memory by ${str(r, "memory")}`,
    str(r, "processes") && `processes by ${str(r, "processes")}`,
    str(r, "cpu") && `processor time by ${str(r, "cpu")}`,
    str(r, "disk") && `disk by ${str(r, "disk")}`,
    str(r, "egress") && `network ${str(r, "egress")}`,
  ].filter(Boolean);
  const listed = member(r, "missing");
  const missing = Array.isArray(listed) ? listed.filter((m): m is string => typeof m === "string") : [];
  return { level, limits: limits.join(", "), missing };
}

/** Which workers have other code than this one under the same release, in words: what runs is then chance. */
export function otherCode(w: WorkerView): string[] {
  const by = new Map<string, string[]>();
  for (const d of w.code_differs ?? []) by.set(d.worker_id, [...(by.get(d.worker_id) ?? []), d.activity_type]);
  return [...by].map(([worker, types]) => `Worker ${worker} has other code of ${types.join(", ")} under the same release: which of them runs is chance.`);
}

export interface Executor {
  id: string;
  runtime: string;
  session: string;
  epoch: number | null;
  busy: boolean;
  calls: number;
  memory: number; // bytes
  since: string; // empty: not said
}

/** The executors a worker told of with its last heartbeat. */
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
  files: string; // that name them
  state: string;
  detail: string;
  path: string;
  size: string; // empty: not said
  since: string;
  again: string;
  look: string;
}

const states: Record<string, { text: string; look: string }> = {
  installed: { text: "installed", look: "text-soft" },
  installing: { text: "being installed", look: "text-run" },
  failed: { text: "could not be installed", look: "text-bad" },
  pending: { text: "not installed yet", look: "text-soft" },
  others: { text: "not ours to install", look: "text-soft" },
};

/** How it stands with the packages that a worker's handlers need, as its last heartbeat told. */
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

/** The machine a worker runs on, in words. */
export function machine(r: Report): { size: string; load: string; address: string } | null {
  const cores = num(r, "totalCpuCores");
  const ram = num(r, "totalAvailableRamInBytes");
  const cpu = num(r, "cpuUsagePercentage");
  const used = num(r, "ramUsagePercentage");
  const disk = num(member(r, "diskInfo"), "percentage");
  const size = [cores !== null && `${cores} ${cores === 1 ? "core" : "cores"}`, ram !== null && bytes(ram)].filter(Boolean).join(", ");
  const load = [cpu !== null && `cpu ${Math.round(cpu)}\u00a0%`, used !== null && `memory ${Math.round(used)}\u00a0%`, disk !== null && `disk ${Math.round(disk)}\u00a0%`]
    .filter(Boolean)
    .join(", ");
  const address = str(r, "ip");
  return size || load || address ? { size, load, address } : null;
}

/** What is set for all workers, in words. */
export function fleetWide(s: FleetSettings): string {
  const all: string[] = [];
  if (s.log_level) all.push(`log level ${s.log_level}`);
  if (s.worker_concurrency) all.push(`${s.worker_concurrency} ${s.worker_concurrency === 1 ? "activity" : "activities"} at once`);
  if (s.isolation_min_level) all.push(`isolation ${s.isolation_min_level} or stronger`);
  if (s.fresh) all.push("a new executor for each call");
  return all.join(", ") || "what each brings itself";
}

export const logLevels = ["trace", "debug", "info", "warn", "error"] as const satisfies readonly FleetSettings["log_level"][];

/** Levels of isolation, the weakest first. */
export const isolationLevels = ["none", "process", "confined"] as const satisfies readonly FleetSettings["isolation_min_level"][];

/** How many activities at once a text asks for: undefined for none said, null for what is no such number. */
export function atOnce(text: string): number | null | undefined {
  const digits = text.trim();
  if (digits === "") return undefined;
  const n = Number(digits);
  return /^\d+$/.test(digits) && n >= 1 && n <= 10_000 ? n : null;
}
