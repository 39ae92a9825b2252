import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { io, type Socket } from "socket.io-client";
import type { History } from "./client";
import { keys } from "./queries";
import { isFollowed } from "./stream";
import type { Hint } from "./types";

export type LiveState = "connecting" | "live" | "reconnecting";

/** How long hints gather before what they name is fetched again, so that a burst costs one request. */
export const gatherMs = 250;
/** How often pages are fetched again while there is no connection. */
export const fallbackMs = 5000;

/** The query keys a hint makes stale. A hint is only a hint: it may come twice, late or never. */
export function staleKeys(hint: Hint): (readonly unknown[])[] {
  const { id, namespace } = hint;
  const within = (key: readonly unknown[]) => (namespace ? [...key, namespace] : key);
  switch (hint.kind) {
    case "run": {
      if (!id) return [["run"], within(keys.runs), within(keys.overview), within(["runs-of"])];
      const of = hint.workflow_id ? [namespace ? keys.runsOf(namespace, hint.workflow_id) : ["runs-of"]] : [];
      return [keys.run(id), within(keys.runs), within(keys.overview), ...of];
    }
    case "session":
      return [id && namespace ? keys.session({ namespace, session_id: id }) : ["session"], within(keys.sessions), within(keys.overview)];
    case "worker":
      return [within(keys.workers), within(keys.overview)];
    default:
      return []; // a newer app may hint at what this page does not show
  }
}

/** Collects hints and invalidates what they name, each key once a gathering. */
export class Gatherer {
  private stale = new Map<string, readonly unknown[]>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly client: QueryClient,
    private readonly wait = gatherMs,
  ) {}

  take(hint: Hint): void {
    if (!hint || typeof hint !== "object") return;
    for (const key of staleKeys(hint)) {
      // When the history is known that far, what moved leaves no event, like a lease: the view is stale, the history is not.
      const exact = key[0] === "run" && this.known(hint) ? [...key, "view"] : key;
      this.stale.set(JSON.stringify(exact), exact);
    }
    if (this.stale.size > 0) this.timer ??= setTimeout(() => this.flush(), this.wait);
  }

  private known(hint: Hint): boolean {
    if (!hint.id || hint.last_seq === undefined) return false;
    if (isFollowed(hint.id)) return true; // its events come by themselves
    const last = this.client.getQueryData<History>(keys.history(hint.id))?.events.at(-1)?.sequence ?? 0;
    return hint.last_seq <= last;
  }

  flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const stale = [...this.stale.values()];
    this.stale.clear();
    for (const queryKey of stale) void this.client.invalidateQueries({ queryKey });
  }
}

/** Whether a query has to be read again while no hints come: who somebody is does not change, and a followed history comes by itself. */
const needsReading = ({ queryKey: [kind, id, part] }: { queryKey: readonly unknown[] }): boolean =>
  kind !== "me" && !(kind === "run" && part === "history" && isFollowed(String(id)));

/** The connection of one page: it gathers hints, says how it stands, and while it does not, has everything read again now and then. */
export class Live {
  private socket: Socket | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private refusals = 0;
  private listeners = new Set<() => void>();
  state: LiveState = "connecting";

  constructor(private readonly fallback = fallbackMs) {}

  /** Connects to the app at origin, by default the page's own; gives the way to stop. */
  start(client: QueryClient, origin = ""): () => void {
    const gatherer = new Gatherer(client);
    const socket = io(`${origin}/dashboard`, {
      path: "/api/socket.io",
      transports: ["websocket", "polling"],
      withCredentials: true,
      reconnectionDelay: 500,
      reconnectionDelayMax: 8000,
    });
    this.socket = socket;
    let before = false;
    socket.on("connect", () => {
      this.refusals = 0;
      this.set("live");
      // What changed while nobody listened is unknown, so everything shown is fetched once.
      if (before) void client.invalidateQueries();
      before = true;
    });
    socket.on("disconnect", () => {
      this.set("reconnecting");
      this.again();
    });
    socket.on("connect_error", () => {
      this.set(before ? "reconnecting" : "connecting");
      this.again();
    });
    socket.on("hint", (hint: Hint) => gatherer.take(hint));
    const poll = setInterval(() => {
      if (this.state !== "live" && !document.hidden) void client.invalidateQueries({ predicate: needsReading });
    }, this.fallback);
    return () => {
      clearInterval(poll);
      clearTimeout(this.retry);
      socket.close();
      this.socket = undefined;
      this.set("connecting");
    };
  }

  /** The library retries lost transports by itself, but not a refusal or a goodbye of the server: those are ours. */
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
