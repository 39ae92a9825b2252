import type { SessionEvent } from "../api/types";
import { parseTime } from "../lib/time";

/** A stretch in which one worker owned a session, under one epoch. to is null while it lasts. */
export interface Hold {
  worker: string;
  epoch: number;
  from: number;
  to: number | null;
  ended?: string; // what ended it: released, expired, reclaimed …
  why?: string;
}

const ends = new Set(["released", "expired", "idle_unpinned", "orphaned", "failed", "closed", "cleaned_up"]);

/** Folds an ownership timeline into holds, oldest first. */
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
    } else if (ends.has(e.what)) {
      close(at, e.what, e.why);
    }
  }
  return out;
}
