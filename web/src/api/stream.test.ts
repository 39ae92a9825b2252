import { QueryClient } from "@tanstack/react-query";
import { afterEach, expect, it, vi } from "vitest";
import type { History } from "./client";
import { keys } from "./queries";
import { append, follow, isFollowed, Messages, type Following } from "./stream";

afterEach(() => vi.unstubAllGlobals());

const event = (sequence: number) => ({ sequence, event_type: "TimerFired", recorded_at: null, timestamp: null, payload: {} });
const history = (...seqs: number[]): History => ({ events: seqs.map(event), pages: [{ token: null, events: seqs.map(event), next: null }], complete: true });
const numbers = (h: History | undefined) => h?.events.map((e) => e.sequence);

it("cuts messages out of pieces of any size, and leaves comments out", () => {
  const text = 'retry: 1000\n\nid: 1\ndata: {"a":1}\n\n: still here\n\nevent: end\ndata: x\ndata: y\n\nid: 2\ndata: cut';
  const want = [{ event: "message", data: '{"a":1}' }, { event: "end", data: "x\ny" }];
  for (const size of [1, 3, 1000]) {
    const messages = new Messages();
    const got = (text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? []).flatMap((piece) => messages.take(piece));
    expect(got).toEqual(want);
  }
});

it("accepts only the next events", () => {
  const before = history(1, 2);
  expect(numbers(append(before, [event(2), event(3), event(4)]))).toEqual([1, 2, 3, 4]);
  expect(append(before, [event(3)]).pages[0]?.events.length).toBe(3);
  expect(append(before, [event(4)])).toBe(before);
});

it("adds what is sent, opens a stream that broke from where it was, and stops at the end", async () => {
  const client = new QueryClient();
  client.setQueryData(keys.history("r"), history(1));
  const asked: string[] = [];
  const bodies = ['id: 2\ndata: {"sequence":2,"event_type":"TimerFired","payload":{}}\n\n', null, 'data: {"sequence":3,"event_type":"TimerFired","payload":{}}\n\nevent: end\ndata: {}\n\n'];
  vi.stubGlobal("fetch", async (url: string) => {
    asked.push(url);
    const body = bodies.shift();
    if (!body) return new Response("{}", { status: 503 });
    const stream = new ReadableStream({
      pull(c) {
        c.enqueue(new TextEncoder().encode(body));
        c.close();
      },
    });
    return new Response(stream, { headers: { "Content-Type": "text/event-stream" } });
  });
  const states: Following[] = [];
  await follow({ client, run: { namespace: "blue", workflow_id: "w/1", run_id: "r" }, set: (s) => states.push(s), signal: new AbortController().signal }, 1);
  expect(numbers(client.getQueryData<History>(keys.history("r")))).toEqual([1, 2, 3]);
  expect(asked).toEqual([1, 2, 2].map((n) => `/api/workflows/w%2F1/runs/r/history/stream?after=${n}&values=preview`));
  expect(states).toEqual(["live", "reading", "reading", "live", "off"]);
  expect(isFollowed("r")).toBe(false);
});
