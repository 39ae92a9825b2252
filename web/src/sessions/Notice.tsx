import type { ReactNode } from "react";
import type { SessionView } from "../api/types";
import { words } from "../lib/status";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";
import { reason } from "./ownership";
import { isOver } from "./verbs";

/** The state that needs attention first: a migration, a reservation, why the last ownership ended, why activities wait. */
export function Notice({ session: s }: { session: SessionView }) {
  const bad = s.status === "failed" || s.status === "orphaned";
  const why = s.ended_reason ? reason(s.ended_reason) : s.failure_reason ? words(s.failure_reason) : "";
  const lines: [text: ReactNode, look: string][] = [];
  if (s.successor) lines.push([<Successor key="successor" session={s} />, "border-l-idle"]);
  else if (s.moving) lines.push([`Being migrated by ${s.moving}: running activities can finish; queued activities wait for the new owner.`, "border-l-idle"]);
  if (s.kept_for) lines.push([`Reserved for worker ${s.kept_for} for a short time.`, "border-l-idle"]);
  if (why) lines.push([capitalized(isOver(s) ? `${words(s.status)}: ${why}` : why), bad ? "border-l-bad" : "border-l-idle"]);
  const waits = s.wait && !s.moving && !s.kept_for ? s.wait : undefined; // those notices replace it
  if (waits) lines.push([<WaitText key="wait" wait={waits} />, waits.needs_attention ? "border-l-warn" : "border-l-idle"]);
  if (lines.length === 0) return null;
  const look = ["border-l-bad", "border-l-warn", "border-l-idle"].find((l) => lines.some((x) => x[1] === l));
  return (
    <div className={`card mt-3 grid gap-1 border-l-3 px-4 py-3 ${look}`}>
      {lines.map(([text, of], i) => (
        <p key={i} className={`min-w-0 break-words ${of === "border-l-bad" ? "font-medium text-bad" : ""}`}>
          {text}
        </p>
      ))}
    </div>
  );
}

/** The hand-over to a worker that sets the session up before its owner stops. */
function Successor({ session: s }: { session: SessionView }) {
  const next = s.successor;
  if (!next) return null;
  if (next.prepared_at) {
    return (
      <>
        Being handed over to {next.worker_id}, which completed its set-up <When value={next.prepared_at} />:{" "}
        {s.active_activity_count > 0 ? `activities of the owner that still run: ${s.active_activity_count}.` : "it acquires the session next."}
      </>
    );
  }
  return (
    <>
      Being handed over to {next.worker_id}, which runs the set-up{next.started_at && <> since <When value={next.started_at} /></>}:{" "}
      {next.why === "rebalanced"
        ? "it holds fewer sessions than the owner, which still receives the session's activities."
        : "the draining owner still receives the session's activities."}
    </>
  );
}

const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
