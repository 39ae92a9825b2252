import { useSyncExternalStore } from "react";
import type { Zone } from "./time";

// The user's preferences, stored in the browser.

export type Theme = "light" | "dark" | "system";

function read(name: string): string | null {
  try {
    return localStorage.getItem(`sojourn.${name}`);
  } catch {
    return null;
  }
}

function write(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`sojourn.${name}`);
    else localStorage.setItem(`sojourn.${name}`, value);
  } catch {
    // Without storage a preference lasts until the page is closed.
  }
}

const listeners = new Set<() => void>();
const subscribe = (fn: () => void) => {
  listeners.add(fn);
  return () => listeners.delete(fn);
};
const tell = () => listeners.forEach((fn) => fn());

let zone: Zone = read("zone") === "utc" ? "utc" : "local";
const chosen = read("theme");
let theme: Theme = chosen === "dark" || chosen === "light" ? chosen : "system";

const system = typeof matchMedia === "function" ? matchMedia("(prefers-color-scheme: dark)") : undefined;
system?.addEventListener?.("change", apply);

function apply(): void {
  const dark = theme === "dark" || (theme === "system" && system?.matches === true);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  tell();
}

export function setZone(to: Zone): void {
  zone = to;
  write("zone", to);
  tell();
}

export function toggleZone(): void {
  setZone(zone === "utc" ? "local" : "utc");
}

export function setTheme(to: Theme): void {
  theme = to;
  write("theme", to === "system" ? null : to);
  apply();
}

const dismissed = new Set((read("dismissed") ?? "").split(",").filter(Boolean));

/** Dismisses a hint to the user permanently. */
export function dismiss(name: string): void {
  dismissed.add(name);
  write("dismissed", [...dismissed].join(","));
  tell();
}

export const useDismissed = (name: string): boolean => useSyncExternalStore(subscribe, () => dismissed.has(name));
export const useZone = (): Zone => useSyncExternalStore(subscribe, () => zone);
export const useTheme = (): Theme => useSyncExternalStore(subscribe, () => theme);
