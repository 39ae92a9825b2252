import type { Wait } from "../api/types";
import { waitRules, waitSubjects } from "../api/waits";
import { absolute, parseTime, relative, type Zone } from "./time";

/** A part of a text: a string, or an instant that is shown in the reader's zone and updated. */
export type Piece = string | { at: string };

/** The members of a wait by their names in the texts. `member` computes "task", "tasks", "resources" and "worker_resources". */
export const members: Record<string, keyof Wait> = {
  activity: "name", name: "name", queue: "task_queue", worker_queues: "worker_task_queues", namespace: "namespace", group: "group", worker: "worker_id", workers: "worker_count", session: "session_id",
  workflow: "workflow_id", missing: "missing", build: "build_id", worker_build: "worker_build_id", release: "release", worker_release: "worker_release",
  limit: "limit", used: "used", failures: "failures", losses: "losses", blamed: "blamed", more: "more", detail: "detail", suggestion: "suggestion", until: "until", fallback_at: "fallback_at", since: "since", token: "activity_token", pool: "pool", position: "position",
};
const times = new Set(["until", "fallback_at", "since"]);

/** How much the workers have of what is missing, as in shared/protocol/wait.go. */
function room(w: Wait): string {
  const several = Object.keys(w.resources ?? {}).length > 1;
  const list = (w.worker_resources ?? []).map((r) => `worker ${r.worker_id} has ${r.free} of ${r.total}${several ? ` ${r.resource}` : ""} free`);
  const more = (w.worker_count ?? 0) - list.length;
  if (list.length > 0 && more > 0) list.push(`${more} more workers have less`);
  return list.join(", ");
}

function member(w: Wait, name: string): Piece {
  if (name === "task") return `${w.kind === "activity" ? "activity" : "workflow"} "${w.name ?? ""}"`;
  if (name === "tasks") return w.kind.replace("_task", "");
  if (name === "resources") return Object.entries(w.resources ?? {}).sort().map(([resource, need]) => `${resource} ${need}`).join(", ");
  if (name === "worker_resources") return room(w);
  const value = w[members[name]!];
  if (!value) return "";
  if (times.has(name)) return { at: String(value) };
  return Array.isArray(value) ? value.join(", ") : String(value);
}

/** A template with its members filled in, and whether all members have a value. */
function named(w: Wait, text: string): [pieces: Piece[], whole: boolean] {
  let whole = true;
  const pieces = text.split("{").flatMap((part, i): Piece[] => {
    if (i === 0) return [part];
    const end = part.indexOf("}");
    const value = member(w, part.slice(0, end));
    whole &&= value !== "";
    return [value, part.slice(end + 1)];
  });
  return [pieces, whole];
}

/** Fills a text as shared/protocol/wait.go does: of [several|alternatives] the first without an empty member, or else the last. */
function fill(w: Wait, text: string): Piece[] {
  const pieces = text.split("[").flatMap((part, i): Piece[] => {
    if (i === 0) return named(w, part)[0];
    const end = part.indexOf("]");
    const alternatives = part.slice(0, end).split("|");
    const texts = alternatives.map((text) => named(w, text));
    const first = texts.find(([, whole]) => whole) ?? (texts.length > 1 ? texts.at(-1)! : [[]]);
    return [...first[0], ...named(w, part.slice(end + 1))[0]];
  });
  return pieces.filter((p) => p !== "");
}

const rule = (w: Wait): { form: string; text: string } | undefined => waitRules[w.reason];

/** The text of a wait with its subject. For an unknown reason of a later release it is the app's message. */
export function sentence(w: Wait): Piece[] {
  const r = rule(w);
  if (!r) return [w.message];
  const subject = waitSubjects[w.kind];
  if (r.form === "alone" || !subject) return fill(w, r.text);
  return fill(w, `${subject}${r.form === "predicate" ? " " : ": "}${r.text}`);
}

/** The text of a wait without its subject, beginning with the separator. */
export function because(w: Wait): Piece[] {
  const r = rule(w);
  if (!r) return [": ", w.message];
  return [r.form === "predicate" ? " " : ": ", ...fill(w, r.text)];
}

/** An instant: "22 Nov, 14:03:22 (in 3m)", without the distance if it has passed. */
export function instant(at: string, zone: Zone, now: number): string {
  const t = parseTime(at);
  if (t === null) return at;
  return t > now ? `${absolute(t, zone, now)} (${relative(t, now)})` : absolute(t, zone, now);
}

/** The parts as plain text, for tooltips. */
export const plain = (pieces: Piece[], zone: Zone, now: number): string =>
  pieces.map((p) => (typeof p === "string" ? p : instant(p.at, zone, now))).join("");
