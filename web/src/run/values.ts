import type { HistoryEvent, Json, Truncated } from "../api/types";
import { isObject } from "../lib/json";

// Pages receive the first 4 KiB of each value. A whole value is loaded with the event that contains it.

/** A whole value of an event: as JSON, or as the text of a value that the app cannot decode. */
export function wholeValue(e: HistoryEvent, name: string): Json | undefined {
  if (e.decoded && name in e.decoded) return e.decoded[name];
  const p = e.payload ?? {};
  const exception = isObject(p.exception) ? p.exception : {};
  if (name.startsWith("exception.")) return exception[name.slice("exception.".length)];
  if (name === "details") return exception.details;
  if (name === "last_heartbeat_details") {
    const lost = Array.isArray(p.lost_deliveries) ? p.lost_deliveries : [];
    return lost.map((l) => (isObject(l) ? l.last_heartbeat_details : undefined)).findLast((d) => d !== undefined);
  }
  return p[name];
}

/** The values of an event or a run that were not loaded whole, sorted by name. */
export const truncatedOf = (from: { truncated?: Record<string, Truncated> | null | undefined }): [string, Truncated][] =>
  Object.entries(from.truncated ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));

/** The file name of a downloaded value. Names of workflows may contain any character. */
export const fileName = (run: string, name: string, text: boolean): string => `${run}-${name}`.replace(/[^\w.-]+/g, "-") + (text ? ".txt" : ".json");
