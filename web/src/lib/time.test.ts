import { describe, expect, it } from "vitest";
import { absolute, chosen, clockTime, duration, parseTime, precise, relative, span, tickLabel, tickStep, wallTime, zoneName } from "./time";

describe("parseTime", () => {
  it("keeps microseconds as a fraction", () => {
    expect(parseTime("2026-04-18T12:00:00.123456Z")).toBeCloseTo(Date.UTC(2026, 3, 18, 12, 0, 0, 123) + 0.456, 3);
  });
  it("is null for null, nothing and nonsense", () => {
    for (const t of [null, undefined, "", "soon"]) expect(parseTime(t)).toBeNull();
  });
});

describe("duration", () => {
  it.each([
    [0, "0 s"],
    [0.0004, "1 µs"],
    [0.84, "840 µs"],
    [3.21, "3.2 ms"],
    [12.4, "12 ms"],
    [999.7, "1.00 s"],
    [3444, "3.44 s"],
    [59_949, "59.9 s"],
    [59_960, "1m 0s"],
    [125_000, "2m 5s"],
    [3_599_800, "1h 0m"],
    [3_780_000, "1h 3m"],
    [4 * 86_400_000 + 7_300_000, "4d 2h"],
    [-1500, "−1.50 s"],
    [NaN, "–"],
  ])("%d ms reads %s", (ms, text) => expect(duration(ms)).toBe(text));
});

it("names a span in one unit", () => {
  expect([0, 900, 1000, 59_999, 60_000, 420_000, 7_200_000, 200_000_000].map(span)).toEqual(["1 second", "1 second", "1 second", "59 seconds", "1 minute", "7 minutes", "2 hours", "2 days"]);
});

describe("relative", () => {
  const now = Date.UTC(2026, 10, 21, 12);
  it.each([
    [0, "now"],
    [-900, "now"],
    [-12_000, "12s ago"],
    [-119_000, "1m ago"],
    [7_200_000, "in 2h"],
    [-5 * 86_400_000, "5d ago"],
  ])("%d ms away reads %s", (away, text) => expect(relative(now + away, now)).toBe(text));
});

describe("dates", () => {
  const at = Date.UTC(2026, 10, 21, 23, 30, 5, 7);
  it("follow the browser's zone, or UTC when asked", () => {
    expect(absolute(at, "local", at)).toBe("22 Nov, 00:30:05");
    expect(absolute(at, "utc", at)).toBe("21 Nov, 23:30:05");
    expect(clockTime(at, "utc")).toBe("23:30:05.007");
    expect(wallTime(at, "utc")).toBe("23:30:05");
  });
  it("name the year only when it is another one", () => {
    expect(absolute(at, "utc", Date.UTC(2027, 1, 1))).toBe("21 Nov 2026, 23:30:05");
  });
  it("say everything, microseconds and zone included", () => {
    expect(precise("2026-11-21T23:30:05.007042Z", "utc")).toBe("21 Nov 2026, 23:30:05.007042 UTC");
    expect(zoneName("utc")).toBe("UTC");
    expect(zoneName("local", at)).not.toBe("UTC");
  });
});

describe("axis", () => {
  it("steps by round lengths, in about the wanted number", () => {
    for (const span of [3, 47, 950, 4100, 61_000, 3_700_000, 90_000_000, 4e9, 9e11]) {
      const marks = span / tickStep(span, 8);
      expect(marks).toBeGreaterThan(2);
      expect(marks).toBeLessThanOrEqual(8);
    }
  });
  it("labels are as exact as the step, so that no two are alike", () => {
    expect([2005, 2010, 2015].map((t) => tickLabel(t, 5))).toEqual(["2.005 s", "2.010 s", "2.015 s"]);
    expect([61_000, 61_250, 75_500].map((t) => tickLabel(t, 250))).toEqual(["1:01.0", "1:01.3", "1:15.5"]);
    expect([tickLabel(1500, 500), tickLabel(2000, 500)]).toEqual(["1.5 s", "2.0 s"]);
  });
  it("labels marks shortly", () => {
    expect([tickLabel(0, 100), tickLabel(250, 50), tickLabel(1500, 500), tickLabel(75_000, 15_000), tickLabel(120_000, 60_000)]).toEqual([
      "0", "250 ms", "1.5 s", "1:15", "2 min",
    ]);
    expect([tickLabel(10_800_000, 3_600_000), tickLabel(4 * 86_400_000, 86_400_000)]).toEqual(["3 h", "4 d"]);
  });
});

it("reads chosen lengths as they were chosen", () => {
  expect([0, 250, 1500, 2000, 90_000, 3_600_000, 129_600_000, 172_800_000].map(chosen)).toEqual(["0 ms", "250 ms", "1.5 s", "2 s", "1.5 min", "1 h", "36 h", "2 d"]);
});
