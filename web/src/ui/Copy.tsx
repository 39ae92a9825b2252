import { useEffect, useState } from "react";
import { shorten } from "../lib/format";
import { Icon } from "./Icon";

/** A button that copies text and confirms it for a moment. */
export function CopyButton({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const t = setTimeout(() => setDone(false), 1400);
    return () => clearTimeout(t);
  }, [done]);
  const copy = () => {
    // Without a secure origin there is no clipboard, and the text has to be selected by hand.
    navigator.clipboard?.writeText(text).then(
      () => setDone(true),
      () => setDone(false),
    );
  };
  return (
    <button
      type="button"
      onClick={copy}
      aria-label={done ? `${what} copied` : `Copy ${what}`}
      title={done ? "Copied" : `Copy ${what}`}
      className="inline-grid size-6 shrink-0 place-items-center rounded-md text-faint hover:bg-sunken hover:text-ink"
    >
      <Icon name={done ? "check" : "copy"} size={14} />
    </button>
  );
}

/** An identifier, whole in the title and on the clipboard, perhaps shortened on the page. */
export function Id({ id, what, most }: { id: string; what: string; most?: number }) {
  return (
    <span className="inline-flex max-w-full min-w-0 items-center gap-1">
      <code className="truncate font-mono text-[13px]" title={id}>
        {most ? shorten(id, most) : id}
      </code>
      <CopyButton text={id} what={what} />
    </span>
  );
}
