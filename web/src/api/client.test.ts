import { afterEach, describe, expect, it, vi } from "vitest";
import { api, ApiError, awaySince, learnSkew, pageLimit, query, readHistory, readPatience, serverNow, whenUnauthorized } from "./client";
import type { From } from "./history";
import type { HistoryEvent, HistoryPage } from "./types";

const answer = (status: number, body: unknown) => vi.fn(async (..._: Parameters<typeof fetch>) => new Response(JSON.stringify(body), { status }));

afterEach(() => {
  vi.unstubAllGlobals();
  learnSkew(new Date().toUTCString());
});

describe("requests", () => {
  it("carry the version header, the filters and escaped ids", async () => {
    const fetch = answer(200, { workflows: [] });
    vi.stubGlobal("fetch", fetch);
    await api.runs("team-b", { status: "failed", q: "order 1&2" });
    const [url, init] = fetch.mock.calls[0]!;
    expect(url).toBe("/api/workflows?stored_status=failed&query=order+1%262&page_size=50&wait_reasons=true&partial=true&values=none");
    expect(new Headers(init?.headers).get("X-Durable-Workflow-Control-Plane-Version")).toBe("2");
    expect(new Headers(init?.headers).get("X-Namespace")).toBe("team-b");
    await api.signal({ namespace: "team-a", workflow_id: "a/b", run_id: "r" }, "approve", [true]);
    const [path, sent] = fetch.mock.calls[1]!;
    expect(path).toBe("/api/workflows/a%2Fb/signal/approve");
    expect([sent?.method, sent?.body, new Headers(sent?.headers).get("X-Namespace")]).toEqual(["POST", '{"input":[true]}', "team-a"]);
  });
  it("turn a refusal into its reason and message", async () => {
    vi.stubGlobal("fetch", answer(409, { reason: "run_not_active", message: "the run is closed" }));
    const err = await api.workers("default").catch((e: unknown) => e);
    expect(err).toBeInstanceOf(ApiError);
    expect(err).toMatchObject({ status: 409, reason: "run_not_active", message: "the run is closed" });
  });
  it("tell which member of what was sent is wrong", async () => {
    vi.stubGlobal("fetch", answer(422, { reason: "validation_failed", message: "name: is taken", errors: { name: ["is taken"] } }));
    await expect(api.workers("default")).rejects.toMatchObject({ fields: { name: ["is taken"] } });
  });
  it("say so when no answer comes", async () => {
    vi.stubGlobal("fetch", vi.fn(async () => Promise.reject(new TypeError("network"))));
    await expect(api.workers("default")).rejects.toMatchObject({ status: 0, reason: "unreachable" });
  });
  it("say so when what is read is never answered, at its head or in the middle; what is done is waited for", async () => {
    const timeout = vi.spyOn(AbortSignal, "timeout").mockImplementation(() => AbortSignal.abort(new DOMException("late", "TimeoutError")));
    const ends: (AbortSignal | null | undefined)[] = [];
    const cut = (init?: RequestInit) => ends.push(init?.signal) && init?.signal?.aborted;
    for (const fetch of [
      async (_: unknown, init?: RequestInit) => (cut(init) ? Promise.reject(init!.signal!.reason) : new Response("{}")),
      async (_: unknown, init?: RequestInit) => ({ headers: new Headers(), text: async () => (cut(init) ? Promise.reject(init!.signal!.reason) : "{}"), ok: true, status: 200 }),
    ]) {
      vi.stubGlobal("fetch", vi.fn(fetch));
      await expect(api.workers("default")).rejects.toMatchObject({ status: 0, reason: "unreachable" });
      expect(timeout).toHaveBeenLastCalledWith(readPatience);
      expect(awaySince()).not.toBeNull();
      await api.signal({ namespace: "team-a", workflow_id: "w", run_id: "r" }, "go", []);
      expect(ends.at(-1)).toBeNull();
      expect(awaySince()).toBeNull();
    }
    timeout.mockRestore();
  });
  it("notify the page of a lost sign-in", async () => {
    vi.stubGlobal("fetch", answer(401, { reason: "unauthorized", message: "sign in" }));
    const called = vi.fn();
    const stop = whenUnauthorized(called);
    await api.workers("default").catch(() => {});
    stop();
    await api.workers("default").catch(() => {});
    expect(called).toHaveBeenCalledTimes(1);
  });
  it("leave empty members out of a query", () => {
    expect(query({ a: undefined, b: "", c: null, d: 0, e: true })).toBe("?d=0&e=true");
    expect(query({})).toBe("");
  });
});

describe("the server's clock", () => {
  it("is followed when this machine's is off by seconds", () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    try {
      learnSkew(new Date(Date.now() + 60_000).toUTCString());
      expect(serverNow() - Date.now()).toBeGreaterThan(58_000);
      learnSkew(new Date(Date.now() - 700).toUTCString());
      expect(serverNow()).toBe(Date.now());
    } finally {
      vi.useRealTimers();
    }
  });
});

describe("reading a history", () => {
  const event = (sequence: number): HistoryEvent => ({ sequence, event_type: "TimerFired", recorded_at: null, timestamp: null, payload: {} });
  /** A history of n events in pages of three, whose tokens are positions. */
  const server = (n: { events: number }) =>
    vi.fn(async ({ next_page_token: token, after }: From): Promise<HistoryPage> => {
      const from = after ?? Number(token ?? 0);
      const to = Math.min(n.events, from + 3);
      return { events: Array.from({ length: to - from }, (_, i) => event(from + i + 1)), next_page_token: to < n.events ? String(to) : null };
    });

  it("takes every page", async () => {
    const h = await readHistory(server({ events: 8 }));
    expect(h.events.map((e) => e.sequence)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(h.complete).toBe(true);
  });
  it("reads on after the last event alone", async () => {
    const n = { events: 8 };
    const fetch = server(n);
    const before = await readHistory(fetch);
    fetch.mockClear();
    n.events = 10;
    const after = await readHistory(fetch, before);
    expect(fetch.mock.calls.map(([from]) => from)).toEqual([{ after: 8 }]);
    expect(after.events.map((e) => e.sequence)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    n.events = 15;
    expect((await readHistory(fetch, after)).events.map((e) => e.sequence)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    expect(fetch.mock.calls.slice(1).map(([from]) => from)).toEqual([{ after: 10 }, { next_page_token: "13" }]);
  });
  it("hands on the first page of a long history before it reads the others, and no other", async () => {
    const fetch = server({ events: 8 });
    const early = vi.fn(() => expect(fetch).toHaveBeenCalledTimes(1));
    const h = await readHistory(fetch, undefined, early);
    expect(early.mock.calls).toEqual([[{ pages: h.pages.slice(0, 1), events: h.events.slice(0, 3), complete: false }]]);
    await readHistory(fetch, h, early);
    await readHistory(server({ events: 2 }), undefined, early);
    expect(early).toHaveBeenCalledTimes(1);
  });
  it("gives the very same value when nothing is new", async () => {
    const fetch = server({ events: 4 });
    const before = await readHistory(fetch);
    expect(await readHistory(fetch, before)).toBe(before);
  });
  it("stops somewhere, and says that there is more", async () => {
    const h = await readHistory(server({ events: 3 * pageLimit + 5 }));
    expect(h.events).toHaveLength(3 * pageLimit);
    expect(h.complete).toBe(false);
    const again = await readHistory(server({ events: 3 * pageLimit + 5 }), h);
    expect(again.events).toHaveLength(3 * pageLimit);
    expect(again.complete).toBe(false);
  });
});
