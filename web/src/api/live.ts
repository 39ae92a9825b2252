import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { io, type Socket } from "socket.io-client";
import type { History } from "./client";
import { basePath } from "../lib/base";
import { keys } from "./queries";
import { probe } from "./request";
import { beingRead, roundsOf, topicsOf, wanted } from "./rounds";
import { isFollowed } from "./stream";
import type { Hint, RunView } from "./types";

export type LiveState = "connecting" | "live" | "reconnecting";

/** Poll interval in milliseconds while the socket is disconnected. */
export const fallbackMs = 5000;

/** The keys of the queries that a hint makes stale. A hint may be delivered twice, late or never. */
export function staleKeys(hint: Hint): (readonly unknown[])[] {
  const { id, namespace } = hint;
  const within = (key: readonly unknown[]) => (namespace ? [...key, namespace] : key);
  switch (hint.kind) {
    case "run": {
      if (!id) return [...(namespace ? [] : [["run"]]), within(keys.runs), within(keys.counts), within(keys.overview), ...(namespace ? [] : [["runs-of"]])];
      return [keys.run(id), ...(hint.workflow_id ? [namespace ? keys.runsOf(namespace, hint.workflow_id) : ["runs-of"]] : [])];
    }
    case "session":
      return id && namespace ? [keys.session({ namespace, session_id: id })] : [...(namespace ? [] : [["session"]]), within(keys.sessions), within(keys.overview)];
    case "worker":
      return [within(keys.workers), within(keys.overview)];
    default:
      return []; // a kind of a newer app, which this page does not show
  }
}

/** Whether a hint invalidates a query. Histories that are already loaded up to the hint or streamed are not reloaded. */
export function staleOn(client: QueryClient, hint: Hint): (readonly unknown[])[] {
  if (!hint || typeof hint !== "object") return [];
  return staleKeys(hint).map((key) => (key[0] === "run" && known(client, hint) ? [...key, "view"] : key));
}

function known(client: QueryClient, hint: Hint): boolean {
  if (!hint.id || hint.last_seq === undefined) return false;
  if (isFollowed(hint.id)) return true; // its events are streamed
  const last = client.getQueryData<History>(keys.history(hint.id))?.events.at(-1)?.sequence ?? 0;
  return hint.last_seq <= last;
}

/** Whether a query is polled while there is no connection. Immutable data and streamed histories are not. */
const needsReading =
  (client: QueryClient) =>
  ({ queryKey, state }: { queryKey: readonly unknown[]; state: { data: unknown; error: unknown } }): boolean => {
    const [kind, id, part] = queryKey;
    if (kind === "run" && part === "history" && isFollowed(String(id))) return false;
    if (state.error && state.data === undefined) return kind !== "me";
    const view = (run: string) => client.getQueriesData<RunView>({ queryKey: ["run", run, "view"] }).find(([, r]) => r)?.[1];
    return topicsOf(queryKey, view).length > 0;
  };

/** The socket of a page, which receives hints. It reports its state, and polls the shown queries while it is disconnected. */
export class Live {
  private socket: Socket | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private refusals = 0;
  private listeners = new Set<() => void>();
  state: LiveState = "connecting";

  constructor(private readonly fallback = fallbackMs) {}

  /** Connects to the app at origin, by default the origin of the page. Returns a function that disconnects. */
  start(client: QueryClient, origin = ""): () => void {
    const rounds = roundsOf(client);
    const socket = io(`${origin}/dashboard`, {
      path: `${basePath}/api/socket.io`,
      transports: ["websocket", "polling"],
      withCredentials: true,
      reconnectionDelay: 500,
      reconnectionDelayMax: 8000,
    });
    this.socket = socket;
    let before = false;
    // The subscribed topics follow from the queries of the page. A hidden page subscribes to none.
    let asked = "";
    let asking: ReturnType<typeof setTimeout> | undefined;
    const ask = () => {
      asking = undefined;
      const topics = document.hidden ? [] : wanted(client);
      const now = JSON.stringify(topics);
      if (!socket.connected || now === asked) return;
      asked = now;
      socket.emit("watch", { topics });
    };
    const watch = () => (asking ??= setTimeout(ask, 0));
    const unsubscribe = client.getQueryCache().subscribe((e) => {
      if (e.type === "observerAdded" || e.type === "observerRemoved" || (e.type === "updated" && e.action.type === "success")) watch();
    });
    // A page without queries to poll, such as that of a closed run, also shows that the app is down.
    let probing = false;
    const alive = () => {
      if (probing || document.hidden || this.socket !== socket || this.state !== "reconnecting") return;
      probing = true;
      void probe().finally(() => (probing = false));
    };
    const turn = () => {
      ask();
      alive();
      if (!document.hidden) void client.invalidateQueries({ predicate: needsReading(client) });
    };
    document.addEventListener("visibilitychange", turn);
    socket.on("connect", () => {
      this.refusals = 0;
      asked = "";
      ask();
      this.set("live");
      // Changes during the disconnection are unknown, so all shown queries are reloaded once.
      if (before) void client.invalidateQueries();
      before = true;
    });
    socket.on("disconnect", () => {
      this.set("reconnecting");
      this.again();
      alive();
    });
    socket.on("connect_error", () => {
      this.set(before ? "reconnecting" : "connecting");
      this.again();
    });
    socket.on("hint", (hint: Hint) => rounds.take(staleOn(client, hint)));
    const poll = setInterval(() => {
      alive();
      if (this.state !== "live" && !document.hidden) void client.invalidateQueries({ predicate: (q) => !beingRead(q) && needsReading(client)(q) });
    }, this.fallback);
    return () => {
      clearInterval(poll);
      clearTimeout(asking);
      unsubscribe();
      document.removeEventListener("visibilitychange", turn);
      clearTimeout(this.retry);
      this.socket = undefined;
      socket.close();
      this.set("connecting");
    };
  }

  /** Reconnects after a rejected connection or a disconnect by the server, which the library does not retry. */
  private again(): void {
    clearTimeout(this.retry);
    const socket = this.socket;
    if (!socket || socket.active) return;
    const wait = Math.min(30_000, 1000 * 2 ** this.refusals++);
    this.retry = setTimeout(() => socket.connect(), wait * (0.75 + Math.random() / 2));
  }

  private set(state: LiveState): void {
    if (state === this.state) return;
    this.state = state;
    for (const fn of this.listeners) fn();
  }

  subscribe = (fn: () => void): (() => void) => {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  };
}

export const live = new Live();

export function useLive(): LiveState {
  return useSyncExternalStore(live.subscribe, () => live.state);
}
