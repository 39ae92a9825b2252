import { describe, expect, it } from "vitest";
import type { RunView } from "../api/types";
import { isOpen, runStatus, stuck, tones } from "./status";
import { tones as eventTones } from "../run/summary";

const run = (o: Partial<RunView>) => ({ status: "running", closed_reason: null, ...o }) as RunView;

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

it("is stuck if the app reports it", () => {
  const wait = (needs_attention: boolean) => ({ wait: { needs_attention } }) as Partial<RunView>;
  expect(stuck(run(wait(true)))).toBe(true);
  expect(stuck(run(wait(false)))).toBe(false);
  expect(stuck(run({}))).toBe(false);
  expect(stuck(run({ status: "completed", closed_reason: "completed", ...wait(true) }))).toBe(false);
});

it("has no amber status or event, because none of them needs an operator", () => {
  const amber = (all: Record<string, string>) => Object.keys(all).filter((name) => all[name] === "warn");
  expect(amber(tones)).toEqual([]);
  expect(amber(eventTones)).toEqual([]);
});
