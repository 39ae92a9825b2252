import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { SessionKey } from "../api/client";
import { sessionAttemptsQuery } from "../api/queries";
import type { SessionAttempt } from "../api/types";
import { useNow } from "../lib/clock";
import { words } from "../lib/status";
import { duration, parseTime } from "../lib/time";
import { Status } from "../ui/Status";
import { When } from "../ui/When";

interface Props {
  session: SessionKey;
  epoch: number;
}

/** The attempts that ran under one epoch of a session, loaded on a click. */
export function Ran({ session, epoch }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" aria-expanded={open} data-ran={epoch} className="quiet -ml-1 rounded px-1 text-[13px] text-accent" onClick={() => setOpen(!open)}>
        {open ? "Hide attempts" : "Show attempts"}
      </button>
      {open && <List session={session} epoch={epoch} />}
    </>
  );
}

function List({ session, epoch }: Props) {
  const ran = useInfiniteQuery(sessionAttemptsQuery(session, epoch));
  if (ran.isPending) return <p className="mt-1 text-[13px] text-faint">Loading…</p>;
  if (!ran.data) {
    return (
      <p role="alert" className="mt-1 text-[13px] text-bad">
        {ran.error?.message}
      </p>
    );
  }
  const all = ran.data.pages.flatMap((p) => p.attempts ?? []);
  if (all.length === 0) return <p className="mt-1 text-[13px] text-faint">No attempts recorded, or they have expired.</p>;
  return (
    <div className="mt-1.5 rounded-lg border border-line">
      <ul aria-label="Attempts" className="divide-y divide-line">
        {all.map((a) => (
          <Attempt key={a.activity_attempt_id} attempt={a} />
        ))}
      </ul>
      {ran.hasNextPage && (
        <button type="button" className="quiet w-full border-t border-line py-1.5 text-[13px] text-accent" disabled={ran.isFetching} onClick={() => void ran.fetchNextPage()}>
          Show earlier attempts
        </button>
      )}
    </div>
  );
}

function Attempt({ attempt: a }: { attempt: SessionAttempt }) {
  const running = a.outcome === "running";
  const now = useNow(running);
  const from = parseTime(a.started_at);
  const to = running ? now : parseTime(a.ended_at);
  return (
    <li data-attempt={a.activity_attempt_id} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-3 py-2 text-[13px]">
      <Status status={a.outcome} />
      <span className="min-w-0 flex-1 basis-40">
        <span className="font-medium">{a.activity_type}</span>
        {a.attempt_number && a.attempt_number > 1 ? <span className="text-faint"> attempt {a.attempt_number}</span> : null}
        <span className="text-soft"> of </span>
        <Link to="/runs/$runId" params={{ runId: a.run_id }} className="quiet font-mono text-xs break-all">
          {a.workflow_id}
        </Link>
        {a.why && <span className="block break-words text-soft">{words(a.why)}</span>}
      </span>
      <span className="flex items-center gap-x-3 text-soft">
        {from !== null && to !== null && <span className="whitespace-nowrap">{duration(Math.max(0, to - from))}</span>}
        <When value={a.started_at ?? a.ended_at} />
      </span>
    </li>
  );
}
