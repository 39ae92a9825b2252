import { duration, tickLabel, tickStep } from "../lib/time";
import type { Timeline } from "./timeline";

/** A section of the axis with a linear scale. A collapsed section is a long time without events. */
export interface Region {
  from: number;
  to: number;
  x0: number; // 0 … 1
  x1: number;
  folded: boolean;
}

export interface Scale {
  at: (t: number) => number; // 0 … 1, clamped
  regions: Region[];
  ticks: { x: number; label: string }[];
}

const foldedShare = 0.11; // part of the width for one collapsed section
const foldedMost = 0.45; // for all collapsed sections together

const known = new WeakMap<Timeline, number[]>();

/** The sorted times at which bars begin and end. An open run is rendered every second, but its past is sorted only once. */
function past(t: Timeline): number[] {
  let found = known.get(t);
  if (!found) {
    const all = new Set([t.from]);
    for (const l of t.lanes) {
      for (const b of l.bars) {
        all.add(b.from);
        if (b.to !== null) all.add(b.to);
      }
      for (const m of l.marks) all.add(m.at);
    }
    found = [...all].filter((x) => x >= t.from).sort((a, b) => a - b);
    known.set(t, found);
  }
  return found;
}

/** The same, with the end of the axis for open bars. */
function moments(t: Timeline, end: number): number[] {
  const all = past(t);
  let n = all.length;
  while (n > 0 && all[n - 1]! >= end) n--;
  return [...all.slice(0, n), end];
}

/** The minimum length of sections to collapse: a section of this length exceeds all shorter ones together. Infinity if there is none. */
function foldFrom(gaps: number[]): number {
  let sum = 0;
  for (const [i, g] of [...gaps].sort((a, b) => a - b).entries()) {
    if (i >= 2 && g > 5 * sum && g >= 1000) return g;
    sum += g;
  }
  return Infinity;
}

/** Whether collapsing gaps would change the timeline. */
export function canFold(t: Timeline, now: number): boolean {
  const points = moments(t, Math.max(t.to ?? now, t.from));
  return foldFrom(points.slice(1).map((p, i) => p - points[i]!)) < Infinity;
}

/** Maps time to the width, linearly or with collapsed gaps. marks is the approximate number of ticks that fit. */
export function makeScale(t: Timeline, now: number, fold: boolean, marks: number): Scale {
  const end = Math.max(t.to ?? now, t.from + 0.001);
  const points = fold ? moments(t, end) : [t.from, end];
  const limit = fold ? foldFrom(points.slice(1).map((p, i) => p - points[i]!)) : Infinity;
  const spans: { from: number; to: number; folded: boolean }[] = [];
  for (let i = 1; i < points.length; i++) {
    const from = points[i - 1]!;
    const to = points[i]!;
    const folded = to - from >= limit;
    const last = spans.at(-1);
    if (last && !folded && !last.folded) last.to = to;
    else spans.push({ from, to, folded });
  }
  const foldedCount = spans.filter((s) => s.folded).length;
  const even = spans.filter((s) => !s.folded).reduce((sum, s) => sum + s.to - s.from, 0);
  const share = foldedCount === 0 ? 0 : even === 0 ? 1 / foldedCount : Math.min(foldedShare, foldedMost / foldedCount);
  const perMs = even === 0 ? 0 : (1 - share * foldedCount) / even;
  let x = 0;
  const regions = spans.map((s): Region => {
    const x0 = x;
    x += s.folded ? share : (s.to - s.from) * perMs;
    return { ...s, x0, x1: x };
  });
  const last = regions.at(-1);
  if (last) last.x1 = 1;
  return { at: (time) => place(regions, time), regions, ticks: ticks(regions, t.from, marks) };
}

function place(regions: Region[], t: number): number {
  let low = 0;
  let high = regions.length - 1;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (t > regions[mid]!.to) low = mid + 1;
    else high = mid;
  }
  const r = regions[low];
  if (!r) return 0;
  const f = r.to > r.from ? (t - r.from) / (r.to - r.from) : 0;
  return r.x0 + Math.min(1, Math.max(0, f)) * (r.x1 - r.x0);
}

function ticks(regions: Region[], zero: number, marks: number): { x: number; label: string }[] {
  const out: { x: number; label: string }[] = [];
  for (const r of regions) {
    if (r.folded) continue;
    const width = r.x1 - r.x0;
    const room = Math.floor(width * marks);
    if (room < 1 && r !== regions[0]) continue;
    const step = tickStep(r.to - r.from, Math.max(1, room));
    for (let t = Math.ceil((r.from - zero) / step) * step; t <= r.to - zero; t += step) {
      const at = place(regions, zero + t);
      const before = out.at(-1);
      // The last label would exceed the edge, and labels must not touch.
      if (at > 0.97 || (before && at - before.x < 0.7 / marks)) continue;
      out.push({ x: at, label: tickLabel(t, step) });
    }
  }
  return out;
}

/** The label of a collapsed gap. */
export const foldedLabel = (r: Region): string => duration(r.to - r.from);
