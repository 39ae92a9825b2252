import type { HistoryEvent, Json } from "../api/types";
import { isObject } from "./json";

/** The stack trace of a failure in an event or a run, or "". */
export const stackOf = (failure: Json | undefined): string => (isObject(failure) && typeof failure.stack_trace === "string" ? failure.stack_trace.trim() : "");

/** Frames of standard libraries and installed packages. */
const library = /(?:^|\/)(?:site-packages|dist-packages|node_modules|pkg\/mod)\/|\/lib\/python3|\/go\/src\/|@v\d|^node:|^<|^runtime\//;

/** File and line of a failure, such as "orders.go:42": the innermost frame of application code, or else the innermost frame.
 * Python prints the innermost frame last, other languages first. The command line has the same rule (package stack). */
export function place(stack: string): string {
  let frames = [...stack.matchAll(/File "([^"]+)", line (\d+)/g)].reverse();
  if (frames.length === 0) frames = [...stack.matchAll(/((?:file:\/\/)?[^\s()"']*[\w.@-]\.(?:go|[cm]?[jt]sx?|rs|py))(?:\?[^\s:]*)?:(\d+)/g)];
  const frame = frames.find(([, file]) => !library.test(file!)) ?? frames[0];
  return frame ? `${frame[1]!.split(/[\\/]/).at(-1)}:${frame[2]}` : "";
}

/** A failure as text: its type, unless it is generic, and its message. The command line has the same rule (Failure.Text). */
export function failureText(type: Json | undefined, message: string): string {
  if (typeof type !== "string" || !type || !message) return message || (typeof type === "string" ? type : "");
  return type === "Error" || type === "ActivityTimeout" || message.startsWith(type) ? message : `${type}: ${message}`;
}

/** The stack trace of the last failed event of a history, with its activity type. */
export function lastStack(events: HistoryEvent[]): { of: string; stack: string } | null {
  for (let i = events.length - 1; i >= 0; i--) {
    const p = events[i]!.payload;
    const stack = stackOf(p ?? undefined);
    if (stack) return { of: typeof p?.activity_type === "string" ? p.activity_type : "", stack };
  }
  return null;
}
