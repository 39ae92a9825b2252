import type { SessionEvent } from "../api/types";
import { words } from "../lib/status";
import { duration, parseTime } from "../lib/time";

/** A time in which one worker owned a session under one epoch; to is null for the current owner. */
export interface Hold {
  worker: string;
  epoch: number;
  from: number;
  to: number | null;
  ended?: string; // the event that ended it: released, expired, reclaimed, …
  why?: string;
}

const ends = new Set(["released", "expired", "idle_unpinned", "orphaned", "failed", "closed", "cleaned_up"]);

/** Converts an ownership timeline to holdings, oldest first. */
export function holds(timeline: SessionEvent[]): Hold[] {
  const out: Hold[] = [];
  let open: Hold | undefined;
  const close = (at: number, what: string, why?: string) => {
    if (!open) return;
    open.to = Math.max(open.from, at);
    open.ended = what;
    if (why) open.why = why;
    open = undefined;
  };
  const inOrder = timeline
    .map((e) => ({ e, at: parseTime(e.at) }))
    .filter((x): x is { e: SessionEvent; at: number } => x.at !== null)
    .sort((a, b) => a.at - b.at);
  for (const { e, at } of inOrder) {
    if (e.what === "claimed" || e.what === "reclaimed") {
      close(at, e.what === "reclaimed" ? "reclaimed" : "superseded");
      open = { worker: e.worker_id ?? "", epoch: e.epoch ?? 0, from: at, to: null };
      out.push(open);
    } else if (e.what === "resumed" && !open) {
      // No other worker acquired the session in between, so the epoch is the same.
      open = { worker: e.worker_id ?? "", epoch: e.epoch ?? 0, from: at, to: null };
      out.push(open);
    } else if (ends.has(e.what)) {
      close(at, e.what, e.why);
    }
  }
  return out;
}

/** The ordinal numbers (1, 2, 3) of the epochs in a timeline, counted down from the number of claims. */
export function ordinals(timeline: SessionEvent[], claims: number | undefined): Map<number, number> {
  const found = new Map<number, number>();
  const claimed = timeline.filter((e) => (e.what === "claimed" || e.what === "reclaimed") && e.epoch).map((e) => e.epoch!);
  let n = claims ?? 0;
  for (const epoch of [...new Set(claimed)].sort((a, b) => b - a)) {
    if (n < 1) break;
    found.set(epoch, n--);
  }
  return found;
}

const changes: Record<string, string> = {
  claimed: "acquired", reclaimed: "acquired again", idle_unpinned: "released because it was idle", unpinned: "detached from its release", cleaned_up: "removed",
  preparing: "successor chosen, set-up begins", prepared: "set-up completed", preparation_ended: "preparation discarded",
  snapshot_requested: "snapshot requested", snapshot_stored: "snapshot stored", snapshot_lost: "snapshot lost",
};

/** The entries of a hand-over. Their worker may be the successor instead of the owner. */
export const handsOver = (what: string): boolean =>
  what === "preparing" || what === "prepared" || what === "preparation_ended" || what === "snapshot_stored";

/** An ownership event as words: "claimed" is "acquired". */
export const change = (what: string): string => changes[what] ?? words(what);

/** A reason as text: it is a sentence, or a code such as "ended_by_workflow". */
export const reason = (text: string): string => (/\s/.test(text) ? text : words(text));

/** The run ID in a task ID (RUN-SEQ), or undefined. */
export const runOf = (task: string | undefined): string | undefined => /^([0-9A-HJKMNP-TV-Z]{26})-\d+/.exec(task ?? "")?.[1];

const times = (n: number, one: string) => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;

/** The number of renewals of an ownership, which are one event, and their time span. */
function renewed(e: SessionEvent): string {
  const [first, last] = [parseTime(e.first_renewal), parseTime(e.last_renewal ?? e.at)];
  const n = e.renewals === 1 ? "once" : times(e.renewals ?? 0, "time");
  return first === null || last === null || last <= first ? n : `${n} in ${duration(last - first)}`;
}

/** Facts about the ownership that an event ends: duration, attempts, renewals and idle time. */
export function facts(e: SessionEvent, all: Hold[]): string[] {
  if (e.what === "renewed" && e.renewals) return [renewed(e)];
  if (e.what === "prepared" && e.set_up_seconds) return [`set-up took ${duration(e.set_up_seconds * 1000)}`];
  if (!ends.has(e.what) || !e.worker_id) return [];
  const out: string[] = [];
  const at = parseTime(e.at);
  const hold = all.find((h) => h.worker === e.worker_id && h.epoch === e.epoch);
  if (hold && at !== null) out.push(`held ${duration(Math.max(0, at - hold.from))}`);
  out.push(e.ran ? `${times(e.ran, "attempt")} started` : "no attempts");
  if (e.renewals) out.push(`renewed ${e.renewals === 1 ? "once" : times(e.renewals, "time")}`);
  if (e.idle_seconds && e.idle_seconds >= 1) out.push(`idle for ${duration(e.idle_seconds * 1000)}`);
  return out;
}
