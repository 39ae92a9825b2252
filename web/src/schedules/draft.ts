import type { Json, OverlapPolicy, Schedule, ScheduleRequest, ScheduleSpec } from "../api/types";
import { wrong } from "../lib/faults";
import { print } from "../lib/format";
import { Exact } from "../lib/json";
import { readInput, readObject, readTries, readWhole } from "../lib/input";

/** The text of the fields of a schedule form. */
export interface Draft {
  id: string;
  cron: string; // an expression a line
  intervals: string; // "30m", or "1d + 6h" with an offset; one a line
  zone: string;
  jitter: string;
  overlap: OverlapPolicy;
  maxRuns: string;
  paused: boolean;
  note: string;
  alone: boolean; // whether an activity is started instead of a workflow
  type: string;
  session: string;
  attempts: string;
  backoff: string;
  startToClose: string;
  queue: string;
  workflowId: string;
  input: string;
  memo: string;
  attributes: string;
}

/** The fields of the form, by the paths in which the app names them. */
export const fields = [
  "schedule_id", "spec", "spec.cron_expressions", "spec.intervals", "spec.timezone", "jitter_seconds", "overlap_policy", "max_runs", "note",
  "action.workflow_type", "action.activity_type", "action.session_id", "action.retry_policy.max_attempts", "action.retry_policy.backoff_seconds",
  "action.start_to_close_timeout", "action.task_queue", "action.workflow_id", "action.input", "action.memo", "action.search_attributes",
] as const;

export const overlaps: [policy: OverlapPolicy, says: string][] = [
  ["skip", "Skip the new run"],
  ["buffer_one", "Buffer one run"],
  ["buffer_all", "Buffer all runs"],
  ["allow_all", "Allow concurrent runs"],
  ["cancel_other", "Cancel the open run"],
  ["terminate_other", "Terminate the open run"],
];

const units: [RegExp, string, "date" | "time"][] = [
  [/^w(eeks?)?$/, "W", "date"],
  [/^d(ays?)?$/, "D", "date"],
  [/^h((ou)?rs?)?$/, "H", "time"],
  [/^m(in(ute)?s?)?$/, "M", "time"],
  [/^s(ec(ond)?s?)?$/, "S", "time"],
];

/** Converts a typed duration such as "1h 30m" or "90 min" to ISO 8601: "PT1H30M". Other text is returned unchanged, and the app rejects it. */
export function iso(text: string): string {
  const plain = text.trim().toLowerCase();
  if (/^p/.test(plain)) return plain.toUpperCase();
  const parts = [...plain.matchAll(/(\d+)\s*([a-z]+)/g)];
  if (parts.length === 0 || plain.replaceAll(/(\d+)\s*([a-z]+)/g, "").trim() !== "") return text.trim();
  const out = { date: "", time: "" };
  let before = -1;
  for (const [, n, name] of parts) {
    const at = units.findIndex(([fit]) => fit.test(name!));
    if (at <= before) return text.trim();
    before = at;
    out[units[at]![2]] += n! + units[at]![1];
  }
  return `P${out.date}${out.time && `T${out.time}`}`;
}

/** The inverse of iso: "PT1H30M" and "PT5400S", which the command line sends, are "1h 30m". */
export function spoken(text: string): string {
  const m = /^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/.exec(text);
  if (!m) return text;
  const units = [604800, 86400, 3600, 60, 1];
  let left = m.slice(1).reduce((sum, n, i) => sum + Number(n ?? 0) * units[i]!, 0);
  const parts = units.map((unit, i) => {
    const n = Math.floor(left / unit);
    left -= n * unit;
    return n > 0 && `${n}${"wdhms"[i]}`;
  });
  return parts.filter(Boolean).join(" ") || text;
}

const lines = (text: string): string[] => text.split("\n").map((l) => l.trim()).filter(Boolean);

/** The spec that was typed; undefined while it is empty. */
export function specOf(d: Pick<Draft, "cron" | "intervals" | "zone">): ScheduleSpec | undefined {
  const cron = lines(d.cron);
  const intervals = lines(d.intervals).map((l) => {
    const [every, offset] = l.split("+");
    return { every: iso(every!), ...(offset?.trim() && { offset: iso(offset) }) };
  });
  if (cron.length + intervals.length === 0) return undefined;
  return {
    ...(cron.length > 0 && { cron_expressions: cron }),
    ...(intervals.length > 0 && { intervals }),
    ...(cron.length > 0 && d.zone.trim() && d.zone.trim() !== "UTC" && { timezone: d.zone.trim() }),
  };
}

const json = (v: Json | undefined): string => (v === undefined || v === null || (typeof v === "object" && !(v instanceof Exact) && Object.keys(v).length === 0) ? "" : print(v));

/** The initial draft of a form: empty, or of an existing schedule. */
export function draftOf(s: Schedule | undefined, zone: string): Draft {
  return {
    id: s?.schedule_id ?? "",
    cron: (s?.spec.cron_expressions ?? []).join("\n"),
    intervals: (s?.spec.intervals ?? []).map((i) => spoken(i.every) + (i.offset ? ` + ${spoken(i.offset)}` : "")).join("\n"),
    zone: s ? (s.spec.timezone ?? "UTC") : zone,
    jitter: String(s?.jitter_seconds ?? 0),
    overlap: s?.overlap_policy ?? "skip",
    maxRuns: s?.max_runs ? String(s.max_runs) : "",
    paused: s?.paused ?? false,
    note: s?.note ?? "",
    alone: Boolean(s?.action.activity_type),
    type: s?.action.activity_type ?? s?.action.workflow_type ?? "",
    session: s?.action.session_id ?? "",
    attempts: !s?.action.retry_policy ? "" : String(s.action.retry_policy.max_attempts ?? 0),
    backoff: (s?.action.retry_policy?.backoff_seconds ?? []).join(", "),
    startToClose: s?.action.start_to_close_timeout ? String(s.action.start_to_close_timeout) : "",
    queue: s?.action.task_queue ?? "",
    workflowId: s?.action.workflow_id ?? "",
    input: json(s?.action.input),
    memo: json(s?.action.memo),
    attributes: json(s?.action.search_attributes),
  };
}

/** Members of the action that the form does not show. They are kept unless the kind of action changes. */
function kept(d: Draft, before?: Schedule): Partial<ScheduleRequest["action"]> {
  if (!before || Boolean(before.action.activity_type) !== d.alone) return {};
  const {
    workflow_type: _t, activity_type: _a, task_queue: _q, workflow_id: _w, input: _i, memo: _m, search_attributes: _s, session_id: _n, retry_policy: _r,
    start_to_close_timeout: _c, ...rest
  } = before.action;
  return rest;
}

function activity(d: Draft, before?: Schedule) {
  const policy = readTries(d.attempts, d.backoff, "action.");
  const limit = readWhole(d.startToClose, "action.start_to_close_timeout", 1);
  const never = before?.action.retry_policy?.non_retryable_error_types;
  return {
    activity_type: d.type.trim(),
    ...(d.session.trim() && { session_id: d.session.trim() }),
    ...(policy && { retry_policy: { ...(never && { non_retryable_error_types: never }), ...policy } }),
    ...(limit !== undefined && { start_to_close_timeout: limit }),
  };
}

/** The request for a draft. Members that the form does not show keep their values. */
export function requestOf(d: Draft, before?: Schedule): ScheduleRequest {
  const spec = specOf(d);
  if (!spec) throw wrong("spec.cron_expressions", "is required, or an interval");
  if (!d.type.trim()) throw wrong(d.alone ? "action.activity_type" : "action.workflow_type", "is required");
  const [input, memo, attributes] = [readInput(d.input, "action.input"), readObject(d.memo, "action.memo"), readObject(d.attributes, "action.search_attributes")];
  const max = readWhole(d.maxRuns, "max_runs", 1);
  if (before?.max_runs && max === undefined) throw wrong("max_runs", "can be changed, but not removed");
  return {
    ...(!before && d.id.trim() && { schedule_id: d.id.trim() }),
    spec,
    action: {
      ...kept(d, before),
      ...(d.alone ? activity(d, before) : { workflow_type: d.type.trim() }),
      ...(d.queue.trim() && { task_queue: d.queue.trim() }),
      ...(d.workflowId.trim() && { workflow_id: d.workflowId.trim() }),
      ...(input !== undefined && { input }),
      ...(memo && { memo }),
      ...(attributes && { search_attributes: attributes }),
    },
    overlap_policy: d.overlap,
    jitter_seconds: readWhole(d.jitter, "jitter_seconds", 0, 86_400) ?? 0,
    ...(max !== undefined && max !== before?.max_runs && { max_runs: max }),
    ...((d.paused || before) && { paused: d.paused }),
    note: d.note.trim(),
  };
}
