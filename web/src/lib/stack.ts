import type { HistoryEvent, Json } from "../api/types";
import { isObject } from "./json";

/** The stack that stands in a failure, as an event or a view of a run has it; "" for none. */
export const stackOf = (failure: Json | undefined): string => (isObject(failure) && typeof failure.stack_trace === "string" ? failure.stack_trace.trim() : "");

/** Where a stack begins, as "orders.go:42": its innermost frame that names a file, which Python writes last and all others first. */
export function place(stack: string): string {
  const python = [...stack.matchAll(/File "(?:.*[\\/])?([^"\\/]+)", line (\d+)/g)].at(-1);
  if (python) return `${python[1]}:${python[2]}`;
  const other = /([\w.@-]+\.(?:go|[cm]?[jt]sx?|rs|py)):(\d+)/.exec(stack);
  return other ? `${other[1]}:${other[2]}` : "";
}

/** The last step of a history that failed for good and said where. */
export function lastStack(events: HistoryEvent[]): { of: string; stack: string } | null {
  for (let i = events.length - 1; i >= 0; i--) {
    const p = events[i]!.payload;
    const stack = stackOf(p ?? undefined);
    if (stack) return { of: typeof p?.activity_type === "string" ? p.activity_type : "", stack };
  }
  return null;
}
