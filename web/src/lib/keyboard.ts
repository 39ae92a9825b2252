// What a key press means, apart from the page it happens on.

export type Action = "search" | "next" | "previous" | "help" | "zone" | "namespace" | "runs" | "workers" | "sessions" | "queues" | "schedules" | "namespaces" | "leave";

const single: Record<string, Action> = { "/": "search", j: "next", k: "previous", "?": "help", u: "zone", n: "namespace", Escape: "leave" };
const afterG: Record<string, Action> = { r: "runs", w: "workers", s: "sessions", q: "queues", c: "schedules", n: "namespaces" };

/** Turns keys into actions; remembers a "g" for a second and a half. */
export class Keys {
  private gAt = -Infinity;

  press(key: string, at: number): Action | undefined {
    const within = at - this.gAt < 1500;
    this.gAt = -Infinity;
    if (within && key in afterG) return afterG[key];
    if (key === "g") {
      this.gAt = at;
      return undefined;
    }
    return single[key];
  }
}

/** Whether the keys of this element belong to what is typed into it. */
export function typing(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Moves the focus among what is marked data-nav, down the page or up. */
export function step(by: 1 | -1): void {
  const all = [...document.querySelectorAll<HTMLElement>("[data-nav]")].filter((e) => e.offsetParent !== null || e === document.activeElement);
  if (all.length === 0) return;
  const at = all.indexOf(document.activeElement as HTMLElement);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next]?.focus();
  all[next]?.scrollIntoView?.({ block: "nearest" });
}

/** The keys, for people. */
export const shortcuts: [keys: string[], what: string][] = [
  [["/"], "Search runs"],
  [["j"], "Select next row"],
  [["k"], "Select previous row"],
  [["Enter"], "Open row"],
  [["g", "r"], "Go to runs"],
  [["g", "s"], "Go to sessions"],
  [["g", "w"], "Go to workers"],
  [["g", "q"], "Go to queues"],
  [["g", "c"], "Go to schedules"],
  [["g", "n"], "Go to namespaces"],
  [["n"], "Switch namespace"],
  [["u"], "Switch between UTC and local time"],
  [["Esc"], "Leave the field or close the dialog"],
  [["?"], "Show keyboard shortcuts"],
];
