import { useRef, useState, type PointerEvent } from "react";

interface Still<T> {
  rows: T[];
  fresh: number; // rows that wait until the pointer leaves
  height: (id: string) => number | undefined; // of a row that is held
  hold: { onPointerMove: (e: PointerEvent<HTMLElement>) => void; onPointerLeave: () => void };
}

/**
 * Rows that stay where they are while the pointer is among them: what a row says is new, which rows there are and how high they are is not. An element
 * with data-row is a row.
 */
export function useStill<T>(now: T[], idOf: (row: T) => string): Still<T> {
  const [held, setHeld] = useState<{ rows: T[]; heights: Map<string, number> } | null>(null);
  const known = useRef(new Map<string, T>());
  if (!held) known.current = new Map();
  for (const r of now) known.current.set(idOf(r), r);
  return {
    rows: held ? held.rows.map((r) => known.current.get(idOf(r)) ?? r) : now,
    fresh: held ? now.filter((r) => !held.rows.some((h) => idOf(h) === idOf(r))).length : 0,
    height: (id) => held?.heights.get(id),
    hold: {
      onPointerMove: (e) => {
        if (held || e.pointerType !== "mouse") return;
        const rows = [...e.currentTarget.querySelectorAll<HTMLElement>("[data-row]")];
        setHeld({ rows: now, heights: new Map(rows.map((el) => [el.dataset.row ?? "", el.getBoundingClientRect().height])) });
      },
      onPointerLeave: () => setHeld(null),
    },
  };
}
