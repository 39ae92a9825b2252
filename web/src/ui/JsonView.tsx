import { useMemo, useState } from "react";
import type { Json } from "../api/types";
import { bytes, pieces, print, type Piece } from "../lib/format";
import { CopyButton } from "./Copy";
import { useDecoded } from "./Decoded";

export const looks: Record<Piece["kind"], string> = {
  key: "text-accent",
  string: "text-good",
  number: "text-run",
  word: "text-stay",
  plain: "text-soft",
};

const most = 40_000; // characters that are shown; the copy button copies all
const folded = 20; // lines of a large value that are shown before "Show all" is selected

/** The first lines of a text if it has many more, otherwise the whole text. */
export function fold(text: string, lines = folded): string {
  let at = -1;
  for (let n = 0; n < lines; n++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return text;
  }
  return text.length - at > 200 || text.slice(at + 1).split("\n").length > 4 ? text.slice(0, at) : text;
}

/** A value as printed JSON. */
export function JsonView({ value, what, tall = false }: { value: Json | undefined; what: string; tall?: boolean }) {
  const [open, setOpen] = useState(tall);
  const stored = useMemo(() => (value === undefined ? "" : print(value)), [value]);
  const { shown: decoded, note } = useDecoded(value, stored);
  const text = useMemo(() => (decoded === undefined ? "" : print(decoded)), [decoded]);
  const begin = useMemo(() => fold(text), [text]);
  const shown = open ? text.slice(0, most) : begin.slice(0, 4000);
  const parts = useMemo(() => pieces(shown), [shown]);
  const long = begin.length > 4000 || begin.length < text.length;
  return (
    <>
    {note}
    <div className="relative">
      <pre
        tabIndex={0}
        aria-label={what}
        className={`overflow-auto rounded-lg bg-sunken p-3 pr-10 font-mono text-[12.5px] leading-5 ${tall || open ? "max-h-[32rem]" : "max-h-[28rem]"}`}
      >
        {parts.map((p, i) => (
          <span key={i} className={looks[p.kind]}>
            {p.text}
          </span>
        ))}
        {open && text.length > most && <span className="text-faint">{`\n… ${bytes(text.length - most)} more; copy the value to see all of it`}</span>}
      </pre>
      {long && !tall && (
        <button type="button" className="quiet mt-1 text-[13px] text-soft" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Collapse" : `Show all (${bytes(text.length)})`}
        </button>
      )}
      <span className="absolute top-1.5 right-2 rounded-md bg-sunken">
        <CopyButton text={text} what={what} />
      </span>
    </div>
    </>
  );
}
