import type { Json } from "../api/types";
import { count, preview } from "../lib/format";
import { isObject, numberOf } from "../lib/json";

/** The progress of an activity as text, and as a share if the heartbeat has a total. */
export interface Progress {
  text: string;
  share: number | null;
}

/** Formats the progress of a heartbeat, {message?, current?, total?, unit?, details?}. Other values are shown as JSON; null and {} yield null. */
export function progress(value: Json | undefined): Progress | null {
  if (value === undefined || value === null || (isObject(value) && Object.keys(value).length === 0)) return null;
  if (!isObject(value)) return { text: preview(value), share: null };
  const [current, total] = [numberOf(value.current), numberOf(value.total)];
  const unit = typeof value.unit === "string" ? ` ${value.unit}` : "";
  const far = current === null ? "" : total === null ? `${count(current)}${unit}` : `${count(current)} of ${count(total)}${unit}`;
  const message = typeof value.message === "string" ? value.message : "";
  const details = value.details === undefined || value.details === null ? "" : preview(value.details);
  const text = [far, message, details].filter(Boolean).join(" · ") || preview(value);
  return { text, share: current !== null && total !== null && total > 0 ? Math.min(1, Math.max(0, current / total)) : null };
}
