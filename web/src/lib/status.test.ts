import { describe, expect, it } from "vitest";
import type { RunView } from "../api/types";
import { isOpen, runStatus, whyWaiting } from "./status";

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
