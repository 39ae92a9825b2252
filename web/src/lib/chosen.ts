import { useLayoutEffect, useRef, type RefObject } from "react";

/** Scrolls a horizontal row so that its current link is visible, whenever the current link changes. */
export function useChosenInView(chosen: unknown): RefObject<HTMLElement | null> {
  const row = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const on = row.current?.querySelector("[aria-current]");
    if (!row.current || !on) return;
    const [outer, inner] = [row.current.getBoundingClientRect(), on.getBoundingClientRect()];
    if (inner.left < outer.left || inner.right > outer.right) row.current.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
  }, [chosen]);
  return row;
}
