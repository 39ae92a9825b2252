import { describe, expect, it } from "vitest";
import type { WorkerView } from "../api/types";
import { atOnce, executors, fleetWide, isolation, machine, otherCode, packages, slots } from "./facts";

describe("a worker's reports", () => {
  it("have used slots, or null if not reported", () => {
    const w = { max_concurrent_workflow_tasks: 4, max_concurrent_activity_tasks: 8, max_concurrent_worker_sessions: 10, held_sessions: 3, task_slots: { activity_available: 2 } };
    expect(slots(w as unknown as WorkerView).map((m) => [m.used, m.most])).toEqual([[null, 4], [6, 8], [3, 10]]);
    const counted = { ...w, task_slots: null, active_workflow_tasks: 0, active_activity_tasks: 5 };
    expect(slots(counted as unknown as WorkerView).map((m) => m.used)).toEqual([0, 5, 3]);
  });
  it("describe the isolation and its gaps", () => {
    expect(isolation({ level: "process", memory: "watchdog", processes: "cgroup2", cpu: "none", disk: "none", egress: "open", missing: ["open network connections", 7] })).toEqual({
      level: "process", limits: "memory: watchdog, processes: cgroup2, CPU: none, disk: none, network: open", missing: ["open network connections"],
    });
    expect(isolation({})).toBeNull();
    expect(isolation(null)).toBeNull();
  });
  it("describe the machine from the reported members", () => {
    expect(machine({ totalCpuCores: 1, totalAvailableRamInBytes: 8e9, cpuUsagePercentage: 7.6, diskInfo: { percentage: 30 } })).toEqual({
      size: "1 core, 7.5 GiB", load: "CPU 8\u00a0%, disk 30\u00a0%", address: "",
    });
    expect(machine({ workerId: "x" })).toBeNull();
  });
  it("list executors, also with few members", () => {
    const full = { sandboxId: "sb-1", runtime: "node", sessionId: "s", epoch: 3, busy: true, calls: 2, memoryUsageBytes: 5, since: "2026-01-01T00:00:00Z" };
    expect(executors({ sandboxes: [full, { sandboxId: "sb-2", busy: false, memoryUsageBytes: 7 }] })).toEqual([
      { id: "sb-1", runtime: "node", session: "s", epoch: 3, busy: true, calls: 2, memory: 5, since: "2026-01-01T00:00:00Z" },
      { id: "sb-2", runtime: "", session: "", epoch: null, busy: false, calls: 0, memory: 7, since: "" },
    ]);
    expect(executors(null)).toEqual([]);
  });
  it("list packages; unknown states are shown as they are", () => {
    const failed = { runtime: "python", files: ["requirements.txt"], state: "failed", detail: "no such package", since: "2026-01-01T00:00:00Z", again: "2026-01-01T00:00:10Z" };
    expect(packages({ handlerPackages: [failed, { runtime: "node", files: ["package.json", ".npmrc"], state: "installed", path: "/p/node-1", bytes: 2e6 }, { state: "new" }] })).toEqual([
      { runtime: "python", files: "requirements.txt", state: "installation failed", detail: "no such package", path: "", size: "", since: "2026-01-01T00:00:00Z", again: "2026-01-01T00:00:10Z", look: "text-bad" },
      { runtime: "node", files: "package.json, .npmrc", state: "installed", detail: "", path: "/p/node-1", size: "1.9 MiB", since: "", again: "", look: "text-soft" },
      { runtime: "", files: "", state: "new", detail: "", path: "", size: "", since: "", again: "", look: "text-soft" },
    ]);
    expect(packages(null)).toEqual([]);
  });
  it("list workers with different code under one release", () => {
    const w = { code_differs: [{ activity_type: "a", worker_id: "w2", version: "1" }, { activity_type: "b", worker_id: "w2", version: "2" }] };
    expect(otherCode(w as unknown as WorkerView)).toEqual(["Worker w2 registered different code for a, b under the same release; either version may run."]);
    expect(otherCode({} as unknown as WorkerView)).toEqual([]);
  });
  it("describe the settings of all workers", () => {
    const set = { namespace: "default", updated_at: null, revision: 3, worker_count: 2, applied_worker_count: 1, unaware_worker_count: 0, pending: ["w"] };
    expect(fleetWide({ ...set, log_level: "debug", worker_concurrency: 1, isolation_min_level: "confined" })).toBe(
      "log level debug, 1 concurrent activity, isolation confined or stronger",
    );
    expect(fleetWide({ ...set, worker_concurrency: 16 })).toBe("16 concurrent activities");
    expect(fleetWide({ ...set, fresh: true })).toBe("new executor for each call");
    expect(fleetWide({ ...set, rebalance: "off" })).toBe("sessions do not move to new workers");
    expect(fleetWide({ ...set, rebalance: "on" })).toBe("defaults of each worker");
    expect(fleetWide(set)).toBe("defaults of each worker");
  });
  it("parse a number of activities like the app", () => {
    expect(["", " 8 ", "10000", "0", "1.5", "-1", "1e2", "10001", "many"].map(atOnce)).toEqual([undefined, 8, 10_000, null, null, null, null, null, null]);
  });
});
