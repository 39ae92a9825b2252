import { describe, expect, it } from "vitest";
import type { RunView } from "../api/types";
import { isOpen, runStatus, stuck, whyWaiting } from "./status";

const run = (o: Partial<RunView>) => ({ status: "running", closed_reason: null, wait_reason: null, wait_kind: null, ...o }) as RunView;

describe("run status", () => {
  it.each([
    ["pending", null, "running"],
    ["waiting", null, "running"],
    ["running", null, "running"],
    ["failed", "timed_out", "timed_out"],
    ["completed", "continued", "continued"],
    ["completed", "completed", "completed"],
    ["cancelled", "cancelled", "cancelled"],
    ["terminated", "terminated", "terminated"],
    ["timed_out", null, "timed_out"],
  ])("%s with reason %s is stored as %s", (status, closed_reason, stored) => {
    expect(runStatus({ status, closed_reason })).toBe(stored);
    expect(isOpen({ status, closed_reason })).toBe(stored === "running");
  });
});

describe("why a run waits", () => {
  it("is what the app says, and quarantine before all", () => {
    expect(whyWaiting(run({ wait_reason: "waits for the signal approve" }))).toBe("waits for the signal approve");
    expect(whyWaiting(run({ wait_reason: "x", blocked_reason: "replay differs at event 7" }))).toBe("replay differs at event 7");
    expect(whyWaiting(run({ status: "pending" }))).toMatch(/first time/);
  });
  it("is nothing for a run that moves or is closed", () => {
    expect(whyWaiting(run({}))).toBe("");
    expect(whyWaiting(run({ status: "completed", closed_reason: "completed", wait_reason: "old" }))).toBe("");
  });
});

it("tells what somebody may have to look at from what takes its time", () => {
  const waits = (wait_kind: string, wait_reason: string) => stuck(run({ status: "waiting", wait_kind, wait_reason }));
  expect(waits("activity", "activity a: no live worker serves queue q")).toBe(true);
  expect(waits("workflow_task", "its next decision waits: no live worker serves queue q")).toBe(true);
  expect(waits("quarantined", "quarantined until repaired: x")).toBe(true);
  expect(waits("activity", "activity a runs on worker w (and 2 more)")).toBe(false);
  expect(waits("activity", "activity a: waits for its back-off until 12:00:00 UTC")).toBe(false);
  expect(waits("workflow_task", "worker w decides what comes next")).toBe(false);
  for (const kind of ["timer", "signal", "child", "condition"]) expect(waits(kind, "x")).toBe(false);
  expect(stuck(run({ status: "pending" }))).toBe(true);
});
