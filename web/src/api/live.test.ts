import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { History } from "./client";
import { QueryObserver } from "@tanstack/react-query";
import { staleKeys, staleOn } from "./live";
import { keys } from "./queries";
import { gatherMs, roundMs, Rounds, topicsOf, wanted } from "./rounds";
import type { Hint, RunView } from "./types";

describe("a hint", () => {
  it("makes stale what it names, and no list that did not ask", () => {
    const namespace = "team-a";
    expect(staleKeys({ kind: "run", id: "r1", namespace, workflow_id: "w1" })).toEqual([
      ["run", "r1"], ["runs-of", namespace, "w1"],
    ]);
    expect(staleKeys({ kind: "run", namespace })).toEqual([["runs", namespace], ["runs-counted", namespace], ["overview", namespace]]);
    expect(staleKeys({ kind: "session", id: "s1", namespace })).toEqual([["session", namespace, "s1"]]);
    expect(staleKeys({ kind: "session", namespace })).toEqual([["sessions", namespace], ["overview", namespace]]);
    expect(staleKeys({ kind: "worker", namespace })).toEqual([["workers", namespace], ["overview", namespace]]);
  });
  it("without a namespace stands for all of its kind", () => {
    expect(staleKeys({ kind: "run" })).toEqual([["run"], ["runs"], ["runs-counted"], ["overview"], ["runs-of"]]);
    expect(staleKeys({ kind: "session" })).toEqual([["session"], ["sessions"], ["overview"]]);
  });
  it("of a kind this page does not know changes nothing", () => {
    expect(staleKeys({ kind: "schedule", id: "x" } as unknown as Hint)).toEqual([]);
  });
});

describe("rounds", () => {
  let client: QueryClient;
  let rounds: Rounds;
  const take = (hint: Hint) => rounds.take(staleOn(client, hint));
  const s1 = { namespace: "team-a", session_id: "s1" };
  const stale = (key: readonly unknown[]) => client.getQueryState(key)?.isInvalidated;

  beforeEach(() => {
    vi.useFakeTimers();
    client = new QueryClient();
    rounds = new Rounds(client);
    const history: History = { events: [{ sequence: 9, event_type: "TimerFired", recorded_at: null, timestamp: null, payload: {} }], pages: [], complete: true };
    for (const k of [[...keys.run("r1"), "view"], [...keys.run("r2"), "view"], [...keys.runs, "team-a", {}], [...keys.workers, "team-a"], keys.session(s1), keys.session({ ...s1, namespace: "team-b" })]) client.setQueryData(k, {});
    client.setQueryData(keys.history("r1"), history);
  });
  afterEach(() => vi.useRealTimers());

  it("read again the named queries after a moment, and no others", () => {
    take({ kind: "run", id: "r1", last_seq: 10 });
    expect(stale([...keys.run("r1"), "view"])).toBe(false);
    vi.advanceTimersByTime(gatherMs);
    expect(stale([...keys.run("r1"), "view"])).toBe(true);
    expect(stale(keys.history("r1"))).toBe(true);
    for (const k of [[...keys.runs, "team-a", {}], [...keys.run("r2"), "view"], [...keys.workers, "team-a"], keys.session(s1)]) expect(stale(k)).toBe(false);
  });
  it("leave what has the same id in another namespace alone", () => {
    take({ kind: "session", id: "s1", namespace: "team-a" });
    vi.advanceTimersByTime(gatherMs);
    expect([stale(keys.session(s1)), stale(keys.session({ ...s1, namespace: "team-b" }))]).toEqual([true, false]);
  });
  it("leave a history alone that already has the last event", () => {
    take({ kind: "run", id: "r1", last_seq: 9 });
    vi.advanceTimersByTime(gatherMs);
    expect(stale(keys.history("r1"))).toBe(false);
    expect(stale([...keys.run("r1"), "view"])).toBe(true);
  });
  it("read nothing of a page that was hidden meanwhile, and know what is stale", () => {
    const read = vi.fn(async () => ({}));
    const stop = new QueryObserver(client, { queryKey: [...keys.workers, "team-a"], queryFn: read, staleTime: Infinity }).subscribe(() => {});
    for (const hidden of [true, false]) {
      take({ kind: "worker", namespace: "team-a" });
      vi.stubGlobal("document", { hidden });
      vi.advanceTimersByTime(roundMs);
      vi.unstubAllGlobals();
      expect(read).toHaveBeenCalledTimes(hidden ? 0 : 1);
      if (hidden) expect(stale([...keys.workers, "team-a"])).toBe(true);
    }
    stop();
  });
  it("let what is being read come to its end, however often it changes meanwhile, and read it once more then", async () => {
    const key = [...keys.runs, "team-a", {}];
    const ended: (() => void)[] = [];
    const read = vi.fn(({ signal }: { signal: AbortSignal }) => new Promise((done) => ended.push(() => done({ cut: signal.aborted }))));
    const stop = new QueryObserver(client, { queryKey: key, queryFn: read, staleTime: Infinity }).subscribe(() => {});
    const change = () => {
      take({ kind: "run", namespace: "team-a" });
      vi.advanceTimersByTime(roundMs);
    };
    for (let n = 0; n < 5; n++) change();
    expect(read).toHaveBeenCalledTimes(1);
    ended[0]!();
    await vi.advanceTimersByTimeAsync(roundMs);
    expect(client.getQueryData(key)).toEqual({ cut: false });
    expect(read).toHaveBeenCalledTimes(2);
    ended[1]!();
    await vi.advanceTimersByTimeAsync(3 * roundMs);
    expect(read).toHaveBeenCalledTimes(2);
    stop();
  });
  it("come once a second, however much changes", () => {
    const asked = vi.spyOn(client, "invalidateQueries");
    for (let ms = 0; ms < 5000; ms += 10) {
      take({ kind: "worker", namespace: "team-a" });
      vi.advanceTimersByTime(10);
    }
    expect(asked.mock.calls.filter(([f]) => f?.queryKey?.[0] === "workers").length).toBe(5000 / roundMs);
  });
  it("survive what is no hint", () => {
    const asked = vi.spyOn(client, "invalidateQueries");
    for (const odd of [null, undefined, {}, "run", { kind: "odd", id: 7 }]) take(odd as unknown as Hint);
    vi.advanceTimersByTime(gatherMs);
    expect(asked).not.toHaveBeenCalled();
  });
});

describe("topics", () => {
  const run = (status: string) => ({ run_id: "r1", namespace: "team-a", status }) as RunView;
  it("are those of what a query shows; a closed run has none", () => {
    expect(topicsOf([...keys.runs, "team-a", {}])).toEqual([{ kind: "run", namespace: "team-a" }]);
    expect(topicsOf(keys.session({ namespace: "team-a", session_id: "s1" }))).toEqual([{ kind: "session", id: "s1", namespace: "team-a" }]);
    expect(topicsOf([...keys.run("r1"), "view"], () => run("running"))).toEqual([{ kind: "run", id: "r1", namespace: "team-a" }]);
    expect(topicsOf([...keys.run("r1"), "view"], () => run("completed"))).toEqual([]);
    expect(topicsOf([...keys.about, "team-a"])).toEqual([]);
  });
  it("are asked for only while something shows them", () => {
    const client = new QueryClient();
    client.setQueryData([...keys.workers, "team-a"], {});
    expect(wanted(client)).toEqual([]);
    const stop = [1, 2].map(() => new QueryObserver(client, { queryKey: [...keys.workers, "team-a"], queryFn: () => ({}), staleTime: Infinity }).subscribe(() => {}));
    expect(wanted(client)).toEqual([{ kind: "worker", namespace: "team-a" }]);
    stop.forEach((fn) => fn());
    expect(wanted(client)).toEqual([]);
  });
});
