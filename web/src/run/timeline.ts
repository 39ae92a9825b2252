import type { HistoryEvent, Json, Pending, PendingActivity, SessionEvent, Wait } from "../api/types";
import { isObject, numberOf } from "../lib/json";
import { duration, parseTime } from "../lib/time";
import { change, holds, type Hold } from "../sessions/ownership";

// The timeline of a run, as data: lanes with bars and marks, made from history events and what is open now. Times are
// milliseconds since 1970. This file renders nothing.

export type LaneKind = "run" | "session" | "activity" | "child" | "timer" | "wait";
export type LaneState = "queued" | "running" | "backoff" | "waiting" | "held" | "completed" | "failed" | "timed_out" | "cancelled" | "ended";

export interface Bar {
  kind: "run" | "queued" | "child" | "attempt" | "backoff" | "timer" | "wait" | "hold";
  from: number;
  to: number | null; // null: still open
  outcome?: "completed" | "failed" | "timed_out" | "cancelled" | "lost";
  attempt?: number;
  worker?: string;
  epoch?: number;
  note?: string;
  wait?: Wait; // why it waits
}

export interface Mark {
  kind: "signal" | "update" | "lost" | "recovered" | "cancel" | "effect" | "version" | "repair";
  at: number;
  label: string;
}

export interface Lane {
  id: string;
  kind: LaneKind;
  title: string;
  detail: string;
  depth: 0 | 1; // 1: an activity under its session
  sequence: number;
  state: LaneState;
  from: number;
  to: number | null;
  bars: Bar[];
  marks: Mark[];
  events: number[]; // sequences of the events it was made of
  attempts: number;
  sessionId?: string;
  worker?: string;
  epoch?: number;
  failure?: string;
}

export interface Timeline {
  lanes: Lane[];
  from: number;
  to: number | null;
}

type Payload = Record<string, Json>;

const text = (p: Payload, name: string): string => (typeof p[name] === "string" ? (p[name] as string) : "");
const number = (p: Payload, name: string): number => numberOf(p[name]) ?? 0;

/** When an event was recorded, whichever of its two names the answer used. */
export function eventTime(e: HistoryEvent): number {
  return parseTime(e.recorded_at ?? e.timestamp) ?? 0;
}

function sessionOf(p: Payload): string {
  const options = p.worker_session;
  const named = isObject(options) ? text(options, "session_id") : "";
  return text(p, "session_id") || named;
}

function lane(kind: LaneKind, id: string, title: string, at: number, sequence: number, state: LaneState): Lane {
  return { id, kind, title, detail: "", depth: 0, sequence, state, from: at, to: null, bars: [], marks: [], events: [], attempts: 0 };
}

const terminals: Record<string, { state: LaneState; outcome: NonNullable<Bar["outcome"]> }> = {
  ActivityCompleted: { state: "completed", outcome: "completed" },
  ActivityFailed: { state: "failed", outcome: "failed" },
  ActivityTimedOut: { state: "timed_out", outcome: "timed_out" },
  ActivityCancelled: { state: "cancelled", outcome: "cancelled" },
};

const endings: Record<string, LaneState> = {
  ChildRunCompleted: "completed",
  ChildRunFailed: "failed",
  ChildRunCancelled: "cancelled",
  ChildRunTerminated: "cancelled",
};

const resolutions: Record<string, LaneState> = {
  AwakeableCompleted: "completed",
  AwakeableFailed: "failed",
  AwakeableTimedOut: "timed_out",
  AwakeableClosed: "cancelled",
};

const closings: Record<string, LaneState> = {
  WorkflowCompleted: "completed",
  WorkflowContinuedAsNew: "completed",
  WorkflowFailed: "failed",
  WorkflowTimedOut: "timed_out",
  WorkflowCancelled: "cancelled",
  WorkflowTerminated: "cancelled",
};

/** Builds the lanes of a run. ownership holds the ownership timelines of its sessions, as far as they are known. */
export function buildTimeline(
  events: HistoryEvent[],
  pending: Pending | null | undefined,
  ownership: Record<string, SessionEvent[]> = {},
): Timeline {
  const b = new Builder();
  for (const e of events) b.event(e);
  b.pending(pending);
  return b.finish(ownership);
}

class Builder {
  private readonly run = lane("run", "run", "run", 0, 0, "running");
  private readonly lanes = new Map<string, Lane>();
  private readonly sessions = new Map<string, Lane>();
  private readonly ready = new Map<string, number>(); // times since which open activities wait for a worker

  event(e: HistoryEvent): void {
    const p = e.payload ?? {};
    const at = eventTime(e);
    const type = e.event_type;
    if (this.run.from === 0) this.run.from = at;
    if (type === "WorkflowStarted") {
      this.run.title = text(p, "workflow_type") || "run";
      this.run.events.push(e.sequence);
    } else if (type in closings) {
      this.run.state = closings[type]!;
      this.run.to = at;
      this.run.failure = text(p, "message") || text(p, "reason");
      this.run.events.push(e.sequence);
    } else if (type.startsWith("Activity")) this.activity(e, p, at);
    else if (type.startsWith("Child")) this.child(e, p, at);
    else if (type.startsWith("Awakeable")) this.awakeable(e, p, at);
    else if (type.startsWith("Attached")) this.attached(e, p, at);
    else if (type.startsWith("Timer")) this.timer(e, p, at);
    else if (type.startsWith("Session")) this.session(e, p, at);
    else if (type.startsWith("Signal")) this.signal(e, p, at);
    else this.note(e, p, at);
  }

  private activity(e: HistoryEvent, p: Payload, at: number): void {
    if (e.event_type === "ActivityCancelRequested") {
      const target = this.lanes.get(`activity ${number(p, "target")}`);
      target?.marks.push({ kind: "cancel", at, label: `cancellation requested: ${text(p, "effect")}` });
      target?.events.push(e.sequence);
      return;
    }
    const id = `activity ${number(p, "sequence")}`;
    if (e.event_type === "ActivityScheduled") {
      const l = lane("activity", id, text(p, "activity_type"), at, number(p, "sequence"), "queued");
      const session = sessionOf(p);
      if (session) {
        l.sessionId = session;
        l.depth = 1;
        this.sessionLane(session, at, number(p, "sequence"));
      }
      l.events.push(e.sequence);
      this.ready.set(id, at);
      this.lanes.set(id, l);
      return;
    }
    const l = this.lanes.get(id);
    if (!l) return; // its first event is on a page that was not read
    l.events.push(e.sequence);
    const started = parseTime(text(p, "started_at"));
    // A local step is recorded as a whole when it has ended, so it began before it was scheduled.
    const local = text(p, "execution_mode") === "local";
    const since = local && started !== null ? started : (this.ready.get(id) ?? l.from);
    if (local) {
      l.from = Math.min(l.from, since);
      l.detail = "local step";
    }
    l.attempts = Math.max(l.attempts, number(p, "attempt_number"));
    this.lost(l, p);
    const terminal = terminals[e.event_type];
    const retry = e.event_type === "ActivityRetryScheduled";
    if (!terminal && !retry) return;
    if (started !== null) {
      if (started > since) l.bars.push({ kind: "queued", from: since, to: started });
      const outcome = terminal ? terminal.outcome : text(p, "timeout_kind") ? "timed_out" : "failed";
      l.bars.push(attempt(p, Math.max(since, started), at, outcome));
      if (text(p, "worker_id")) l.worker = text(p, "worker_id");
      if (number(p, "session_epoch")) l.epoch = number(p, "session_epoch");
    } else {
      l.bars.push({ kind: "queued", from: since, to: at });
    }
    if (retry) {
      const next = parseTime(text(p, "retry_available_at")) ?? at;
      if (next > at) l.bars.push({ kind: "backoff", from: at, to: next, note: text(p, "message") });
      this.ready.set(id, Math.max(at, next));
      l.failure = text(p, "message");
      l.state = "backoff";
    } else if (terminal) {
      l.state = terminal.state;
      l.to = at;
      if (terminal.state === "completed") delete l.failure;
      else l.failure = text(p, "message") || text(p, "reason") || text(p, "timeout_kind") || l.failure || "";
    }
  }

  private child(e: HistoryEvent, p: Payload, at: number): void {
    const id = `child ${number(p, e.event_type === "ChildCancelRequested" ? "target" : "sequence")}`;
    if (e.event_type === "ChildWorkflowScheduled") {
      const l = lane("child", id, text(p, "child_workflow_type"), at, number(p, "sequence"), "running");
      l.detail = text(p, "child_workflow_instance_id");
      l.events.push(e.sequence);
      l.bars.push({ kind: "child", from: at, to: null });
      this.lanes.set(id, l);
      return;
    }
    const l = this.lanes.get(id);
    if (!l) return;
    l.events.push(e.sequence);
    const ended = endings[e.event_type];
    if (e.event_type === "ChildCancelRequested") l.marks.push({ kind: "cancel", at, label: `cancellation requested: ${text(p, "effect")}` });
    if (e.event_type === "ChildRunStarted") l.attempts = Math.max(l.attempts, number(p, "child_attempt"));
    if (!ended) return;
    l.state = ended;
    l.to = at;
    if (ended !== "completed") l.failure = text(p, "message") || text(p, "closed_reason");
    const bar = l.bars[0];
    if (bar) Object.assign(bar, { to: at, outcome: outcomeOf(ended), ...(l.failure && { note: l.failure }) });
  }

  // An attached child, often started by an earlier run. Its lane begins with the attachment.
  private attached(e: HistoryEvent, p: Payload, at: number): void {
    const id = `child ${number(p, "command_sequence")}`;
    if (e.event_type === "AttachedToChild") {
      const l = lane("child", id, text(p, "workflow_type") || text(p, "workflow_id"), at, number(p, "command_sequence"), "running");
      l.detail = text(p, "workflow_id");
      l.events.push(e.sequence);
      l.bars.push({ kind: "child", from: at, to: null });
      this.lanes.set(id, l);
      return;
    }
    const l = this.lanes.get(id);
    if (!l) return;
    const reason = text(p, "closed_reason");
    const ended: LaneState = reason === "completed" ? "completed" : reason === "failed" || reason === "timed_out" ? "failed" : "cancelled";
    l.events.push(e.sequence);
    l.state = ended;
    l.to = at;
    if (ended !== "completed") l.failure = text(p, "message") || reason;
    const bar = l.bars[0];
    if (bar) Object.assign(bar, { to: at, outcome: outcomeOf(ended), ...(l.failure && { note: l.failure }) });
  }

  private lost(l: Lane, p: Payload): void {
    const all = Array.isArray(p.lost_deliveries) ? p.lost_deliveries : [];
    for (const one of all) {
      if (!isObject(one)) continue;
      const at = parseTime(text(one, "at"));
      if (at === null) continue;
      const tasks = number(one, "leased_tasks");
      const verdict = { suspect: ", suspect", blamed: ", blamed" }[text(one, "verdict")] ?? "";
      const started = parseTime(text(one, "started_at"));
      const beat = parseTime(text(one, "last_heartbeat_at"));
      const label = `delivery ${number(one, "delivery")} lost on ${text(one, "worker_id") || "a worker"}`
        + (started === null ? "" : ` after ${duration(at - started)}`)
        + `: ${text(one, "why").replaceAll("_", " ")}`
        + (beat === null ? "" : `, last heartbeat ${duration(at - beat)} earlier`)
        + (tasks > 0 ? ` (${tasks} ${tasks === 1 ? "task" : "tasks"}${verdict})` : "");
      if (!l.marks.some((m) => m.kind === "lost" && m.at === at)) l.marks.push({ kind: "lost", at, label });
    }
  }

  private timer(e: HistoryEvent, p: Payload, at: number): void {
    if (e.event_type === "TimerCancelRequested") {
      this.lanes.get(`timer ${number(p, "target")}`)?.events.push(e.sequence);
      return;
    }
    // The timeout of a wait has the sequence of the wait and gets no separate lane.
    if (text(p, "timer_kind")) return;
    const id = `timer ${number(p, "sequence")}`;
    if (e.event_type === "TimerScheduled") {
      const l = lane("timer", id, "timer", at, number(p, "sequence"), "waiting");
      const micros = number(p, "delay_micros");
      l.detail = String(micros ? micros / 1000 : number(p, "delay_seconds") * 1000);
      l.events.push(e.sequence);
      l.bars.push({ kind: "timer", from: at, to: null });
      this.lanes.set(id, l);
      return;
    }
    const l = this.lanes.get(id);
    if (!l) return;
    const fired = e.event_type === "TimerFired";
    l.events.push(e.sequence);
    l.state = fired ? "completed" : "cancelled";
    l.to = at;
    const bar = l.bars[0];
    if (bar) Object.assign(bar, { to: at, outcome: fired ? "completed" : "cancelled" });
  }

  private awakeable(e: HistoryEvent, p: Payload, at: number): void {
    const id = `wait ${number(p, e.event_type === "AwakeableCancelRequested" ? "target" : "sequence")}`;
    if (e.event_type === "AwakeableOpened") {
      const l = lane("wait", id, text(p, "awakeable_id"), at, number(p, "sequence"), "waiting");
      l.detail = "awakeable";
      l.events.push(e.sequence);
      l.bars.push({ kind: "wait", from: at, to: null });
      this.lanes.set(id, l);
      return;
    }
    const l = this.lanes.get(id);
    if (!l) return;
    l.events.push(e.sequence);
    const ended = resolutions[e.event_type];
    if (!ended) return;
    l.state = ended;
    l.to = at;
    if (ended !== "completed") l.failure = text(p, "message") || text(p, "reason") || "timed out";
    const bar = l.bars[0];
    if (bar) Object.assign(bar, { to: at, outcome: outcomeOf(ended), ...(l.failure && { note: l.failure }) });
  }

  private signal(e: HistoryEvent, p: Payload, at: number): void {
    const name = text(p, "signal_name");
    const id = `wait ${number(p, "sequence")}`;
    switch (e.event_type) {
      case "SignalWaitOpened": {
        const l = lane("wait", id, name, at, number(p, "sequence"), "waiting");
        l.events.push(e.sequence);
        l.bars.push({ kind: "wait", from: at, to: null });
        this.lanes.set(id, l);
        return;
      }
      case "SignalReceived": {
        const waiting = [...this.lanes.values()].find((l) => l.kind === "wait" && !l.detail && l.to === null && l.title === name && !l.marks.length);
        const mark: Mark = { kind: "signal", at, label: `signal ${name} received` };
        (waiting ?? this.run).marks.push(mark);
        (waiting ?? this.run).events.push(e.sequence);
        return;
      }
      case "SignalApplied": {
        const l = this.lanes.get(id);
        if (!l) return;
        // The wait ended when its signal arrived; the event is recorded when the code receives it.
        const came = l.marks.find((m) => m.kind === "signal")?.at ?? at;
        l.events.push(e.sequence);
        l.state = "completed";
        l.to = came;
        const bar = l.bars[0];
        if (bar) Object.assign(bar, { to: came, outcome: "completed" });
        return;
      }
      default:
        this.run.marks.push({ kind: "signal", at, label: `signal ${name} sent to ${text(p, "workflow_id")}` });
        this.run.events.push(e.sequence);
    }
  }

  private session(e: HistoryEvent, p: Payload, at: number): void {
    const l = this.sessionLane(text(p, "session_id"), at, number(p, "command_sequence"));
    l.events.push(e.sequence);
    if (e.event_type === "SessionEnded" && l.to === null) {
      l.to = at;
      l.state = "ended";
    }
    if (e.event_type === "SessionSetUp") {
      const label = `set-up by ${text(p, "definition")} ${text(p, "outcome")}${text(p, "cause") ? `: ${text(p, "cause")}` : ""}`;
      l.marks.push({ kind: "recovered", at, label });
      this.lanes.get(`activity ${number(p, "command_sequence")}`)?.marks.push({ kind: "recovered", at, label });
    }
    if (e.event_type === "SessionRecovered") {
      const label = `state rebuilt by ${text(p, "rebuild_activity")}${text(p, "cause") ? `: ${text(p, "cause")}` : ""}`;
      l.marks.push({ kind: "recovered", at, label });
      this.lanes.get(`activity ${number(p, "command_sequence")}`)?.marks.push({ kind: "recovered", at, label });
    }
  }

  private sessionLane(id: string, at: number, sequence: number): Lane {
    let l = this.sessions.get(id);
    if (!l) {
      l = lane("session", `session ${id}`, id, at, sequence, "held");
      l.sessionId = id;
      this.sessions.set(id, l);
    }
    return l;
  }

  private note(e: HistoryEvent, p: Payload, at: number): void {
    const notes: Record<string, [Mark["kind"], string]> = {
      SideEffectRecorded: ["effect", "value recorded"],
      VersionMarkerRecorded: ["version", `version ${number(p, "version")} of ${text(p, "change_id")}`],
      CancelRequested: ["cancel", `cancelled by ${text(p, "identity") || "an operator"}`],
      TerminateRequested: ["cancel", `terminated by ${text(p, "identity") || "an operator"}`],
      WorkflowCancellationRequested: ["cancel", "cancellation requested"],
      RepairRequested: ["repair", "repaired"],
      UpdateAccepted: ["update", `update ${text(p, "update_name")} accepted`],
      UpdateCompleted: ["update", `update ${text(p, "update_name")} ${p.failed ? "failed" : "completed"}`],
    };
    const found = notes[e.event_type];
    if (!found) return;
    this.run.marks.push({ kind: found[0], at, label: found[1] });
    this.run.events.push(e.sequence);
  }

  /** Adds pending state that has no events yet: the current attempt or its back-off. */
  pending(p: Pending | null | undefined): void {
    for (const a of p?.activities ?? []) this.open(a);
    for (const t of p?.timers ?? []) {
      const l = this.lanes.get(`timer ${t.sequence}`);
      const bar = l?.bars[0];
      if (bar && bar.to === null && t.fire_at) bar.note = t.fire_at;
    }
  }

  private open(a: PendingActivity): void {
    const id = `activity ${a.sequence}`;
    const l = this.lanes.get(id);
    if (!l || l.to !== null) return;
    const since = this.ready.get(id) ?? l.from;
    const started = parseTime(a.started_at);
    l.attempts = Math.max(l.attempts, a.attempt_number);
    if (a.last_failure) l.failure = a.last_failure;
    this.lost(l, { lost_deliveries: a.lost_deliveries as unknown as Json });
    if ((a.state === "leased" || a.state === "pending") && started !== null) {
      if (started > since) l.bars.push({ kind: "queued", from: since, to: started });
      const bar: Bar = { kind: "attempt", from: Math.max(started, since), to: null, attempt: a.attempt_number };
      if (a.worker_id) bar.worker = l.worker = a.worker_id;
      if (a.session_epoch) bar.epoch = l.epoch = a.session_epoch;
      l.bars.push(bar);
      l.state = "running";
      return;
    }
    this.ready.delete(id);
    if (a.state !== "delayed") l.bars.push({ kind: "queued", from: since, to: null, ...(a.wait && { wait: a.wait }) });
    l.state = a.state === "delayed" ? "backoff" : "queued";
  }

  finish(ownership: Record<string, SessionEvent[]>): Timeline {
    const end = this.run.to;
    this.run.bars.push({ kind: "run", from: this.run.from, to: end, ...(end !== null && { outcome: outcomeOf(this.run.state) }) });
    for (const l of this.lanes.values()) {
      // An open activity without pending state is queued. Lanes that are open when the run closes end with it.
      if (l.to === null && l.kind === "activity" && !l.bars.some((b) => b.to === null) && this.ready.has(l.id)) {
        l.bars.push({ kind: "queued", from: this.ready.get(l.id)!, to: null });
      }
      if (end !== null && l.to === null) {
        l.to = end;
        l.state = "cancelled";
        for (const b of l.bars) if (b.to === null) b.to = end;
      }
    }
    for (const s of this.sessions.values()) this.hold(s, ownership[s.title] ?? [], end);
    return { lanes: this.order(), from: this.run.from, to: end };
  }

  private hold(s: Lane, timeline: SessionEvent[], end: number | null): void {
    const members = [...this.lanes.values()].filter((l) => l.sessionId === s.title);
    if (s.to === null && end !== null) {
      s.to = Math.max(s.from, end);
      s.state = "ended";
    }
    const attempts = members.flatMap((l) => l.bars).filter((b) => b.kind === "attempt");
    const known = holds(timeline);
    const spans = known.length > 0 ? known : guess(attempts, s.to);
    for (const h of spans) {
      const from = Math.max(h.from, s.from);
      const to = h.to === null ? s.to : s.to === null ? h.to : Math.min(h.to, s.to);
      if (to !== null && to < from) continue;
      const bar: Bar = { kind: "hold", from, to, worker: h.worker, epoch: h.epoch };
      if (h.ended) bar.note = change(h.ended);
      s.bars.push(bar);
    }
    const last = s.bars.at(-1);
    if (last?.worker) s.worker = last.worker;
    if (last?.epoch) s.epoch = last.epoch;
    if (s.to === null) s.state = last && last.to === null ? "held" : "waiting";
  }

  /** Sorted by first event; the activities of a session follow it. */
  private order(): Lane[] {
    const tops = [...this.lanes.values()].filter((l) => l.depth === 0);
    const all = [...tops, ...this.sessions.values()].sort((a, b) => a.from - b.from || a.sequence - b.sequence || rank(a) - rank(b));
    const out: Lane[] = [this.run];
    for (const l of all) {
      out.push(l);
      if (l.kind === "session") out.push(...[...this.lanes.values()].filter((m) => m.depth === 1 && m.sessionId === l.title));
    }
    for (const l of out) l.bars.sort((a, b) => a.from - b.from);
    return out;
  }
}

const rank = (l: Lane) => (l.kind === "session" ? 0 : 1);

function outcomeOf(s: LaneState): NonNullable<Bar["outcome"]> {
  return s === "failed" || s === "timed_out" || s === "cancelled" ? s : "completed";
}

function attempt(p: Payload, from: number, to: number, outcome: NonNullable<Bar["outcome"]>): Bar {
  const bar: Bar = { kind: "attempt", from, to: Math.max(from, to), outcome, attempt: number(p, "attempt_number") || 1 };
  if (text(p, "worker_id")) bar.worker = text(p, "worker_id");
  if (number(p, "session_epoch")) bar.epoch = number(p, "session_epoch");
  if (outcome !== "completed" && text(p, "message")) bar.note = text(p, "message");
  return bar;
}

/** Without an ownership timeline: a worker holds a session from its first attempt under an epoch until the next epoch begins. */
function guess(attempts: Bar[], end: number | null): Hold[] {
  const out: Hold[] = [];
  for (const a of [...attempts].sort((x, y) => x.from - y.from)) {
    const last = out.at(-1);
    const epoch = a.epoch ?? last?.epoch ?? 0;
    if (last && last.worker === (a.worker ?? "") && last.epoch === epoch) continue;
    if (last) last.to = Math.max(last.from, a.from);
    out.push({ worker: a.worker ?? "", epoch, from: a.from, to: end });
  }
  return out;
}

/** The timeline with session epochs replaced by their ordinal number; epochs without a known number are removed. */
export function numbered(t: Timeline, numbers: Map<number, number>): Timeline {
  const named = <T extends { epoch?: number }>({ epoch, ...rest }: T): T => {
    const n = epoch === undefined ? undefined : numbers.get(epoch);
    return (n === undefined ? rest : { ...rest, epoch: n }) as T;
  };
  return { ...t, lanes: t.lanes.map((l) => ({ ...named(l), bars: l.bars.map(named) })) };
}
