import { place } from "../lib/stack";
import { CopyButton } from "./Copy";

/** File and line of a failure; the stack trace opens on a click. */
export function Stack({ stack, of = "" }: { stack: string; of?: string }) {
  const at = place(stack);
  return (
    <details className="mt-2" data-stack>
      <summary className="text-[13px] text-soft">
        {of ? `${of} failed` : "Failed"} at {at ? <code className="font-mono text-ink">{at}</code> : "the position below"}
      </summary>
      <div className="relative mt-2">
        <pre tabIndex={0} aria-label={`Stack trace${of && ` of ${of}`}`} className="max-h-96 overflow-auto rounded-lg bg-sunken p-3 pr-10 font-mono text-[12.5px] leading-5 whitespace-pre">
          {stack}
        </pre>
        <span className="absolute top-1.5 right-2 rounded-md bg-sunken">
          <CopyButton text={stack} what="stack trace" />
        </span>
      </div>
    </details>
  );
}
