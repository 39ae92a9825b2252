import { describe, expect, it } from "vitest";
import type { BuildCohort, QueueState, TaskAdmission, Wait } from "../api/types";
import { bars, parseBudget, unservedBuild, unserved, verbs, waitsIn, withheld } from "./facts";

const free = {
  status: "unlimited",
  server_active_lease_count: 3,
  server_max_active_leases_per_queue: null,
  server_namespace_active_lease_count: 9,
  server_max_active_leases_per_namespace: null,
  server_dispatch_count_this_minute: 0,
  server_max_dispatches_per_minute: null,
  server_namespace_dispatch_count_this_minute: 0,
  server_max_dispatches_per_minute_per_namespace: null,
} as TaskAdmission;

describe("bars", () => {
  it("shows only the leased tasks without a limit", () => {
    expect(bars(free)).toEqual([{ name: "Leased", used: 3, most: null }]);
  });
  it("shows the limits of the queue and of its namespace", () => {
    const a = { ...free, server_max_active_leases_per_queue: 4, server_max_dispatches_per_minute: 60, server_max_active_leases_per_namespace: 10 };
    expect(bars(a).map((b) => `${b.name} ${b.used}/${b.most}`)).toEqual(["Leased 3/4", "Started this minute 0/60", "Leased in namespace 9/10"]);
  });
});

const cohort = (more: Partial<BuildCohort>): BuildCohort => ({
  build_id: "v1",
  rollout_status: "active",
  active_worker_count: 1,
  draining_worker_count: 0,
  stale_worker_count: 0,
  total_worker_count: 1,
  runtimes: [],
  sdk_versions: [],
  last_heartbeat_at: null,
  first_seen_at: null,
  drain_intent: "active",
  drained_at: null,
  promoted_at: null,
  new_start_selected: false,
  ...more,
});

it("reports that no worker can run new runs of the promoted build", () => {
  const says = (more: Partial<BuildCohort>) => unservedBuild({ build_ids: [cohort({ build_id: "v0", active_worker_count: 0 }), cohort({ new_start_selected: true, ...more })] } as QueueState);
  expect(says({})).toBe("");
  expect(says({ active_worker_count: 0 })).toMatch(/^New runs are pinned to build v1, which no live worker has\. They wait/);
  expect(says({ active_worker_count: 0, draining_worker_count: 2 })).toMatch(/^New runs are pinned to build v1, whose workers are all draining\. They wait/);
  expect(says({ build_id: null, active_worker_count: 0 })).toBe("");
  expect(unservedBuild({} as QueueState)).toBe("");
});

describe("verbs", () => {
  it("offers only actions that change something", () => {
    expect(verbs(cohort({}))).toEqual(["promote", "drain"]);
    expect(verbs(cohort({ new_start_selected: true }))).toEqual(["drain"]);
    expect(verbs(cohort({ drain_intent: "draining" }))).toEqual(["resume"]);
  });
});

it("has the reason why a queue is throttled", () => {
  const wait = { reason: "budget_leases" } as Wait;
  const q = { admission: { workflow_tasks: free, activity_tasks: { ...free, wait } } } as QueueState;
  expect(withheld(q)).toBe(wait);
  expect(withheld({ admission: { workflow_tasks: free, activity_tasks: free } } as QueueState)).toBeUndefined();
});

it("has a line with the reason why tasks of a queue wait", () => {
  const now = Date.parse("2026-11-26T12:00:00Z");
  const q = (ready: number, active: number, stale: number, waiting: number, seconds = 60) =>
    ({
      admission: { workflow_tasks: free, activity_tasks: free },
      stats: { workflow_tasks: { ready_count: 0 }, activity_tasks: { ready_count: ready, oldest_ready_at: ready ? new Date(now - seconds * 1000).toISOString() : null }, pollers: { active_count: active, stale_count: stale, waiting_count: waiting } },
    }) as unknown as QueueState;
  const all = [q(0, 0, 0, 0), q(1, 0, 0, 0), q(1, 0, 2, 0), q(1, 1, 0, 1), q(1, 1, 0, 1, 1), q(1, 1, 0, 0)];
  expect(all.map((one) => waitsIn(one, now))).toEqual([
    "", "No worker is polling", "No live worker is polling; 2 stopped sending heartbeats", "No polling worker can run all ready tasks",
    "", "Workers are busy or not polling",
  ]);
  expect(all.map((one) => unserved(one, now))).toEqual([false, true, true, true, false, false]);
});

it("parses limits", () => {
  expect([parseBudget(" "), parseBudget("12")]).toEqual([null, 12]);
  for (const wrong of ["0", "-1", "1.5", "many"]) expect(() => parseBudget(wrong)).toThrow("above 0");
});
