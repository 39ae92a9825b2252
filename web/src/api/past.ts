import type { ScheduleEvent, ScheduleHistory } from "./types";

// The history of a schedule is read from its end: new events are appended, older ones are loaded on request.

/** The position of a page in a schedule's history. */
export type Where = { newest_first: true; before_sequence?: number; limit: number } | { after_sequence: number; limit: number };

type Fetch = (where: Where) => Promise<ScheduleHistory>;

/** The loaded part of a schedule's history, newest first. */
export interface Past {
  events: ScheduleEvent[];
  more: boolean; // older events exist
}

export const pageSize = 50;
const catchUp = 1000; // maximum number of new events that are appended; after more, only the newest page is loaded

/** Loads the events since before; without before, or if there are too many, the newest page. */
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

/** Loads the next page of older events. */
export async function readBack(fetch: Fetch, before: Past): Promise<Past> {
  const oldest = before.events.at(-1);
  if (!oldest) return before;
  const page = await fetch({ newest_first: true, before_sequence: oldest.sequence, limit: pageSize });
  return { events: [...before.events, ...(page.events ?? [])], more: page.has_more };
}
