import type { ScheduleEvent, ScheduleHistory } from "./types";

// The history of a schedule is read from its end: new events are appended, older ones are loaded on request.

/** Which page of a schedule's history. */
export type Where = { newest_first: true; before_sequence?: number; limit: number } | { after_sequence: number; limit: number };

type Fetch = (where: Where) => Promise<ScheduleHistory>;

/** A schedule's history as far back as it was read, newest first. */
export interface Past {
  events: ScheduleEvent[];
  more: boolean; // there is something older
}

export const pageSize = 50;
const catchUp = 1000; // the most events that are read on; who missed more begins anew

/** Reads what happened since before, or else the newest page. */
export async function readOn(fetch: Fetch, before?: Past): Promise<Past> {
  const newest = before?.events[0];
  if (before && newest) {
    const page = await fetch({ after_sequence: newest.sequence, limit: catchUp });
    if (!page.has_more) {
      const fresh = [...(page.events ?? [])].reverse();
      return fresh.length === 0 ? before : { ...before, events: [...fresh, ...before.events] };
    }
  }
  const page = await fetch({ newest_first: true, limit: pageSize });
  return { events: page.events ?? [], more: page.has_more };
}

/** Reads one page further back. */
export async function readBack(fetch: Fetch, before: Past): Promise<Past> {
  const oldest = before.events.at(-1);
  if (!oldest) return before;
  const page = await fetch({ newest_first: true, before_sequence: oldest.sequence, limit: pageSize });
  return { events: [...before.events, ...(page.events ?? [])], more: page.has_more };
}
