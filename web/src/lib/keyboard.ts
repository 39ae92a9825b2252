// Keyboard shortcuts, independent of the page.

export type Action = "search" | "next" | "previous" | "help" | "zone" | "namespace" | "runs" | "workers" | "sessions" | "queues" | "schedules" | "namespaces" | "leave";

const single: Record<string, Action> = { "/": "search", j: "next", k: "previous", "?": "help", u: "zone", n: "namespace", Escape: "leave" };
const afterG: Record<string, Action> = { r: "runs", w: "workers", s: "sessions", q: "queues", c: "schedules", n: "namespaces" };

/** Converts key presses to actions. The second key of a shortcut must follow "g" within 1.5 s. */
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

/** Whether this element accepts typed text, so that keys are not shortcuts. */
export function typing(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Moves the focus to the next or previous element with data-nav. */
export function step(by: 1 | -1): void {
  const all = [...document.querySelectorAll<HTMLElement>("[data-nav]")].filter((e) => e.offsetParent !== null || e === document.activeElement);
  if (all.length === 0) return;
  const at = all.indexOf(document.activeElement as HTMLElement);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next]?.focus();
  all[next]?.scrollIntoView?.({ block: "nearest" });
}

/** The shortcuts with their descriptions, for the help dialog. */
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
