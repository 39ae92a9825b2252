import { describe, expect, it } from "vitest";
import type { HistoryEvent, Json, Pending, SessionEvent } from "../api/types";
import { buildTimeline, numbered, type Bar, type Lane } from "./timeline";

const zero = Date.UTC(2026, 10, 21, 12);
const iso = (ms: number) => new Date(zero + ms).toISOString();

/** Events from rows [ms after the start, type, payload]. */
function history(...rows: [at: number, type: string, payload: Record<string, Json>][]): HistoryEvent[] {
  return rows.map(([at, event_type, payload], i) => ({ sequence: i + 1, event_type, recorded_at: iso(at), timestamp: null, payload }));
}

const started: [number, string, Record<string, Json>] = [0, "WorkflowStarted", { workflow_type: "research" }];
const none: Pending = { activities: [], timers: [], waits: [], updates: [], children: [], sessions: [], workflow_task: null };
const bar = (b: Bar) => [b.kind, b.from - zero, b.to === null ? null : b.to - zero, ...(b.outcome ? [b.outcome] : [])];
const bars = (l: Lane | undefined) => l?.bars.map(bar);
const find = (lanes: Lane[], title: string) => lanes.find((l) => l.title === title);

describe("an awakeable", () => {
  it("has a lane from its opening to its outcome", () => {
    const t = buildTimeline(
      history(
        started,
        [10, "AwakeableOpened", { sequence: 1, awakeable_id: "r-1" }],
        [10, "AwakeableOpened", { sequence: 2, awakeable_id: "r-2" }],
        [10, "AwakeableOpened", { sequence: 3, awakeable_id: "r-3" }],
        [20, "SignalReceived", { signal_name: "r-1" }],
        [30, "AwakeableCompleted", { sequence: 1, awakeable_id: "r-1" }],
        [40, "AwakeableFailed", { sequence: 2, awakeable_id: "r-2", message: "no" }],
      ),
      none,
    );
    expect(["r-1", "r-2", "r-3"].map((id) => bars(find(t.lanes, id)))).toEqual([[["wait", 10, 30, "completed"]], [["wait", 10, 40, "failed"]], [["wait", 10, null]]]);
    expect(find(t.lanes, "r-1")).toMatchObject({ kind: "wait", detail: "awakeable", state: "completed", marks: [] });
    expect(find(t.lanes, "r-2")).toMatchObject({ state: "failed", failure: "no" });
  });
});

describe("an activity", () => {
  it("waits from its schedule to its start and runs to its end", () => {
    const t = buildTimeline(
      history(started, [10, "ActivityScheduled", { sequence: 1, activity_type: "index" }], [90, "ActivityCompleted", { sequence: 1, activity_type: "index", attempt_number: 1, worker_id: "w1", started_at: iso(30) }]),
      none,
    );
    const l = find(t.lanes, "index");
    expect(bars(l)).toEqual([["queued", 10, 30], ["attempt", 30, 90, "completed"]]);
    expect(l).toMatchObject({ state: "completed", worker: "w1", attempts: 1, events: [2, 3], depth: 0 });
  });

  it("that is a local step runs before it is recorded, and does not wait for a worker", () => {
    const t = buildTimeline(
      history(
        started,
        [90, "ActivityScheduled", { sequence: 1, activity_type: "quote", execution_mode: "local" }],
        [90, "ActivityCompleted", { sequence: 1, activity_type: "quote", attempt_number: 1, worker_id: "w1", started_at: iso(50), execution_mode: "local" }],
      ),
      none,
    );
    const l = find(t.lanes, "quote")!;
    expect(bars(l)).toEqual([["attempt", 50, 90, "completed"]]);
    expect(l).toMatchObject({ state: "completed", from: zero + 50, detail: "local step" });
  });

  it("shows every attempt, the back-off between them and what was lost", () => {
    const t = buildTimeline(
      history(
        started,
        [0, "ActivityScheduled", { sequence: 1, activity_type: "charge" }],
        [100, "ActivityRetryScheduled", { sequence: 1, attempt_number: 1, started_at: iso(20), retry_available_at: iso(300), message: "503" }],
        [500, "ActivityFailed", { sequence: 1, attempt_number: 2, started_at: iso(350), message: "declined", lost_deliveries: [
          { delivery: 2, worker_id: "w9", at: iso(330), why: "lease_expired" },
          { delivery: 3, worker_id: "w8", at: iso(345), why: "worker_restarted", started_at: iso(332), last_heartbeat_at: iso(340) },
        ] }],
      ),
      none,
    );
    const l = find(t.lanes, "charge")!;
    expect(bars(l)).toEqual([
      ["queued", 0, 20], ["attempt", 20, 100, "failed"], ["backoff", 100, 300], ["queued", 300, 350], ["attempt", 350, 500, "failed"],
    ]);
    expect(l).toMatchObject({ state: "failed", attempts: 2, failure: "declined" });
    expect(l.marks).toEqual([
      { kind: "lost", at: zero + 330, label: "delivery 2 lost on w9: lease expired" },
      { kind: "lost", at: zero + 345, label: "delivery 3 lost on w8 after 13 ms: worker restarted, last heartbeat 5.0 ms earlier" },
    ]);
  });

  it("that is running has an open bar from the pending state", () => {
    const pending = { ...none, activities: [{ sequence: 1, state: "leased", attempt_number: 2, worker_id: "w2", session_epoch: 7, started_at: iso(40) }] } as unknown as Pending;
    const t = buildTimeline(history(started, [10, "ActivityScheduled", { sequence: 1, activity_type: "index" }]), pending);
    const l = find(t.lanes, "index")!;
    expect(bars(l)).toEqual([["queued", 10, 40], ["attempt", 40, null]]);
    expect(l).toMatchObject({ state: "running", worker: "w2", epoch: 7, attempts: 2, to: null });
  });

  it("that no worker leases is queued, with the reason", () => {
    const pending = { ...none, activities: [{ sequence: 1, state: "ready", attempt_number: 1, started_at: null, wait: { reason: "capability_missing", missing: ["gpu"] } }] } as unknown as Pending;
    const t = buildTimeline(history(started, [10, "ActivityScheduled", { sequence: 1, activity_type: "index" }]), pending);
    expect(bars(find(t.lanes, "index"))).toEqual([["queued", 10, null]]);
    expect(find(t.lanes, "index")).toMatchObject({ state: "queued", bars: [{ wait: { missing: ["gpu"] } }] });
  });

  it("left open by a run that closed ends with it", () => {
    const t = buildTimeline(history(started, [10, "ActivityScheduled", { sequence: 1, activity_type: "index" }], [50, "WorkflowTerminated", { reason: "enough" }]), null);
    expect(find(t.lanes, "index")).toMatchObject({ state: "cancelled", to: zero + 50 });
    expect(t.lanes[0]).toMatchObject({ kind: "run", state: "cancelled", failure: "enough", to: zero + 50 });
    expect(t.lanes.flatMap((l) => l.bars).every((b) => b.to !== null)).toBe(true);
  });
});

describe("a session", () => {
  const inSession = (seq: number, name: string, from: number, to: number, worker: string, epoch: number): [number, string, Record<string, Json>][] => [
    [from, "ActivityScheduled", { sequence: seq, activity_type: name, session_id: "r-1" }],
    [to, "ActivityCompleted", { sequence: seq, activity_type: name, attempt_number: 1, worker_id: worker, session_epoch: epoch, started_at: iso(from + 5) }],
  ];
  const rows: [number, string, Record<string, Json>][] = [
    started,
    [2, "SessionStarted", { command_sequence: 1, session_id: "r-1" }],
    ...inSession(2, "index", 10, 40, "w1", 100),
    [42, "TimerScheduled", { sequence: 3, timer_id: "t", delay_seconds: 1 }],
    ...inSession(4, "search", 50, 80, "w2", 200),
    [90, "SessionEnded", { command_sequence: 5, session_id: "r-1", effect: "ended" }],
  ];

  it("gathers its activities under it, whatever came between", () => {
    const t = buildTimeline(history(...rows), none);
    expect(t.lanes.map((l) => [l.kind, l.title, l.depth])).toEqual([
      ["run", "research", 0], ["session", "r-1", 0], ["activity", "index", 1], ["activity", "search", 1], ["timer", "timer", 0],
    ]);
  });
  it("is held by the worker of each epoch, as far as attempts show it", () => {
    const s = find(buildTimeline(history(...rows), none).lanes, "r-1")!;
    expect(s.bars.map((b) => [b.worker, b.epoch, b.from - zero, (b.to ?? 0) - zero])).toEqual([["w1", 100, 15, 55], ["w2", 200, 55, 90]]);
    expect(s).toMatchObject({ state: "ended", worker: "w2", epoch: 200, from: zero + 2, to: zero + 90 });
  });
  it("is held as its ownership timeline says, when that is known", () => {
    const ownership: Record<string, SessionEvent[]> = { "r-1": [{ at: iso(12), what: "claimed", worker_id: "w1", epoch: 100 }, { at: iso(44), what: "expired", worker_id: "w1" }, { at: iso(52), what: "claimed", worker_id: "w2", epoch: 200 }] };
    const s = find(buildTimeline(history(...rows), none, ownership).lanes, "r-1")!;
    expect(s.bars.map((b) => [b.worker, b.from - zero, (b.to ?? 0) - zero, b.note])).toEqual([["w1", 12, 44, "expired"], ["w2", 52, 90, undefined]]);
  });
  it("that no command started begins with its first activity, and is read from options too", () => {
    const t = buildTimeline(history(started, [7, "ActivityScheduled", { sequence: 1, activity_type: "index", worker_session: { session_id: "gpu" } }]), none);
    expect(t.lanes.map((l) => [l.kind, l.title, l.depth])).toEqual([["run", "research", 0], ["session", "gpu", 0], ["activity", "index", 1]]);
    expect(find(t.lanes, "gpu")).toMatchObject({ from: zero + 7, to: null, state: "waiting" });
  });
  it("marks where its state was rebuilt, on the activity as well", () => {
    const t = buildTimeline(history(...rows.slice(0, 3), [30, "SessionRecovered", { command_sequence: 2, session_id: "r-1", rebuild_activity: "load", cause: "worker_died" }]), none);
    expect(find(t.lanes, "r-1")?.marks.map((m) => m.kind)).toEqual(["recovered"]);
    expect(find(t.lanes, "index")?.marks.map((m) => m.label)).toEqual(["state rebuilt by load: worker_died"]);
  });
});

describe("timers and signals", () => {
  it("a timer lasts until it fires; a wait's own time-out is no lane", () => {
    const t = buildTimeline(
      history(
        started,
        [10, "TimerScheduled", { sequence: 1, timer_id: "a", delay_seconds: 2, delay_micros: 1_500_000 }],
        [11, "TimerScheduled", { sequence: 2, timer_id: "b", delay_seconds: 9, timer_kind: "signal_timeout" }],
        [1510, "TimerFired", { sequence: 1, timer_id: "a", delay_seconds: 2 }],
      ),
      none,
    );
    expect(t.lanes.map((l) => l.kind)).toEqual(["run", "timer"]);
    expect(bars(t.lanes[1])).toEqual([["timer", 10, 1510, "completed"]]);
    expect(t.lanes[1]?.detail).toBe("1500");
  });
  it("a wait ends when its signal came, not when the code had seen it", () => {
    const t = buildTimeline(
      history(
        started,
        [10, "SignalWaitOpened", { sequence: 1, signal_name: "approve", signal_wait_id: "w" }],
        [400, "SignalReceived", { signal_name: "approve" }],
        [450, "SignalApplied", { sequence: 1, signal_name: "approve" }],
      ),
      none,
    );
    const l = find(t.lanes, "approve")!;
    expect(bars(l)).toEqual([["wait", 10, 400, "completed"]]);
    expect(l).toMatchObject({ state: "completed", events: [2, 3, 4] });
  });
  it("a signal without a wait is a mark on the run", () => {
    const t = buildTimeline(history(started, [5, "SignalReceived", { signal_name: "note" }]), none);
    expect(t.lanes).toHaveLength(1);
    expect(t.lanes[0]?.marks).toEqual([{ kind: "signal", at: zero + 5, label: "signal note received" }]);
  });
});

describe("a history that is not as expected", () => {
  it("passes over event types and steps it does not know", () => {
    const t = buildTimeline(
      history(started, [1, "SomethingNew", { sequence: 4 }], [2, "ActivityCompleted", { sequence: 9 }], [3, "TimerFired", { sequence: 8 }], [4, "SignalApplied", {}]),
      undefined,
    );
    expect(t.lanes.map((l) => l.kind)).toEqual(["run"]);
  });
  it("may be empty", () => {
    expect(buildTimeline([], null).lanes.map((l) => l.kind)).toEqual(["run"]);
  });
});

describe("children and updates", () => {
  const child = { sequence: 1, child_workflow_type: "bill", child_workflow_instance_id: "b-1" };
  it("give a child a lane from when it was asked for until it ended, however", () => {
    const events = history(
      started,
      [10, "ChildWorkflowScheduled", child],
      [11, "ChildRunStarted", { ...child, child_attempt: 1 }],
      [30, "ChildRunFailed", { ...child, message: "no money" }],
    );
    const l = buildTimeline(events, none).lanes.find((x) => x.kind === "child")!;
    expect([l.title, l.detail, l.state, l.failure, l.events]).toEqual(["bill", "b-1", "failed", "no money", [2, 3, 4]]);
    expect(l.bars.map(bar)).toEqual([["child", 10, 30, "failed"]]);
  });
  it("leave a child that is open open, and mark updates on the run", () => {
    const events = history(started, [5, "ChildWorkflowScheduled", child], [7, "UpdateAccepted", { update_name: "add" }], [9, "UpdateCompleted", { update_name: "add", failed: true }]);
    const { lanes } = buildTimeline(events, none);
    expect(lanes.find((x) => x.kind === "child")!.bars.map(bar)).toEqual([["child", 5, null]]);
    expect(lanes[0]!.marks.map((m) => m.label)).toEqual(["update add accepted", "update add failed"]);
  });
});

it("shows epochs by their ordinal number, if it is known", () => {
  const lane = { id: "s", epoch: 1_795_000_000_000_007, bars: [{ epoch: 1_795_000_000_000_001 }, { epoch: 3 }, {}] } as unknown as Lane;
  const { lanes } = numbered({ lanes: [lane], from: 0, to: null }, new Map([[1_795_000_000_000_007, 2], [1_795_000_000_000_001, 1]]));
  expect(lanes).toEqual([{ id: "s", epoch: 2, bars: [{ epoch: 1 }, {}, {}] }]);
});
