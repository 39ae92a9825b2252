import { describe, expect, it } from "vitest";
import { canFold, makeScale } from "./scale";
import type { Bar, Timeline } from "./timeline";

/** A timeline of one lane, with bars [from, to]. */
function timeline(to: number | null, ...spans: [number, number | null][]): Timeline {
  const bars = spans.map(([from, end]): Bar => ({ kind: "attempt", from, to: end }));
  return {
    from: 0,
    to,
    lanes: [{ id: "a", kind: "activity", title: "a", detail: "", depth: 0, sequence: 1, state: "completed", from: 0, to, bars, marks: [], events: [], attempts: 1 }],
  };
}

describe("even time", () => {
  it("maps start to 0, end to 1 and clamps the rest", () => {
    const s = makeScale(timeline(1000, [0, 1000]), 5000, false, 8);
    expect([s.at(0), s.at(250), s.at(1000), s.at(-5), s.at(9999)]).toEqual([0, 0.25, 1, 0, 1]);
  });
  it("of an open run ends now", () => {
    expect(makeScale(timeline(null, [0, null]), 400, false, 8).at(200)).toBeCloseTo(0.5);
  });
  it("bears a run that ended as it began", () => {
    const s = makeScale(timeline(0), 0, true, 8);
    expect(Number.isFinite(s.at(0))).toBe(true);
  });
});

describe("folded time", () => {
  const day = 86_400_000;
  const t = timeline(day + 60, [0, 10], [12, 20], [day, day + 50]);
  it("gives a long idle stretch a small fixed share", () => {
    expect(canFold(t, day)).toBe(true);
    const s = makeScale(t, day, true, 8);
    const folded = s.regions.filter((r) => r.folded);
    expect(folded.map((r) => [r.from, r.to])).toEqual([[20, day]]);
    expect(folded[0]!.x1 - folded[0]!.x0).toBeCloseTo(0.11);
  });
  it("keeps order: later is never further left", () => {
    const s = makeScale(t, day, true, 8);
    const xs = [0, 5, 10, 12, 20, 1000, day / 2, day, day + 25, day + 60].map(s.at);
    expect([...xs].sort((a, b) => a - b)).toEqual(xs);
    expect(xs.at(-1)).toBe(1);
  });
  it("leaves a run alone whose stretches are alike", () => {
    const even = timeline(400, [0, 100], [100, 200], [210, 300], [300, 400]);
    expect(canFold(even, 400)).toBe(false);
    expect(makeScale(even, 400, true, 8).at(100)).toBeCloseTo(0.25);
  });
  it("never folds all of the width away", () => {
    const many = timeline(10 * day, ...Array.from({ length: 9 }, (_, i): [number, number] => [i * day, i * day + 5]));
    const s = makeScale(many, 10 * day, true, 8);
    const folded = s.regions.filter((r) => r.folded).reduce((sum, r) => sum + r.x1 - r.x0, 0);
    expect(folded).toBeLessThanOrEqual(0.46);
  });
});

it("ticks never touch and never hang over the edge", () => {
  for (const end of [40, 900, 61_000, 7_200_000, 5e9]) {
    const s = makeScale(timeline(end, [0, end]), end, false, 8);
    expect(s.ticks.length).toBeGreaterThan(1);
    for (const [i, t] of s.ticks.entries()) {
      expect(t.x).toBeLessThanOrEqual(0.97);
      if (i > 0) expect(t.x - s.ticks[i - 1]!.x).toBeGreaterThan(0.08);
    }
  }
});
