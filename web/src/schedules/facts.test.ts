import { expect, it } from "vitest";
import type { Schedule, ScheduleEvent } from "../api/types";
import { timing, told, untilFiring } from "./facts";

it("says when a schedule fires in the words it was given", () => {
  expect(timing({ spec: { cron_expressions: ["0 9 * * 1"], timezone: "Europe/Berlin", intervals: [{ every: "PT30M", offset: "PT5M" }] } })).toBe(
    "0 9 * * 1 (Europe/Berlin), every 30m, moved by 5m",
  );
  expect(timing({ spec: {} })).toBe("only when triggered");
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

it("tells what came of a firing, and why", () => {
  const e = { event_type: "ScheduleTriggered", payload: { outcome: "skipped", reason: "previous_run_open", at: 1 } } as unknown as ScheduleEvent;
  expect(told(e)).toBe("skipped: previous run open");
  expect(told({ event_type: "ScheduleCreated", payload: null } as unknown as ScheduleEvent)).toBe("");
});

it("does not say again what the name of the event says", () => {
  const deleted = (reason: string) => told({ event_type: "ScheduleDeleted", payload: { reason } } as unknown as ScheduleEvent);
  expect(deleted("deleted")).toBe("");
  expect(deleted("max_runs_exhausted")).toBe("max runs exhausted");
});
