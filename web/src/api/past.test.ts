import { expect, it, vi } from "vitest";
import { pageSize, readBack, readOn, type Where } from "./past";
import type { ScheduleEvent, ScheduleHistory } from "./types";

const event = (sequence: number) => ({ sequence, event_type: "ScheduleTriggered" }) as ScheduleEvent;

/** A schedule of so many events, asked as the app is. */
const server = (n: { events: number }, most = Infinity) =>
  vi.fn(async (w: Where): Promise<ScheduleHistory> => {
    const all = Array.from({ length: n.events }, (_, i) => event(i + 1));
    const fits = "after_sequence" in w ? all.filter((e) => e.sequence > w.after_sequence) : all.filter((e) => !w.before_sequence || e.sequence < w.before_sequence).reverse();
    const events = fits.slice(0, Math.min(w.limit, most));
    return { events, has_more: events.length < fits.length, next_cursor: null };
  });

const seqs = (p: { events: ScheduleEvent[] }) => [p.events[0]?.sequence, p.events.at(-1)?.sequence, p.events.length];

it("begins at the newest, and goes back to the first event", async () => {
  const fetch = server({ events: 1200 });
  let past = await readOn(fetch);
  expect([seqs(past), past.more]).toEqual([[1200, 1151, pageSize], true]);
  for (let n = 0; past.more && n < 100; n++) past = await readBack(fetch, past);
  expect(seqs(past)).toEqual([1200, 1, 1200]);
});

it("reads on what is new in one request, however far back it was read", async () => {
  const n = { events: 200 };
  const fetch = server(n);
  const before = await readBack(fetch, await readOn(fetch));
  fetch.mockClear();
  expect(await readOn(fetch, before)).toBe(before);
  n.events = 203;
  expect(seqs(await readOn(fetch, before))).toEqual([203, 101, 103]);
  expect(fetch).toHaveBeenCalledTimes(2);
});

it("begins anew when too much was missed", async () => {
  const n = { events: 60 };
  const before = await readOn(server(n));
  n.events = 500;
  expect(seqs(await readOn(server(n, 100), before))).toEqual([500, 451, 50]);
});

it("has nothing of a schedule that did nothing", async () => {
  const fetch = server({ events: 0 });
  const past = await readOn(fetch);
  expect(past).toEqual({ events: [], more: false });
  expect(await readBack(fetch, past)).toBe(past);
});
