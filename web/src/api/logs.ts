import type { ActivityLogs, LogLine } from "./types";

// What the code of an activity logged is read from its beginning, and then on from where the last reading ended.

/** The lines of one attempt as far as they were read. */
export interface Logs extends Omit<ActivityLogs, "lines" | "next" | "more"> {
  lines: LogLine[];
  next: number; // what is read on from
}

type Fetch = (after: number) => Promise<ActivityLogs>;

/** Reads what came since before; all of it, if that is of another attempt. */
export async function readLogs(fetch: Fetch, before?: Logs): Promise<Logs> {
  let known: LogLine[] = before?.lines ?? [];
  let attempt = before?.activity_attempt_id;
  for (let after = before?.next ?? 0; ; ) {
    const page = await fetch(after);
    if (after > 0 && page.activity_attempt_id !== attempt) {
      [known, after] = [[], 0]; // where the last attempt was read to says nothing of this one
      continue;
    }
    attempt = page.activity_attempt_id;
    if (page.lines.length > 0) known = [...known, ...page.lines];
    if (!page.more) return { ...page, lines: known };
    after = page.next;
  }
}
