import type { Json } from "../api/types";
import { count, preview } from "../lib/format";
import { isObject, numberOf } from "../lib/json";

/** How far an activity is, in words, and as a share of the whole where its heartbeat tells one. */
export interface Progress {
  text: string;
  share: number | null;
}

/** Reads what a heartbeat told, {message?, current?, total?, unit?, details?}; anything else is shown as it is, and null is nothing. */
export function progress(told: Json | undefined): Progress | null {
  if (told === undefined || told === null || (isObject(told) && Object.keys(told).length === 0)) return null;
  if (!isObject(told)) return { text: preview(told), share: null };
  const [current, total] = [numberOf(told.current), numberOf(told.total)];
  const unit = typeof told.unit === "string" ? ` ${told.unit}` : "";
  const far = current === null ? "" : total === null ? `${count(current)}${unit}` : `${count(current)} of ${count(total)}${unit}`;
  const message = typeof told.message === "string" ? told.message : "";
  const details = told.details === undefined || told.details === null ? "" : preview(told.details);
  const text = [far, message, details].filter(Boolean).join(" · ") || preview(told);
  return { text, share: current !== null && total !== null && total > 0 ? Math.min(1, Math.max(0, current / total)) : null };
}
