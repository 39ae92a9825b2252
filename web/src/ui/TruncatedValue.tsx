import { useState } from "react";
import type { Json, Truncated } from "../api/types";
import { bytes, pieces } from "../lib/format";
import { stringify } from "../lib/json";
import { JsonView, looks } from "./JsonView";

interface Props {
  what: string;
  cut: Truncated;
  file: string;
  load: () => Promise<Json | undefined>;
}

/** The beginning of a large value, with buttons that load the whole value or save it as a file. */
export function TruncatedValue({ what, cut, file, load }: Props) {
  const [whole, setWhole] = useState<Json>();
  const [state, setState] = useState<"idle" | "loading" | "failed">("idle");
  const [error, setError] = useState("");
  const get = async (then: (value: Json) => void) => {
    setState("loading");
    try {
      const value = whole ?? (await load());
      if (value === undefined) throw new Error("The value was not found.");
      then(value);
      setState("idle");
    } catch (err) {
      setError(err instanceof Error ? err.message : String(err));
      setState("failed");
    }
  };
  const save = (value: Json) => {
    const text = cut.encoded && typeof value === "string" ? value : stringify(value);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return (
    <div data-truncated={what}>
      {whole !== undefined ? (
        <JsonView value={whole} what={what} tall />
      ) : (
        cut.preview && (
          <pre tabIndex={0} aria-label={`beginning of ${what}`} className="max-h-48 overflow-auto rounded-lg bg-sunken p-3 font-mono text-[12.5px] leading-5 break-all whitespace-pre-wrap">
            {pieces(cut.preview).map((p, i) => (
              <span key={i} className={looks[p.kind]}>
                {p.text}
              </span>
            ))}
            <span className="text-faint">…</span>
          </pre>
        )
      )}
      <p className="mt-1.5 flex flex-wrap items-center gap-2 text-[13px] text-soft">
        <span>{whole !== undefined ? bytes(cut.size_bytes) : cut.preview ? `First ${bytes(new TextEncoder().encode(cut.preview).length)} of ${bytes(cut.size_bytes)}` : bytes(cut.size_bytes)}</span>
        {whole === undefined && (
          <button type="button" className="btn h-7 px-2.5 text-[13px]" disabled={state === "loading"} onClick={() => void get(setWhole)} aria-label={`Load all of ${what}`}>
            {state === "loading" ? "Loading" : "Load all"}
          </button>
        )}
        <button type="button" className="btn h-7 px-2.5 text-[13px]" disabled={state === "loading"} onClick={() => void get(save)} aria-label={`Download ${what}`}>
          Download
        </button>
        {state === "failed" && (
          <span role="alert" className="text-bad">
            {error}
          </span>
        )}
      </p>
    </div>
  );
}
