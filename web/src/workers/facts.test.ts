import { describe, expect, it } from "vitest";
import type { WorkerView } from "../api/types";
import { atOnce, executors, fleetWide, isolation, machine, otherCode, packages, slots } from "./facts";

describe("a worker's reports", () => {
  it("tell how full it is, and nothing where it says nothing", () => {
    const w = { max_concurrent_workflow_tasks: 4, max_concurrent_activity_tasks: 8, max_concurrent_worker_sessions: 10, held_sessions: 3, task_slots: { activity_available: 2 } };
    expect(slots(w as unknown as WorkerView).map((m) => [m.used, m.most])).toEqual([[null, 4], [6, 8], [3, 10]]);
    const counted = { ...w, task_slots: null, active_workflow_tasks: 0, active_activity_tasks: 5 };
    expect(slots(counted as unknown as WorkerView).map((m) => m.used)).toEqual([0, 5, 3]);
  });
  it("tell the isolation in words, with what is missing", () => {
    expect(isolation({ level: "process", memory: "watchdog", processes: "cgroup2", cpu: "none", disk: "none", egress: "open", missing: ["open network connections", 7] })).toEqual({
      level: "process", limits: "memory by watchdog, processes by cgroup2, processor time by none, disk by none, network open", missing: ["open network connections"],
    });
    expect(isolation({})).toBeNull();
    expect(isolation(null)).toBeNull();
  });
  it("tell the machine in words, whatever part is there", () => {
    expect(machine({ totalCpuCores: 1, totalAvailableRamInBytes: 8e9, cpuUsagePercentage: 7.6, diskInfo: { percentage: 30 } })).toEqual({
      size: "1 core, 8.0 GB", load: "cpu 8\u00a0%, disk 30\u00a0%", address: "",
    });
    expect(machine({ workerId: "x" })).toBeNull();
  });
  it("tell of executors, also of workers that say less of them", () => {
    const full = { sandboxId: "sb-1", runtime: "node", sessionId: "s", epoch: 3, busy: true, calls: 2, memoryUsageBytes: 5, since: "2026-01-01T00:00:00Z" };
    expect(executors({ sandboxes: [full, { sandboxId: "sb-2", busy: false, memoryUsageBytes: 7 }] })).toEqual([
      { id: "sb-1", runtime: "node", session: "s", epoch: 3, busy: true, calls: 2, memory: 5, since: "2026-01-01T00:00:00Z" },
      { id: "sb-2", runtime: "", session: "", epoch: null, busy: false, calls: 0, memory: 7, since: "" },
    ]);
    expect(executors(null)).toEqual([]);
  });
  it("tell of packages, in words where they know the state", () => {
    const failed = { runtime: "python", files: ["requirements.txt"], state: "failed", detail: "no such package", since: "2026-01-01T00:00:00Z", again: "2026-01-01T00:00:10Z" };
    expect(packages({ handlerPackages: [failed, { runtime: "node", files: ["package.json", ".npmrc"], state: "installed", path: "/p/node-1", bytes: 2e6 }, { state: "new" }] })).toEqual([
      { runtime: "python", files: "requirements.txt", state: "could not be installed", detail: "no such package", path: "", size: "", since: "2026-01-01T00:00:00Z", again: "2026-01-01T00:00:10Z", look: "text-bad" },
      { runtime: "node", files: "package.json, .npmrc", state: "installed", detail: "", path: "/p/node-1", size: "2.0 MB", since: "", again: "", look: "text-soft" },
      { runtime: "", files: "", state: "new", detail: "", path: "", size: "", since: "", again: "", look: "text-soft" },
    ]);
    expect(packages(null)).toEqual([]);
  });
  it("tell whose code differs under one release", () => {
    const w = { code_differs: [{ activity_type: "a", worker_id: "w2", version: "1" }, { activity_type: "b", worker_id: "w2", version: "2" }] };
    expect(otherCode(w as unknown as WorkerView)).toEqual(["Worker w2 has other code of a, b under the same release: which of them runs is chance."]);
    expect(otherCode({} as unknown as WorkerView)).toEqual([]);
  });
  it("tell what an operator set for all, and that it was set free", () => {
    const set = { namespace: "default", updated_at: null, revision: 3, worker_count: 2, applied_worker_count: 1, unaware_worker_count: 0, pending: ["w"] };
    expect(fleetWide({ ...set, log_level: "debug", worker_concurrency: 1, isolation_min_level: "confined" })).toBe(
      "log level debug, 1 activity at once, isolation confined or stronger",
    );
    expect(fleetWide({ ...set, worker_concurrency: 16 })).toBe("16 activities at once");
    expect(fleetWide({ ...set, fresh: true })).toBe("a new executor for each call");
    expect(fleetWide(set)).toBe("what each brings itself");
  });
  it("take a number of activities as the app does", () => {
    expect(["", " 8 ", "10000", "0", "1.5", "-1", "1e2", "10001", "many"].map(atOnce)).toEqual([undefined, 8, 10_000, null, null, null, null, null, null]);
  });
});
