import { describe, expect, it } from "vitest";
import type { QueueState, WorkerView } from "../api/types";
import { because, plain } from "../lib/wait";
import { whyNoWork } from "./why";

const worker = (o: object = {}) =>
  ({
    worker_id: "w", status: "active", task_queue: "q", task_queues: ["q"], build_id: "b1", supported_workflow_types: ["t"], supported_activity_types: ["a"],
    max_concurrent_workflow_tasks: 2, max_concurrent_activity_tasks: 4, max_concurrent_worker_sessions: 3, held_sessions: 0, active_leases: 0,
    task_slots: { workflow_available: 2, activity_available: 4 }, ...o,
  }) as unknown as WorkerView;

const queue = (o: { ready?: number; waiting?: number; drained?: string; held?: number; stuck?: boolean } = {}) =>
  ({
    name: "q",
    stats: { workflow_tasks: { ready_count: 0 }, activity_tasks: { ready_count: o.ready ?? 0 }, pollers: { active_count: 1, waiting_count: o.waiting ?? 1 } },
    admission: { workflow_tasks: {}, activity_tasks: o.held ? { wait: { kind: "activity", reason: "budget_leases", task_queue: "q", used: 1, limit: o.held } } : {} },
    waiting: o.ready ? [{ wait: { reason: o.stuck ? "type_not_served" : "worker_busy", needs_attention: o.stuck ?? false } }] : [],
    build_ids: [{ build_id: o.drained ?? "other", drain_intent: "draining" }],
  }) as unknown as QueueState;

const reasons = (w: WorkerView, ...queues: QueueState[]) => whyNoWork(w, queues).map((r) => `${r.weight}: ${r.text}${r.wait ? plain(because(r.wait), "utc", 0) : ""}`);

describe("a worker gets no work at all", () => {
  it("with another release; running tasks finish", () => {
    expect(reasons(worker({ status: "mismatched", gate: 'app release "2", worker release "1": deploy the same release to both', active_leases: 1 }), queue({ ready: 3 }))).toEqual([
      'stop: Version mismatch: app release "2", worker release "1": deploy the same release to both. 1 running task can finish.',
    ]);
  });
  it("while it drains or sends no heartbeats", () => {
    expect(reasons(worker({ status: "draining" }))[0]).toMatch(/^stop: Draining: no new tasks/);
    expect(reasons(worker({ status: "stale", gate: "x" }))[0]).toMatch(/^stop: No heartbeats/);
  });
  it("while an operator drains it or its release", () => {
    expect(reasons(worker({ status: "draining", active_leases: 2, drain: { worker_id: "w", by: "ada", reason: "kernel", evict: false } }), queue({ ready: 3 }))).toEqual([
      "stop: Draining, requested by ada: kernel. 2 running tasks can finish.",
    ]);
    expect(reasons(worker({ status: "draining", held_sessions: 0, drain: { worker_id: "w", evict: false } }))).toEqual(["stop: Drained. Nothing is running; the process can be stopped."]);
    expect(reasons(worker({ status: "draining", held_sessions: 2, drain: { worker_id: "w", evict: false } }))).toEqual(["stop: Draining. It holds 2 sessions."]);
    expect(reasons(worker({ status: "draining", drain: { worker_id: "w", by: "local", evict: false } }))).toEqual(["stop: Drained, requested without sign-in. Nothing is running; the process can be stopped."]);
    expect(reasons(worker({ status: "draining", drain: { release: "1.4", evict: true } }))).toEqual(["stop: Evicted with release 1.4."]);
  });
  it("while its build is drained on its queues", () => {
    expect(reasons(worker(), queue({ drained: "b1", ready: 2 }))).toEqual(["stop: Build b1 is drained on queue q."]);
    expect(reasons(worker({ status: "draining" }), queue({ drained: "b1", ready: 2 }))).toEqual(["stop: Build b1 is drained on queue q."]);
    expect(reasons(worker({ active_leases: 2 }), queue({ drained: "b1" }))).toEqual(["stop: Build b1 is drained on queue q. 2 running tasks can finish."]);
    expect(reasons(worker({ task_queues: ["q", "r"], active_leases: 2 }), queue({ drained: "b1" }))[0]).toMatch(/^less: Build b1 is drained on queue q.$/);
  });
});

describe("a worker gets less", () => {
  it("when its slots or sessions are in use", () => {
    expect(reasons(worker({ task_slots: { workflow_available: 0, activity_available: 0 }, active_leases: 6 }), queue({ ready: 9, waiting: 0 }))).toEqual([
      "less: Slots in use: 2 of 2 workflow slots and 4 of 4 activity slots.",
    ]);
    expect(reasons(worker({ held_sessions: 3, active_leases: 1 }), queue())).toEqual(["less: Sessions in use: 3 of 3; no new sessions."]);
    expect(reasons(worker({ max_concurrent_activity_tasks: 0, task_slots: null }), queue())).toEqual(["less: No activity slots: the worker gets no activities."]);
  });
  it("when a limit delays tasks or ready tasks need another worker", () => {
    expect(reasons(worker(), queue({ held: 1 }))).toEqual(['less: Activities are delayed: queue "q" is at its concurrency limit (1 of 1 activity tasks leased)']);
    expect(reasons(worker(), queue({ ready: 2, stuck: true }))).toEqual(["less: 2 ready tasks in q; some cannot run on any polling worker."]);
    expect(reasons(worker(), queue({ ready: 2 }))).toEqual([]); // they are being dispatched
    expect(reasons(worker(), queue({ ready: 1, waiting: 0 }))).toEqual(["less: 1 ready task in q; no worker is polling now."]);
  });
});

it("has no ready tasks, or no reason while it works or its queues are not loaded", () => {
  expect(reasons(worker(), queue())).toEqual(["rest: No ready tasks in q."]);
  expect(reasons(worker({ active_leases: 1 }), queue())).toEqual([]);
  expect(reasons(worker())).toEqual([]);
});

it("needs an operator only for unrequested states that persist", () => {
  const needs = (w: WorkerView, ...queues: QueueState[]) => whyNoWork(w, queues).some((r) => r.needs);
  expect(needs(worker({ status: "mismatched", gate: "app release 2, worker release 1" }))).toBe(true);
  expect(needs(worker({ max_concurrent_activity_tasks: 0, task_slots: null }), queue())).toBe(true);
  expect(needs(worker(), queue({ ready: 2, stuck: true }))).toBe(true);
  expect(needs(worker(), queue({ ready: 2, stuck: true, waiting: 0 }))).toBe(true);
  expect(needs(worker(), queue({ ready: 20_000 }))).toBe(false); // it polls as fast as it can
  expect(needs(worker(), queue({ ready: 20_000, waiting: 0 }))).toBe(false);
  expect(needs(worker({ status: "draining" }))).toBe(false);
  expect(needs(worker({ status: "draining", drain: { worker_id: "w", evict: false } }))).toBe(false);
  expect(needs(worker(), queue({ drained: "b1", ready: 2 }))).toBe(false);
  expect(needs(worker({ held_sessions: 3, active_leases: 1 }), queue())).toBe(false);
  expect(needs(worker({ task_slots: { workflow_available: 0, activity_available: 0 }, active_leases: 6 }), queue({ ready: 9, waiting: 0 }))).toBe(false);
  expect(needs(worker(), queue({ held: 1 }))).toBe(false);
});
