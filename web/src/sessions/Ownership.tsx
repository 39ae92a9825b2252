import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { SessionKey } from "../api/client";
import type { SessionChange, SessionEvent, SessionView } from "../api/types";
import { useNow } from "../lib/clock";
import { useZone } from "../lib/prefs";
import type { Tone } from "../lib/status";
import { absolute, clockTime, duration, parseTime } from "../lib/time";
import { Empty } from "../ui/Page";
import { Older } from "../ui/Older";
import { Tip } from "../ui/Tip";
import { When } from "../ui/When";
import { Ran } from "./Ran";
import { identity, useTimeline } from "./past";
import { change, facts, handsOver, holds, ordinals, reason, runOf, type Hold } from "./ownership";

const shownFirst = 100; // entries; each "older" shows as many more

/** The owners of a session over time, why each ownership ended, and the attempts that ran. */
export function Ownership({ session }: { session: SessionView }) {
  const { timeline, more, pending, error, older } = useTimeline(session);
  const [most, setMost] = useState(shownFirst);
  if (timeline.length === 0) {
    return <Empty title="No owner yet">The worker that runs the first activity becomes the owner.</Empty>;
  }
  const all = holds(timeline);
  const numbers = ordinals(timeline, session.claims);
  const newest = timeline.slice(-most).reverse();
  const further = () => {
    setMost(most + shownFirst);
    if (most + shownFirst > timeline.length) older();
  };
  return (
    <>
      <div className="card overflow-hidden">
        {all.length > 0 && <HoldBar timeline={timeline} all={all} numbers={numbers} />}
        <ol aria-label="Ownership events">
          {newest.map((e, i) => (
            <Entry key={identity(e)} session={session} event={e} all={all} numbers={numbers} last={i === newest.length - 1} />
          ))}
        </ol>
      </div>
      {(more || newest.length < timeline.length) && <Older shown={newest.length} what="entries" pending={pending} error={error} onClick={further} />}
    </>
  );
}

/** The owners of the session on one line. Each worker has one colour. */
function HoldBar({ timeline, all, numbers }: { timeline: SessionEvent[]; all: Hold[]; numbers: Map<number, number> }) {
  const now = useNow(all.some((h) => h.to === null));
  const zone = useZone();
  const times = timeline.map((e) => parseTime(e.at)).filter((t) => t !== null);
  const from = Math.min(...times);
  const to = Math.max(from + 1, ...times, ...all.map((h) => h.to ?? now));
  const workers = [...new Set(all.map((h) => h.worker))];
  const at = (t: number) => ((t - from) / (to - from)) * 100;
  return (
    <div className="border-b border-line px-4 pt-4 pb-3">
      <div className="relative h-8 rounded-md bg-sunken">
        {all.map((h) => (
          <Tip
            key={h.from}
            content={<HoldTip hold={h} now={now} number={numbers.get(h.epoch)} />}
            className={`absolute inset-y-0 overflow-hidden rounded-md border text-xs font-medium ${holdLooks[workers.indexOf(h.worker) % holdLooks.length]}`}
            style={{ left: `min(${at(h.from)}%, calc(100% - 6px))`, width: `max(6px, ${at(h.to ?? now) - at(h.from)}%)` }}
          >
            <span className="flex h-full items-center px-2 whitespace-nowrap">{h.worker}</span>
          </Tip>
        ))}
      </div>
      <div className="mt-1.5 flex justify-between text-xs text-faint">
        <span>{absolute(from, zone)}</span>
        <span>{all.some((h) => h.to === null) ? "now" : absolute(to, zone)}</span>
      </div>
    </div>
  );
}

const holdLooks = ["bg-stay-soft border-stay/40 text-stay", "bg-accent-soft border-accent/40 text-accent", "bg-run-soft border-run/40 text-run", "bg-good-soft border-good/40 text-good"];

function HoldTip({ hold: h, now, number }: { hold: Hold; now: number; number: number | undefined }) {
  const zone = useZone();
  return (
    <div className="grid gap-0.5">
      <b className="font-medium">{h.worker}</b>
      <span className="text-soft">
        {clockTime(h.from, zone)} – {h.to === null ? "now" : clockTime(h.to, zone)} · {duration((h.to ?? now) - h.from)}
      </span>
      {number && <span className="text-xs text-faint">epoch {number}</span>}
      {h.ended && (
        <span className="text-soft">
          {change(h.ended)}
          {h.why && `: ${reason(h.why)}`}
        </span>
      )}
    </div>
  );
}

// A new kind of change does not compile here until it has a tone.
const looks: Record<SessionChange, Tone> = {
  started: "run",
  borrowed: "run",
  returned: "idle",
  claimed: "stay",
  reclaimed: "stay",
  resumed: "stay",
  renewed: "stay",
  set_up: "stay",
  set_up_failed: "bad",
  preparing: "run",
  prepared: "good",
  preparation_ended: "idle",
  snapshot_requested: "run",
  snapshot_stored: "good",
  snapshot_lost: "bad",
  draining: "idle",
  released: "idle",
  expired: "idle",
  idle_unpinned: "idle",
  orphaned: "idle",
  failed: "bad",
  closed: "idle",
  unpinned: "idle",
  cleaned_up: "idle",
};
const dots = { run: "bg-run", good: "bg-good", bad: "bg-bad", warn: "bg-warn", idle: "bg-line-strong", stay: "bg-stay" };

/** Events that end an ownership; their worker is shown with "from". */
const takes = new Set<SessionChange>(["released", "expired", "idle_unpinned", "orphaned", "failed", "draining", "closed"]);

/** Events of a pool's member in which a run acts and the worker is the owner. */
const loans = new Set<SessionChange>(["borrowed", "returned"]);

function Entry({ session, event: e, all, numbers, last }: { session: SessionKey; event: SessionEvent; all: Hold[]; numbers: Map<number, number>; last: boolean }) {
  const claim = e.what === "claimed" || e.what === "reclaimed";
  const look = looks[e.what] ?? "idle"; // an app of a later release may write others
  const run = runOf(e.task_id);
  const more = facts(e, all);
  return (
    <li className="relative px-4 py-2.5" data-owner-event={e.what}>
      {!last && <span className="absolute top-6 bottom-[-0.65rem] left-[1.21rem] w-px bg-line" aria-hidden />}
      <div className="flex gap-4">
        <span className={`mt-1.5 size-2 shrink-0 rounded-full ${dots[look]}`} aria-hidden />
        <div className="min-w-0 flex-1">
          <p className="break-words">
            <span className="font-medium">{change(e.what)}</span>
            {e.worker_id && (
              <span className="text-soft">
                {handsOver(e.what) || loans.has(e.what) ? " at " : takes.has(e.what) ? " from " : " by "}
                {e.worker_id}
              </span>
            )}
            {e.by && e.by !== e.worker_id && <span className="text-soft"> by {e.by}</span>}
            {e.why && <span className="text-soft">: {reason(e.why)}</span>}
          </p>
          {more.length > 0 && <p className="text-[13px] text-soft">{more.join(" · ")}</p>}
          <p className="flex flex-wrap gap-x-4 font-mono text-xs break-all text-faint">
            {e.epoch && numbers.has(e.epoch) ? <span title={String(e.epoch)}>epoch {numbers.get(e.epoch)}</span> : null}
            {e.release && <span>release {e.release}</span>}
            {e.task_id &&
              (run ? (
                <Link to="/runs/$runId" params={{ runId: run }} className="quiet">
                  {e.task_id}
                </Link>
              ) : (
                <span>{e.task_id}</span>
              ))}
          </p>
        </div>
        <span className="shrink-0 text-right text-soft">
          <When value={e.at} form="both" />
        </span>
      </div>
      {claim && e.epoch ? (
        <div className="pl-6">
          <Ran session={session} epoch={e.epoch} />
        </div>
      ) : null}
    </li>
  );
}
