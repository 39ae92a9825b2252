import { describe, expect, it } from "vitest";
import type { SessionEvent } from "../api/types";
import { change, facts, handsOver, holds, ordinals, reason, runOf } from "./ownership";

const at = (s: number) => new Date(Date.UTC(2026, 10, 21, 12, 0, s)).toISOString();
const ms = (s: number) => Date.UTC(2026, 10, 21, 12, 0, s);

it("epochs are counted by claims, back from the newest", () => {
  const timeline: SessionEvent[] = [
    { at: at(1), what: "claimed", epoch: 1_795_000_000_000_001 },
    { at: at(2), what: "renewed", epoch: 1_795_000_000_000_001 },
    { at: at(3), what: "reclaimed", epoch: 1_795_000_000_000_007 },
  ];
  expect([...ordinals(timeline, 5)]).toEqual([[1_795_000_000_000_007, 5], [1_795_000_000_000_001, 4]]);
  expect([...ordinals(timeline, 1)]).toEqual([[1_795_000_000_000_007, 1]]);
  expect(ordinals(timeline, undefined).size).toBe(0);
});

describe("holds", () => {
  it("are the stretches between a claim and what ended it", () => {
    const all = holds([
      { at: at(0), what: "started" },
      { at: at(1), what: "claimed", worker_id: "w1", epoch: 10 },
      { at: at(9), what: "released", worker_id: "w1", why: "drained" },
      { at: at(12), what: "claimed", worker_id: "w2", epoch: 20 },
    ]);
    expect(all).toEqual([
      { worker: "w1", epoch: 10, from: ms(1), to: ms(9), ended: "released", why: "drained" },
      { worker: "w2", epoch: 20, from: ms(12), to: null },
    ]);
  });
  it("a claim ends the hold before it, the owner's own as well", () => {
    const all = holds([
      { at: at(1), what: "claimed", worker_id: "w1", epoch: 10 },
      { at: at(5), what: "reclaimed", worker_id: "w1", epoch: 11 },
      { at: at(8), what: "claimed", worker_id: "w2", epoch: 12 },
    ]);
    expect(all.map((h) => [h.worker, h.ended, h.to === null])).toEqual([["w1", "reclaimed", false], ["w1", "superseded", false], ["w2", undefined, true]]);
  });
  it("do not depend on the order of the answer, and an end without a hold is nothing", () => {
    const all = holds([
      { at: at(7), what: "expired" },
      { at: at(2), what: "claimed", worker_id: "w1", epoch: 10 },
      { at: at(9), what: "cleaned_up" },
      { at: null, what: "claimed" },
    ]);
    expect(all).toEqual([{ worker: "w1", epoch: 10, from: ms(2), to: ms(7), ended: "expired" }]);
  });
});

describe("a hand-over", () => {
  const timeline: SessionEvent[] = [
    { at: at(0), what: "claimed", worker_id: "w1", epoch: 10 },
    { at: at(10), what: "preparing", worker_id: "w2", epoch: 10, by: "ops" },
    { at: at(22), what: "prepared", worker_id: "w2", epoch: 10, by: "w2", set_up_seconds: 12 },
    { at: at(25), what: "released", worker_id: "w1", epoch: 10, why: "handed_over" },
    { at: at(25), what: "reclaimed", worker_id: "w2", epoch: 20, why: "handed_over" },
  ];
  it("leaves the ownership with the owner until the successor acquires the session", () => {
    expect(holds(timeline).map((h) => [h.worker, h.from, h.to, h.why])).toEqual([["w1", ms(0), ms(25), "handed_over"], ["w2", ms(25), null, undefined]]);
  });
  it("has texts for its entries, with the duration of the set-up", () => {
    expect(["preparing", "prepared", "preparation_ended"].map(change)).toEqual(["successor chosen, set-up begins", "set-up completed", "preparation discarded"]);
    expect(timeline.map((e) => handsOver(e.what))).toEqual([false, true, true, false, false]);
    expect(facts(timeline[2]!, holds(timeline))).toEqual(["set-up took 12.0 s"]);
  });
});

describe("an event of the timeline", () => {
  it("that ends an ownership has its duration, attempts and renewals", () => {
    const end: SessionEvent = { at: at(61), what: "expired", worker_id: "w1", epoch: 10, ran: 3, renewals: 1, idle_seconds: 12.5 };
    const all = holds([{ at: at(1), what: "claimed", worker_id: "w1", epoch: 10 }, end]);
    expect(facts(end, all)).toEqual(["held 1m 0s", "3 attempts started", "renewed once", "idle for 12.5 s"]);
    expect(facts({ at: at(61), what: "released", worker_id: "w1", epoch: 10, idle_seconds: 0.2 }, all)).toEqual(["held 1m 0s", "no attempts"]);
  });
  it("that begins an ownership or ends none has no facts", () => {
    expect(facts({ at: at(1), what: "claimed", worker_id: "w1", epoch: 10 }, [])).toEqual([]);
    expect(facts({ at: at(1), what: "closed" }, [])).toEqual([]);
  });
  it("for all renewals of an ownership has their number and time span", () => {
    const e: SessionEvent = { at: at(50), what: "renewed", worker_id: "w1", epoch: 10, renewals: 3, first_renewal: at(10), last_renewal: at(50) };
    expect(facts(e, [])).toEqual(["3 times in 40.0 s"]);
    expect(facts({ ...e, renewals: 1, first_renewal: at(50) }, [])).toEqual(["once"]);
  });
  it("names the run whose task it was", () => {
    expect(runOf("01M7Z955YF75D9HB7H1SG8XQ67-12")).toBe("01M7Z955YF75D9HB7H1SG8XQ67");
    expect(runOf("verb")).toBeUndefined();
    expect(runOf(undefined)).toBeUndefined();
  });
  it("is named with the terms of the glossary", () => {
    expect(["claimed", "cleaned_up", "lease_lost"].map(change)).toEqual(["acquired", "removed", "lease lost"]);
  });
  it("gives its reason as a sentence", () => {
    expect([reason("lease_expired"), reason("migrated: rack_7 goes")]).toEqual(["lease expired", "migrated: rack_7 goes"]);
  });
});
