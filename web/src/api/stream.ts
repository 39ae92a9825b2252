import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { History, RunKey } from "./client";
import { basePath } from "../lib/base";
import { parse } from "../lib/json";
import { keys } from "./queries";
import { roundsOf } from "./rounds";
import { useVisible } from "../lib/visible";
import type { HistoryEvent } from "./types";

/** State of the stream of a history. "reading": the stream is broken, and the page fetches the history after hints until the next try. */
export type Following = "off" | "connecting" | "live" | "reading";

/** Time in milliseconds for which events are collected before the page is rendered again. */
const gatherMs = 100;
/** The app sends a keep-alive every 15 s. A stream without any data for this time in milliseconds is considered broken. */
const silenceMs = 40_000;

const followed = new Set<string>();

/** Whether the history of a run is being streamed, so that it need not be polled. */
export const isFollowed = (runId: string): boolean => followed.has(runId);

/** One message of a stream of server-sent events. */
export interface Message {
  event: string;
  data: string;
}

/** Splits the text of a stream, which arrives in pieces of any size, into messages. */
export class Messages {
  private rest = "";

  take(text: string): Message[] {
    const parts = (this.rest + text).split("\n\n");
    this.rest = parts.pop() ?? "";
    return parts.flatMap((part) => {
      const message: Message = { event: "message", data: "" };
      for (const line of part.split("\n")) {
        const at = line.indexOf(":");
        if (at <= 0) continue; // a comment or an empty line
        const value = line.slice(at + 1).replace(/^ /, "");
        if (line.startsWith("data:")) message.data += (message.data && "\n") + value;
        if (line.startsWith("event:")) message.event = value;
      }
      return message.data ? [message] : [];
    });
  }
}

/** A history with new events appended. Events that it already has, and events after a gap, are dropped. */
export function append(before: History, fresh: HistoryEvent[]): History {
  let last = before.events.at(-1)?.sequence ?? 0;
  const next = fresh.filter((e) => e.sequence === last + 1 && ++last);
  if (next.length === 0) return before;
  const pages = before.pages.slice();
  const end = pages.at(-1) ?? { token: null, events: [], next: null };
  pages[Math.max(0, pages.length - 1)] = { ...end, events: [...end.events, ...next] };
  return { ...before, pages, events: [...before.events, ...next] };
}

interface Follow {
  client: QueryClient;
  run: RunKey;
  set: (to: Following) => void;
  signal: AbortSignal;
}

/** Reads one stream until it ends. Returns true if the run has closed, so that there will be no more events. */
async function read({ client, run, set, signal }: Follow): Promise<boolean> {
  const key = keys.history(run.run_id);
  const after = client.getQueryData<History>(key)?.events.at(-1)?.sequence ?? 0;
  const path = `/api/workflows/${encodeURIComponent(run.workflow_id)}/runs/${encodeURIComponent(run.run_id)}/history/stream`;
  const lost = new AbortController();
  const stop = AbortSignal.any([signal, lost.signal]);
  let silent = setTimeout(() => lost.abort(), silenceMs);
  let drawing: ReturnType<typeof setTimeout> | undefined;
  let gathered: HistoryEvent[] = [];
  const draw = () => {
    clearTimeout(drawing);
    drawing = undefined;
    const fresh = gathered;
    gathered = [];
    if (fresh.length === 0) return;
    client.setQueryData<History>(key, (h) => h && append(h, fresh));
    roundsOf(client).take([[...keys.run(run.run_id), "view"]]);
  };
  try {
    const res = await fetch(`${basePath}${path}?after=${after}&values=preview`, {
      headers: { Accept: "text/event-stream", "X-Namespace": run.namespace, "X-Durable-Workflow-Control-Plane-Version": "2" },
      credentials: "same-origin",
      signal: stop,
    });
    if (!res.ok || !res.body || !res.headers.get("Content-Type")?.startsWith("text/event-stream")) throw new Error(`no stream: ${res.status}`);
    followed.add(run.run_id);
    set("live");
    const messages = new Messages();
    const decoder = new TextDecoder();
    for (const reader = res.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) return false;
      clearTimeout(silent);
      silent = setTimeout(() => lost.abort(), silenceMs);
      for (const m of messages.take(decoder.decode(value, { stream: true }))) {
        if (m.event === "end") return true;
        gathered.push(parse(m.data) as unknown as HistoryEvent);
        drawing ??= setTimeout(draw, gatherMs);
      }
    }
  } finally {
    clearTimeout(silent);
    followed.delete(run.run_id);
    if (!signal.aborted) draw();
    clearTimeout(drawing);
  }
}

/** Streams a history until the run is closed. A broken stream is reopened with backoff; until then hints reload the history. */
export async function follow(f: Follow, pause = 1000): Promise<void> {
  for (let tries = 0; !f.signal.aborted; tries++) {
    const from = Date.now();
    try {
      if (await read(f)) break;
    } catch {
      // After any error the page fetches the history without a stream until the next try.
    }
    if (f.signal.aborted) return;
    if (Date.now() - from > 10_000) tries = 0;
    f.set("reading");
    void f.client.invalidateQueries({ queryKey: keys.run(f.run.run_id) });
    await new Promise<void>((resolve) => {
      const wait = setTimeout(resolve, Math.min(30_000, pause * 2 ** tries));
      f.signal.addEventListener("abort", () => (clearTimeout(wait), resolve()), { once: true });
    });
  }
  if (f.signal.aborted) return;
  f.set("off");
  await f.client.invalidateQueries({ queryKey: keys.run(f.run.run_id) });
}

/** Streams the history of an open run that is loaded to its end, while the page is visible. */
export function useStream(run: RunKey, open: boolean): Following {
  const client = useQueryClient();
  const [state, set] = useState<Following>("off");
  const visible = useVisible();
  const { namespace, workflow_id, run_id } = run;
  useEffect(() => {
    if (!open) return set("off");
    if (!visible) return set("connecting"); // resumes when the page becomes visible
    const stop = new AbortController();
    set("connecting");
    void follow({ client, run: { namespace, workflow_id, run_id }, set, signal: stop.signal });
    return () => stop.abort();
  }, [client, open, visible, namespace, workflow_id, run_id]);
  return state;
}
