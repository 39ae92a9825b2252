import { expect, it } from "vitest";
import type { Schedule, ScheduleEvent } from "../api/types";
import { timing, details, untilFiring } from "./facts";

it("prints the times of a schedule as they were configured", () => {
  expect(timing({ spec: { cron_expressions: ["0 9 * * 1"], timezone: "Europe/Berlin", intervals: [{ every: "PT30M", offset: "PT5M" }] } })).toBe(
    "0 9 * * 1 (Europe/Berlin), every 30m, offset 5m",
  );
  expect(timing({ spec: {} })).toBe("only when triggered manually");
});

it("reads schedules again after their next firing, at most every two seconds", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const at = (next: string | null, status = "active") => ({ status, next_fire_at: next }) as unknown as Schedule;
  expect(untilFiring([], now)).toBe(false);
  expect(untilFiring([at(null), at("2026-01-01T00:00:01Z", "paused")], now)).toBe(false);
  expect(untilFiring([at("2026-01-01T00:10:00Z"), at("2026-01-01T00:00:30Z")], now)).toBe(31_000);
  expect(untilFiring([at("2025-12-31T23:59:59Z")], now)).toBe(2000);
  expect(untilFiring([at("2027-01-01T00:00:00Z")], now)).toBe(3_600_000);
});

it("prints outcome and reason of an event", () => {
  const e = { event_type: "ScheduleTriggered", payload: { outcome: "skipped", reason: "previous_run_open", at: 1 } } as unknown as ScheduleEvent;
  expect(details(e)).toBe("skipped: previous run open");
  expect(details({ event_type: "ScheduleCreated", payload: null } as unknown as ScheduleEvent)).toBe("");
});

it("does not repeat the name of the event", () => {
  const deleted = (reason: string) => details({ event_type: "ScheduleDeleted", payload: { reason } } as unknown as ScheduleEvent);
  expect(deleted("deleted")).toBe("");
  expect(deleted("max_runs_exhausted")).toBe("max runs exhausted");
});
