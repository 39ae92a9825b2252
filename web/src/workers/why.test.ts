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

const said = (w: WorkerView, ...queues: QueueState[]) => whyNoWork(w, queues).map((r) => `${r.weight}: ${r.text}${r.wait ? plain(because(r.wait), "utc", 0) : ""}`);

describe("a worker gets no work at all", () => {
  it("while its release is another one, and may finish what it has", () => {
    expect(said(worker({ status: "mismatched", gate: "app release 2, worker release 1: no work until they are the same", active_leases: 1 }), queue({ ready: 3 }))).toEqual([
      "stop: app release 2, worker release 1: no work until they are the same. What it has, 1 task, it may finish.",
    ]);
  });
  it("while it drains, or is gone", () => {
    expect(said(worker({ status: "draining" }))[0]).toMatch(/^stop: It drains/);
    expect(said(worker({ status: "stale", gate: "x" }))[0]).toMatch(/^stop: It was not heard of/);
  });
  it("while an operator drains it, by its own name or among others", () => {
    expect(said(worker({ status: "draining", active_leases: 2, drain: { worker_id: "w", by: "ada", reason: "kernel", evict: false } }), queue({ ready: 3 }))).toEqual([
      "stop: It is drained by ada: kernel. What it has, 2 tasks, it may finish.",
    ]);
    expect(said(worker({ status: "draining", held_sessions: 0, drain: { worker_id: "w", evict: false } }))).toEqual(["stop: It is drained. It has nothing left, and may be stopped."]);
    expect(said(worker({ status: "draining", held_sessions: 2, drain: { worker_id: "w", evict: false } }))).toEqual(["stop: It is drained. It holds 2 sessions."]);
    expect(said(worker({ status: "draining", drain: { worker_id: "w", by: "local", evict: false } }))).toEqual(["stop: It is drained, by somebody without sign-in. It has nothing left, and may be stopped."]);
    expect(said(worker({ status: "draining", drain: { release: "1.4", evict: true } }))).toEqual(["stop: It is one of release 1.4, which was evicted."]);
  });
  it("while its build is drained on its queues", () => {
    expect(said(worker(), queue({ drained: "b1", ready: 2 }))).toEqual(["stop: Build b1 is drained on q."]);
    expect(said(worker({ status: "draining" }), queue({ drained: "b1", ready: 2 }))).toEqual(["stop: Build b1 is drained on q."]);
    expect(said(worker({ active_leases: 2 }), queue({ drained: "b1" }))).toEqual(["stop: Build b1 is drained on q. What it has, 2 tasks, it may finish."]);
    expect(said(worker({ task_queues: ["q", "r"], active_leases: 2 }), queue({ drained: "b1" }))[0]).toMatch(/^less: Build b1 is drained on q.$/);
  });
});

describe("a worker gets less", () => {
  it("when its slots or sessions are taken", () => {
    expect(said(worker({ task_slots: { workflow_available: 0, activity_available: 0 }, active_leases: 6 }), queue({ ready: 9, waiting: 0 }))).toEqual([
      "less: All its 2 workflow slots and 4 activity slots are taken: more comes when one is free.",
    ]);
    expect(said(worker({ held_sessions: 3, active_leases: 1 }), queue())).toEqual(["less: It holds all 3 sessions it may hold, and takes no further one."]);
    expect(said(worker({ max_concurrent_activity_tasks: 0, task_slots: null }), queue())).toEqual(["less: It has no activity slots, so it takes no activity."]);
  });
  it("when a budget holds back, or what is ready is not for it", () => {
    expect(said(worker(), queue({ held: 1 }))).toEqual(["less: activities are held back: queue q has 1 activity tasks leased, its budget is 1 at once"]);
    expect(said(worker(), queue({ ready: 2, stuck: true }))).toEqual(["less: 2 tasks ready in q, among them some that no worker there takes."]);
    expect(said(worker(), queue({ ready: 2 }))).toEqual([]); // they are on their way
    expect(said(worker(), queue({ ready: 1, waiting: 0 }))).toEqual(["less: 1 task ready in q, and no poll waits there now."]);
  });
});

it("rests when there is nothing to do, and says nothing while it works or its queues are not known", () => {
  expect(said(worker(), queue())).toEqual(["rest: Nothing is ready in q."]);
  expect(said(worker({ active_leases: 1 }), queue())).toEqual([]);
  expect(said(worker())).toEqual([]);
});

it("needs somebody where it neither was asked for nor goes on by itself", () => {
  const needs = (w: WorkerView, ...queues: QueueState[]) => whyNoWork(w, queues).some((r) => r.needs);
  expect(needs(worker({ status: "mismatched", gate: "app release 2, worker release 1" }))).toBe(true);
  expect(needs(worker({ max_concurrent_activity_tasks: 0, task_slots: null }), queue())).toBe(true);
  expect(needs(worker(), queue({ ready: 2, stuck: true }))).toBe(true);
  expect(needs(worker(), queue({ ready: 2, stuck: true, waiting: 0 }))).toBe(true);
  expect(needs(worker(), queue({ ready: 20_000 }))).toBe(false); // it takes them as fast as it can
  expect(needs(worker(), queue({ ready: 20_000, waiting: 0 }))).toBe(false);
  expect(needs(worker({ status: "draining" }))).toBe(false);
  expect(needs(worker({ status: "draining", drain: { worker_id: "w", evict: false } }))).toBe(false);
  expect(needs(worker(), queue({ drained: "b1", ready: 2 }))).toBe(false);
  expect(needs(worker({ held_sessions: 3, active_leases: 1 }), queue())).toBe(false);
  expect(needs(worker({ task_slots: { workflow_available: 0, activity_available: 0 }, active_leases: 6 }), queue({ ready: 9, waiting: 0 }))).toBe(false);
  expect(needs(worker(), queue({ held: 1 }))).toBe(false);
});
