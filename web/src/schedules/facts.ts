import type { Schedule, ScheduleEvent } from "../api/types";
import { parseTime } from "../lib/time";
import { spoken } from "./draft";

/** The times of a schedule as they were configured: "0 9 * * 1 (Europe/Berlin), every 30m". */
export function timing({ spec }: Pick<Schedule, "spec">): string {
  const cron = (spec.cron_expressions ?? []).map((c) => `${c}${spec.timezone ? ` (${spec.timezone})` : ""}`);
  const every = (spec.intervals ?? []).map((i) => `every ${spoken(i.every)}${i.offset ? `, offset ${spoken(i.offset)}` : ""}`);
  return [...cron, ...every].join(", ") || "only when triggered manually";
}

/** The action of a schedule: "report", "activity load". */
export const started = (s: Pick<Schedule, "kind" | "workflow_type">): string => (s.kind === "activity" ? `activity ${s.workflow_type}` : s.workflow_type);

const soonest = 2000;
const latest = 3_600_000;

/** Milliseconds until schedules must be fetched again, or false. A skipped firing starts no run, so no hint arrives. */
export function untilFiring(schedules: Pick<Schedule, "status" | "next_fire_at">[], now = Date.now()): number | false {
  const times = schedules.filter((s) => s.status === "active").map((s) => parseTime(s.next_fire_at)).filter((at) => at !== null);
  return times.length > 0 && Math.min(latest, Math.max(soonest, Math.min(...times) + 1000 - now));
}

/** The outcome, reason and note of an event on one line. */
export function details(e: ScheduleEvent): string {
  const p = e.payload ?? {};
  const texts = ["outcome", "reason", "note"].map((name) => p[name]).filter((v): v is string => typeof v === "string" && v !== "");
  // The event name "Schedule deleted" already contains "deleted".
  return texts.filter((s) => !e.event_type.toLowerCase().endsWith(s)).map((s) => s.replaceAll("_", " ")).join(": ");
}
