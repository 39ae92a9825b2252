import { describe, expect, it } from "vitest";
import type { FleetDrain, WorkerView } from "../api/types";
import { deadline, progress, severals } from "./drains";

describe("drains of several workers", () => {
  it("are offered for groups, builds and releases of workers", () => {
    const workers = [
      { release: "1.0.0", group: "gpu", build_id: null },
      { release: "1.1.0", group: "gpu", build_id: "b1" },
      { release: "1.1.0", group: "", build_id: null },
      { release: "", build_id: null },
    ] as unknown as WorkerView[];
    expect(severals(workers).map((s) => [s.name, s.target, s.workers])).toEqual([
      ["group gpu", { group: "gpu" }, 2],
      ["build b1", { build_id: "b1" }, 1],
      ["release 1.1.0", { release: "1.1.0" }, 2],
      ["release 1.0.0", { release: "1.0.0" }, 1],
    ]);
    expect(severals([])).toEqual([]);
  });
  it("have a progress", () => {
    const d = { worker_count: 3, drained_worker_count: 1, active_leases: 2, held_sessions: 1 } as FleetDrain;
    expect(progress(d)).toBe("1 of 3 workers drained: 2 tasks running, 1 session held.");
    expect(progress({ ...d, drained_worker_count: 3, active_leases: 0, held_sessions: 0 })).toBe("3 of 3 workers drained.");
    expect(progress({ ...d, worker_count: 0 })).toBe("No matching workers.");
  });
  it("parse a deadline in minutes", () => {
    expect(["", " ", "10", "0.5", "0.001"].map(deadline)).toEqual([undefined, undefined, 600, 30, 1]);
    expect(["0", "-1", "soon", "1e9", "600000"].map(deadline)).toEqual([null, null, null, null, null]);
  });
});
