import { Link } from "@tanstack/react-router";
import { useRef, type ReactNode } from "react";
import type { RunView } from "../api/types";
import { dismiss, useDismissed } from "../lib/prefs";
import { isOpen } from "../lib/status";

/** What to try with each open sample run of "sojourn dev", by workflow type (examples/look). */
const steps: Record<string, ReactNode> = {
  "sample.approval": "waits for an approval: open it and select “Send approve”.",
  "sample.retry": "retries a failing activity: open it to see the error and the time of the next attempt.",
  "sample.session": "runs its activities on one worker in a session: send it the signal “note” with a text and see the session on its timeline.",
};

/** The open sample runs of "sojourn dev", with something to try for each. */
export function Samples({ rows }: { rows: RunView[] }) {
  const dismissed = useDismissed("samples");
  const seen = useRef(new Set<string>()); // runs that closed while the page is open keep their row, so that the list below does not move
  for (const r of rows) if (isOpen(r) && steps[r.workflow_type]) seen.current.add(r.run_id);
  const standing = rows.filter((r) => seen.current.has(r.run_id)).reverse();
  if (dismissed || standing.length === 0) return null;
  return (
    <section aria-label="Sample workflows" className="card mb-4 border-l-3 border-l-accent p-4" data-samples>
      <div className="flex items-start justify-between gap-3">
        <h2 className="font-semibold">Sample workflows</h2>
        <button type="button" className="btn h-7 px-2.5 text-[13px]" onClick={() => dismiss("samples")}>
          Hide
        </button>
      </div>
      <ul className="mt-1 grid gap-1 text-soft">
        {standing.map((r) => (
          <li key={r.run_id}>
            <Link to="/runs/$runId" params={{ runId: r.run_id }} className="font-medium text-ink underline underline-offset-3">
              {r.workflow_id}
            </Link>{" "}
            {isOpen(r) ? steps[r.workflow_type] : "has closed."}
          </li>
        ))}
        <li>
          Start another workflow: <b className="font-medium text-ink">Start workflow</b>, workflow type <code className="font-mono text-[13px]">tour.greeting</code>, input{" "}
          <code className="font-mono text-[13px]">["Ada"]</code>. To write your own workflows, see <code className="font-mono text-[13px]">docs/guide/getting-started.md</code>.
        </li>
      </ul>
    </section>
  );
}
