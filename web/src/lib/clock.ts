import { useSyncExternalStore } from "react";
import { serverNow } from "../api/client";

// One clock for the whole page: all ages are updated together, once a second, and not while the page is hidden.

let now = serverNow();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function tick(): void {
  if (document.hidden) return;
  now = serverNow();
  listeners.forEach((fn) => fn());
}

function subscribe(fn: () => void): () => void {
  listeners.add(fn);
  if (listeners.size === 1) {
    now = serverNow();
    timer = setInterval(tick, 1000);
    document.addEventListener("visibilitychange", tick);
  }
  return () => {
    listeners.delete(fn);
    if (listeners.size > 0) return;
    clearInterval(timer);
    document.removeEventListener("visibilitychange", tick);
  };
}

const idle = () => () => {};

/** The server's time in milliseconds. With running false it is constant and causes no rendering. */
export function useNow(running = true): number {
  return useSyncExternalStore(running ? subscribe : idle, () => now);
}
