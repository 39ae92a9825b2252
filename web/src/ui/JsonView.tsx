import { useMemo } from "react";
import type { Json } from "../api/types";
import { bytes, pieces, print, type Piece } from "../lib/format";
import { CopyButton } from "./Copy";

const looks: Record<Piece["kind"], string> = {
  key: "text-accent",
  string: "text-good",
  number: "text-run",
  word: "text-stay",
  plain: "text-soft",
};

const most = 40_000; // characters that are shown; the copy has all

/** A value as printed JSON. */
export function JsonView({ value, what, tall = false }: { value: Json | undefined; what: string; tall?: boolean }) {
  const text = useMemo(() => (value === undefined ? "" : print(value)), [value]);
  const parts = useMemo(() => pieces(text.slice(0, most)), [text]);
  return (
    <div className="relative">
      <pre
        tabIndex={0}
        aria-label={what}
        className={`overflow-auto rounded-lg bg-sunken p-3 pr-10 font-mono text-[12.5px] leading-5 ${tall ? "max-h-[32rem]" : "max-h-64"}`}
      >
        {parts.map((p, i) => (
          <span key={i} className={looks[p.kind]}>
            {p.text}
          </span>
        ))}
        {text.length > most && <span className="text-faint">{`\n… ${bytes(text.length - most)} more, in the copy`}</span>}
      </pre>
      <span className="absolute top-1.5 right-2">
        <CopyButton text={text} what={what} />
      </span>
    </div>
  );
}
