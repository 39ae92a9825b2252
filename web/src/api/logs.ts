import type { ActivityLogs, LogLine } from "./types";

// The log of an activity is loaded from its beginning; later requests load only new lines.

/** The loaded lines of one attempt. */
export interface Logs extends Omit<ActivityLogs, "lines" | "next" | "more"> {
  lines: LogLine[];
  next: number; // position after the last loaded line
}

type Fetch = (after: number) => Promise<ActivityLogs>;

/** Loads the lines after before, or all lines if before belongs to another attempt. */
export async function readLogs(fetch: Fetch, before?: Logs): Promise<Logs> {
  let known: LogLine[] = before?.lines ?? [];
  let attempt = before?.activity_attempt_id;
  for (let after = before?.next ?? 0; ; ) {
    const page = await fetch(after);
    if (after > 0 && page.activity_attempt_id !== attempt) {
      [known, after] = [[], 0]; // positions of another attempt do not apply to this one
      continue;
    }
    attempt = page.activity_attempt_id;
    if (page.lines.length > 0) known = [...known, ...page.lines];
    if (!page.more) return { ...page, lines: known };
    after = page.next;
  }
}
