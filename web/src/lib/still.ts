import { useRef, useState, type PointerEvent } from "react";

interface Still<T> {
  rows: T[];
  fresh: number; // number of new rows, which are shown when the pointer leaves
  height: (id: string) => number | undefined; // of a row that keeps its place
  hold: { onPointerMove: (e: PointerEvent<HTMLElement>) => void; onPointerLeave: () => void };
}

/**
 * Rows that keep their places while the pointer is in the list: their content is updated, but the set of rows and their heights are not. An element
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
