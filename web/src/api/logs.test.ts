import { expect, it, vi } from "vitest";
import { readLogs } from "./logs";
import type { ActivityLogs } from "./types";

/** An app that keeps so many lines of each attempt and hands out three at a time, of the last attempt. */
const server = (kept: { lines: number[] }) =>
  vi.fn(async (after: number): Promise<ActivityLogs> => {
    const attempt = kept.lines.length;
    const all = Array.from({ length: kept.lines[attempt - 1] ?? 0 }, (_, i) => ({ text: `${attempt}.${i + 1}` }));
    const lines = all.slice(after, after + 3);
    return {
      task_id: "t", run_id: "r", workflow_id: "w", activity_attempt_id: `t-${attempt}`, running: true, open: true,
      attempts: kept.lines.map((_, i) => ({ activity_attempt_id: `t-${i + 1}`, attempt: i + 1, bytes: 1 })), lines, next: after + lines.length, more: after + 3 < all.length,
    };
  });

const texts = (l: { lines: { text: string }[] }) => l.lines.map((x) => x.text).join(" ");

it("reads all lines, then only new ones", async () => {
  const kept = { lines: [7] };
  const fetch = server(kept);
  const before = await readLogs(fetch);
  expect([texts(before), fetch.mock.calls.length]).toEqual(["1.1 1.2 1.3 1.4 1.5 1.6 1.7", 3]);
  kept.lines = [8];
  const then = await readLogs(fetch, before);
  expect([texts(then), fetch.mock.calls.slice(3)]).toEqual(["1.1 1.2 1.3 1.4 1.5 1.6 1.7 1.8", [[7]]]);
});

it("keeps the very same lines while there are no others", async () => {
  const fetch = server({ lines: [2] });
  const before = await readLogs(fetch);
  expect((await readLogs(fetch, before)).lines).toBe(before.lines);
});

it("begins anew with another attempt, which may have more or fewer lines", async () => {
  for (const second of [0, 1, 9]) {
    const kept = { lines: [5] };
    const fetch = server(kept);
    const before = await readLogs(fetch);
    kept.lines = [5, second];
    const then = await readLogs(fetch, before);
    expect(texts(then)).toBe(Array.from({ length: second }, (_, i) => `2.${i + 1}`).join(" "));
  }
});
