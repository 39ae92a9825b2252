import { describe, expect, it } from "vitest";
import type { Schedule } from "../api/types";
import { draftOf, iso, requestOf, specOf, spoken } from "./draft";
import { instant } from "./BackfillDialog";

it.each([
  ["30m", "PT30M"],
  ["1h 30 min", "PT1H30M"],
  ["1 day", "P1D"],
  ["2w3d4h5m6s", "P2W3DT4H5M6S"],
  ["pt5m", "PT5M"],
  ["90 seconds", "PT90S"],
])("reads %s as %s", (typed, sent) => expect(iso(typed)).toBe(sent));

it.each(["soon", "5", "5x", "1h and 5m", "5m 1h", "1h 1h", ""])("leaves %j for the app to refuse", (typed) => expect(iso(typed)).toBe(typed));

it("says a length as it would be typed, and reads that again", () => {
  for (const of of ["PT30M", "PT1H30M", "P1D", "P2W3DT4H5M6S"]) expect(iso(spoken(of))).toBe(of);
  expect(["PT1H30M", "PT5400S", "PT1800S", "PT86400S", "PT0S", "odd"].map(spoken)).toEqual(["1h 30m", "1h 30m", "30m", "1d", "PT0S", "odd"]);
});

describe("when", () => {
  it("is expressions with their zone, and intervals with their offset, a line each", () => {
    expect(specOf({ cron: "0 9 * * 1\n\n @daily ", intervals: "1d + 6h\n30m", zone: "Asia/Kolkata" })).toEqual({
      cron_expressions: ["0 9 * * 1", "@daily"], intervals: [{ every: "P1D", offset: "PT6H" }, { every: "PT30M" }], timezone: "Asia/Kolkata",
    });
  });
  it("is nothing while nothing is typed, and needs no zone without expressions", () => {
    expect(specOf({ cron: " ", intervals: "\n", zone: "UTC" })).toBeUndefined();
    expect(specOf({ cron: "", intervals: "5m", zone: "Asia/Kolkata" })).toEqual({ intervals: [{ every: "PT5M" }] });
    expect(specOf({ cron: "@daily", intervals: "", zone: "UTC" })).toEqual({ cron_expressions: ["@daily"] });
  });
});

const schedule = {
  schedule_id: "s", namespace: "default", spec: { cron_expressions: ["0 3 * * *"], timezone: "Europe/Berlin" }, overlap_policy: "buffer_one", jitter_seconds: 5,
  action: { workflow_type: "report", task_queue: "q", input: ["all"], run_timeout_seconds: 60, memo: { who: "ops" } }, max_runs: 9, paused: true, note: "n",
} as unknown as Schedule;

describe("a schedule", () => {
  it("that is changed in nothing is sent as it is, with what the form does not show", () => {
    expect(requestOf(draftOf(schedule, "UTC"), schedule)).toEqual({
      spec: schedule.spec, action: schedule.action, overlap_policy: "buffer_one", jitter_seconds: 5, paused: true, note: "n",
    });
  });
  it("loses what was emptied", () => {
    const sent = requestOf({ ...draftOf(schedule, "UTC"), input: "", queue: "", memo: "", paused: false }, schedule);
    expect(sent.action).toEqual({ workflow_type: "report", run_timeout_seconds: 60 });
    expect(sent.paused).toBe(false);
  });
  it("that is new needs a time, and names what is wrong", () => {
    const d = draftOf(undefined, "Asia/Kolkata");
    expect(d.zone).toBe("Asia/Kolkata");
    expect(() => requestOf(d)).toThrow("spec.cron_expressions: is required, or an interval");
    expect(() => requestOf({ ...d, type: "t", cron: "@daily", memo: "[]" })).toThrow("action.memo");
    expect(() => requestOf({ ...d, type: "t", cron: "@daily", jitter: "-1" })).toThrow("jitter_seconds");
    expect(requestOf({ ...d, id: " nightly ", cron: "@daily", type: "report" })).toEqual({
      schedule_id: "nightly", spec: { cron_expressions: ["@daily"], timezone: "Asia/Kolkata" }, action: { workflow_type: "report" }, overlap_policy: "skip", jitter_seconds: 0, note: "",
    });
  });
  it("of an activity is sent as it is, and of a workflow without what is an activity's", () => {
    const action = { activity_type: "load", session_id: "gpu", heartbeat_timeout: 9, start_to_close_timeout: 60, retry_policy: { non_retryable_error_types: ["No"], max_attempts: 3, backoff_seconds: [1, 10] } };
    const warm = { ...schedule, kind: "activity", workflow_type: "load", action } as unknown as Schedule;
    expect(requestOf(draftOf(warm, "UTC"), warm).action).toEqual(action);
    expect(requestOf({ ...draftOf(warm, "UTC"), alone: false, type: "report" }, warm).action).toEqual({ workflow_type: "report" });
    expect(requestOf({ ...draftOf(schedule, "UTC"), alone: true, type: "load" }, schedule).action).toEqual({ activity_type: "load", task_queue: "q", input: ["all"], memo: { who: "ops" } });
    expect(() => requestOf({ ...draftOf(warm, "UTC"), attempts: "" }, warm)).toThrow("action.retry_policy.max_attempts");
  });
  it("keeps its maximum number of runs, which cannot be removed", () => {
    expect(() => requestOf({ ...draftOf(schedule, "UTC"), maxRuns: "" }, schedule)).toThrow("max_runs");
    expect(requestOf({ ...draftOf(schedule, "UTC"), maxRuns: "12" }, schedule).max_runs).toBe(12);
  });
});

it("takes the ends of a backfill in the zone the page shows", () => {
  expect(instant("2026-01-01T12:00:00", "utc", "start_time")).toBe("2026-01-01T12:00:00.000Z");
  expect(instant("2026-01-01T12:00:00", "local", "start_time")).toBe("2026-01-01T11:00:00.000Z"); // the tests run in Berlin
  expect(() => instant("", "utc", "end_time")).toThrow("end_time: is required");
});
