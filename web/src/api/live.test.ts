import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { History } from "./client";
import { Gatherer, gatherMs, staleKeys } from "./live";
import { keys } from "./queries";
import type { Hint } from "./types";

describe("a hint", () => {
  it("makes stale what it names, and the lists it stands in", () => {
    const namespace = "team-a";
    expect(staleKeys({ kind: "run", id: "r1", namespace, workflow_id: "w1" })).toEqual([
      ["run", "r1"], ["runs", namespace], ["overview", namespace], ["runs-of", namespace, "w1"],
    ]);
    expect(staleKeys({ kind: "session", id: "s1", namespace })).toEqual([["session", namespace, "s1"], ["sessions", namespace], ["overview", namespace]]);
    expect(staleKeys({ kind: "worker", id: "local", namespace })).toEqual([["workers", namespace], ["overview", namespace]]);
  });
  it("without an id stands for all of its kind", () => {
    expect(staleKeys({ kind: "run" })).toEqual([["run"], ["runs"], ["overview"], ["runs-of"]]);
    expect(staleKeys({ kind: "session" })).toEqual([["session"], ["sessions"], ["overview"]]);
  });
  it("of a kind this page does not know changes nothing", () => {
    expect(staleKeys({ kind: "schedule", id: "x" } as unknown as Hint)).toEqual([]);
  });
});

describe("gathering", () => {
  let client: QueryClient;
  let gatherer: Gatherer;
  const s1 = { namespace: "team-a", session_id: "s1" };
  const stale = (key: readonly unknown[]) => client.getQueryState(key)?.isInvalidated;

  beforeEach(() => {
    vi.useFakeTimers();
    client = new QueryClient();
    gatherer = new Gatherer(client);
    const history: History = { events: [{ sequence: 9, event_type: "TimerFired", payload: {} }], pages: [], complete: true };
    for (const k of [[...keys.run("r1"), "view"], [...keys.run("r2"), "view"], [...keys.runs, {}], keys.workers, keys.session(s1), keys.session({ ...s1, namespace: "team-b" })]) client.setQueryData(k, {});
    client.setQueryData(keys.history("r1"), history);
  });
  afterEach(() => vi.useRealTimers());

  it("invalidates the named queries after a moment, and no others", () => {
    gatherer.take({ kind: "run", id: "r1", last_seq: 10 });
    expect(stale([...keys.run("r1"), "view"])).toBe(false);
    vi.advanceTimersByTime(gatherMs);
    expect(stale([...keys.run("r1"), "view"])).toBe(true);
    expect(stale(keys.history("r1"))).toBe(true);
    expect(stale([...keys.runs, {}])).toBe(true);
    expect(stale([...keys.run("r2"), "view"])).toBe(false);
    expect(stale(keys.workers)).toBe(false);
    expect(stale(keys.session(s1))).toBe(false);
  });
  it("leaves what has the same id in another namespace alone", () => {
    gatherer.take({ kind: "session", id: "s1", namespace: "team-a" });
    vi.advanceTimersByTime(gatherMs);
    expect([stale(keys.session(s1)), stale(keys.session({ ...s1, namespace: "team-b" }))]).toEqual([true, false]);
  });
  it("leaves a history alone that already has the last event", () => {
    gatherer.take({ kind: "run", id: "r1", last_seq: 9 });
    vi.advanceTimersByTime(gatherMs);
    expect(stale(keys.history("r1"))).toBe(false);
    expect(stale([...keys.run("r1"), "view"])).toBe(true);
  });
  it("a later hint that knows of more makes up for an earlier one that did not", () => {
    gatherer.take({ kind: "run", id: "r1", last_seq: 11 });
    gatherer.take({ kind: "run", id: "r1", last_seq: 9 });
    vi.advanceTimersByTime(gatherMs);
    expect(stale(keys.history("r1"))).toBe(true);
  });
  it("asks once for a burst", () => {
    const asked = vi.spyOn(client, "invalidateQueries");
    for (let i = 0; i < 50; i++) gatherer.take({ kind: "worker", id: `w${i}` });
    vi.advanceTimersByTime(gatherMs);
    expect(asked.mock.calls.map(([f]) => f?.queryKey)).toEqual([["workers"], ["overview"]]);
  });
  it("survives what is no hint", () => {
    const asked = vi.spyOn(client, "invalidateQueries");
    for (const odd of [null, undefined, {}, "run", { kind: "odd", id: 7 }]) gatherer.take(odd as unknown as Hint);
    vi.advanceTimersByTime(gatherMs);
    expect(asked).not.toHaveBeenCalled();
  });
});
