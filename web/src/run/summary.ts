import type { Envelope, EventType, HistoryEvent, Json } from "../api/types";
import { bytes, preview } from "../lib/format";
import { numberOf } from "../lib/json";
import { failureText } from "../lib/stack";
import type { Tone } from "../lib/status";
import { chosen, duration, parseTime } from "../lib/time";

const blobs = ["arguments", "result", "output", "value", "input"];

/** The payload of an event with decoded instead of encoded values. */
export function readable(e: HistoryEvent): Json {
  const out: Record<string, Json> = {};
  const decoded = e.decoded ?? {};
  for (const [name, value] of Object.entries(e.payload ?? {})) {
    if (name === "payload_codec" && Object.keys({ ...decoded, ...e.truncated }).length > 0) continue;
    if (name === "stack_trace") continue; // shown separately, as lines
    out[name] = blobs.includes(name) && name in decoded ? decoded[name]! : value;
  }
  for (const [name, value] of Object.entries(decoded)) if (!(name in out)) out[name] = value;
  return out;
}

/** The values of an event that the app could not decode, each with its codec: "result (codec zstd)". readable has them encoded. */
export function unread(e: HistoryEvent): string[] {
  const codec = e.payload?.payload_codec;
  if (typeof codec !== "string" || codec === "") return [];
  const encoded = (name: string) => typeof e.payload?.[name] === "string" && e.payload[name] !== "" && !(name in (e.decoded ?? {}));
  return blobs.filter(encoded).map((name) => `${name} (codec ${codec})`);
}

/** A value as it is stored, if it is one. */
export function envelope(value: Json | undefined): Envelope | undefined {
  const v = value as Partial<Envelope> | null | undefined;
  return v && typeof v === "object" && typeof v.codec === "string" && typeof v.blob === "string" && v.blob !== "" ? (v as Envelope) : undefined;
}

const delay = (p: Record<string, Json>) => (p.delay_micros ? Number(p.delay_micros) / 1000 : Number(p.delay_seconds ?? 0) * 1000);

// A new event type does not compile here until it has a tone.
export const tones: Record<EventType, Tone> = {
  ActivityCancelRequested: "idle",
  ActivityCancelled: "idle",
  ActivityCompleted: "good",
  ActivityFailed: "bad",
  ActivityRetryScheduled: "bad", // it contains a failed attempt
  ActivityScheduled: "idle",
  ActivityTimedOut: "bad",
  AttachedChildEnded: "idle",
  AttachedToChild: "idle",
  AwakeableCancelRequested: "idle",
  AwakeableClosed: "idle",
  AwakeableCompleted: "good",
  AwakeableFailed: "bad",
  AwakeableOpened: "idle",
  AwakeableTimedOut: "bad",
  CancelRequested: "idle",
  ChildCancelRequested: "idle",
  ChildRunCancelled: "idle",
  ChildRunCompleted: "good",
  ChildRunFailed: "bad",
  ChildRunStarted: "idle",
  ChildRunTerminated: "idle",
  ChildWorkflowScheduled: "idle",
  ConditionWaitOpened: "idle",
  ConditionWaitSatisfied: "idle",
  ConditionWaitTimedOut: "bad",
  MemoUpserted: "idle",
  ParentClosePolicyApplied: "good",
  RepairRequested: "idle",
  SearchAttributesUpserted: "idle",
  SelectionOperationCancelled: "idle",
  SelectionResolved: "idle",
  SessionEnded: "stay",
  SessionRecovered: "stay",
  SessionSetUp: "stay",
  SessionStarted: "stay",
  SideEffectRecorded: "idle",
  SignalApplied: "good",
  SignalReceived: "run",
  SignalSent: "idle",
  SignalWaitOpened: "idle",
  TerminateRequested: "idle",
  TimerCancelRequested: "idle",
  TimerCancelled: "idle",
  TimerFired: "good",
  TimerScheduled: "idle",
  UpdateAccepted: "idle",
  UpdateApplied: "good",
  UpdateCompleted: "good",
  VersionMarkerRecorded: "idle",
  WorkflowCancellationRequested: "idle",
  WorkflowCancelled: "idle",
  WorkflowCompleted: "good",
  WorkflowContinuedAsNew: "idle",
  WorkflowFailed: "bad",
  WorkflowStarted: "run",
  WorkflowTerminated: "idle",
  WorkflowTimedOut: "bad",
};

/** The tone of an event. Types of later releases are neutral. */
export const eventTone = (type: string): Tone => (tones as Record<string, Tone>)[type] ?? "idle";

/** "ActivityRetryScheduled" as words: "Activity retry scheduled". */
export function eventName(type: string): string {
  const split = type.replace(/([a-z])([A-Z])/g, "$1 $2");
  return split.charAt(0) + split.slice(1).toLowerCase();
}

/** One line about an event. */
export function summary(e: HistoryEvent): string {
  const p = e.payload ?? {};
  const d = e.decoded ?? {};
  const begin = (name: string, most = 80): string | undefined => {
    if (name in d) return preview(d[name], most);
    const cut = e.truncated?.[name];
    return cut && (cut.preview && !cut.encoded ? `${cut.preview.slice(0, most - 1)}…` : bytes(cut.size_bytes));
  };
  const list = (name: string) => (begin(name) ?? "").replace(/^\[/, "(").replace(/\]$/, ")");
  const result = begin("result");
  const s = (name: string) => (typeof p[name] === "string" ? (p[name] as string) : "");
  const n = (name: string) => numberOf(p[name]) ?? 0;
  const code = s("code_version") ? `, version ${s("code_version").slice(0, 8)}` : "";
  const by = s("worker_id") ? ` on ${s("worker_id")}${code}` : "";
  const who = by && `,${by}`; // after the reason, because narrow screens cut the line
  const again = n("attempt_number") > 1 ? `, attempt ${n("attempt_number")}` : "";
  const why = failureText(p.exception_type, s("message")) || s("reason") || s("timeout_kind").replaceAll("_", " ");
  switch (e.event_type) {
    case "WorkflowStarted":
      return `${s("workflow_type")}${list("arguments")}`;
    case "ActivityScheduled":
      return `${s("activity_type")}${list("arguments")}${s("session_id") ? ` in session ${s("session_id")}` : ""}`;
    case "ActivityCompleted":
      return `${s("activity_type")}${by}${again}${result !== undefined ? ` → ${result}` : ""}`;
    case "ActivityRetryScheduled":
      if (p.redriven) return `${s("activity_type")} begins again`;
      return `${s("activity_type")}${again}: ${why}${who}`;
    case "ActivityFailed":
    case "ActivityTimedOut":
    case "ActivityCancelled":
      return `${s("activity_type")}${again}${why && `: ${why}`}${who}`;
    case "ChildWorkflowScheduled":
      return `${s("child_workflow_type")}${list("arguments")}`;
    case "ChildRunStarted":
      return `${s("child_workflow_type")} as ${s("child_workflow_instance_id")}`;
    case "ChildRunCompleted":
      return `${s("child_workflow_type")}${result !== undefined ? ` → ${result}` : ""}`;
    case "ChildRunFailed":
    case "ChildRunCancelled":
    case "ChildRunTerminated":
      return `${s("child_workflow_type")}${why && `: ${why}`}`;
    case "AttachedToChild":
      return `${s("workflow_type")} as ${s("workflow_id")}`.trim();
    case "AttachedChildEnded":
      return `${s("workflow_type") || s("workflow_id")}${result !== undefined ? ` → ${result}` : why && `: ${why}`}`;
    case "AwakeableOpened":
      return s("awakeable_id");
    case "AwakeableCompleted":
      return `${s("awakeable_id")}${result !== undefined ? ` → ${result}` : ""}${s("identity") && `, by ${s("identity")}`}`;
    case "AwakeableFailed":
    case "AwakeableTimedOut":
    case "AwakeableClosed":
      return `${s("awakeable_id")}${why && `: ${why}`}${s("identity") && `, by ${s("identity")}`}`;
    case "UpdateAccepted":
    case "UpdateApplied":
      return `${s("update_name")}${list("arguments")}`;
    case "UpdateCompleted":
      return `${s("update_name")}${p.failed ? `: ${why}` : result !== undefined ? ` → ${result}` : ""}`;
    case "TimerScheduled":
      return chosen(delay(p));
    case "TimerFired":
    case "TimerCancelled":
      return s("timer_id");
    case "SignalReceived":
    case "SignalApplied":
      return `${s("signal_name")}${list("value")}`;
    case "SignalWaitOpened":
      return s("signal_name");
    case "SignalSent":
      return `${s("signal_name")} to ${s("workflow_id")}`;
    case "SideEffectRecorded":
      return result ?? "";
    case "VersionMarkerRecorded":
      return `${s("change_id")} → ${n("version")}`;
    case "SessionStarted":
      return s("session_id");
    case "SessionEnded":
      return `${s("session_id")} ${s("effect").replaceAll("_", " ")}`;
    case "SessionRecovered":
      return `${s("session_id")} by ${s("rebuild_activity")}`;
    case "SessionSetUp":
      return `${s("session_id")} by ${s("definition")} ${s("outcome")}`;
    case "WorkflowCompleted":
      return begin("output", 120) ? `→ ${begin("output", 120)}` : "";
    case "WorkflowContinuedAsNew":
      return `as run ${n("continued_to_run_number")}`;
    default:
      return why || s("identity");
  }
}

/** The time of an event since the start of the run: "+1.2 s". */
export function since(e: HistoryEvent, start: number): string {
  const at = parseTime(e.recorded_at ?? e.timestamp);
  return at === null ? "" : `+${duration(Math.max(0, at - start))}`;
}
