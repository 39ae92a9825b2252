import { Link } from "@tanstack/react-router";
import { useRef, type ReactNode } from "react";
import type { RunView } from "../api/types";
import { dismiss, useDismissed } from "../lib/prefs";
import { isOpen } from "../lib/status";

/** What can be done with each of the runs that "sojourn dev" leaves standing, by their type (examples/look). */
const steps: Record<string, ReactNode> = {
  "sample.approval": "waits for a person: open it and press “Send approve”; it goes on at once.",
  "sample.retry": "has a step that fails: open it to see the error, and when the step is tried again.",
  "sample.session": "keeps a session with one worker: send it the signal “note” with a text, and look at who holds what.",
};

/** What to do next, where the samples of "sojourn dev" are what there is to see. */
export function Samples({ rows }: { rows: RunView[] }) {
  const dismissed = useDismissed("samples");
  const seen = useRef(new Set<string>()); // what was open in this visit keeps its line, so that nothing below it moves
  for (const r of rows) if (isOpen(r) && steps[r.workflow_type]) seen.current.add(r.run_id);
  const standing = rows.filter((r) => seen.current.has(r.run_id)).reverse();
  if (dismissed || standing.length === 0) return null;
  return (
    <section aria-label="What to do next" className="card mb-4 border-l-3 border-l-accent p-4" data-samples>
      <div className="flex items-start justify-between gap-3">
        <h2 className="font-semibold">What to do next</h2>
        <button type="button" className="btn h-7 px-2.5 text-[13px]" onClick={() => dismiss("samples")}>
          Hide this
        </button>
      </div>
      <ul className="mt-1 grid gap-1 text-soft">
        {standing.map((r) => (
          <li key={r.run_id}>
            <Link to="/runs/$runId" params={{ runId: r.run_id }} className="font-medium text-ink underline underline-offset-3">
              {r.workflow_id}
            </Link>{" "}
            {isOpen(r) ? steps[r.workflow_type] : "is done."}
          </li>
        ))}
        <li>
          A run of your own: <b className="font-medium text-ink">Start a run</b>, type <code className="font-mono text-[13px]">tour.greeting</code>, arguments{" "}
          <code className="font-mono text-[13px]">["Ada"]</code>. Code of your own is in <code className="font-mono text-[13px]">docs/guide/getting-started.md</code>.
        </li>
      </ul>
    </section>
  );
}
