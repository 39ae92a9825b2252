import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { sessionQuery } from "../api/queries";
import type { SessionEvent, SessionView } from "../api/types";
import { useNow } from "../lib/clock";
import { useZone } from "../lib/prefs";
import { tone, words } from "../lib/status";
import { absolute, clockTime, duration, parseTime } from "../lib/time";
import { CopyButton, Id } from "../ui/Copy";
import { Empty, Fact, Failed, Section, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { Tip } from "../ui/Tip";
import { When } from "../ui/When";
import { LeaseLeft } from "./LeaseLeft";
import { holds, type Hold } from "./ownership";

export function SessionPage() {
  const { sessionId } = useParams({ from: "/sessions/$sessionId" });
  const session = useQuery(sessionQuery(sessionId));
  useTitle(`Session ${sessionId}`);
  if (session.isPending) return <Waiting rows={7} height={56} />;
  if (!session.data) return <Failed error={session.error} retry={() => void session.refetch()} what="session" />;
  return <Session session={session.data.session} />;
}

/** A reason is a sentence, or a word of the protocol like "ended_by_workflow". */
const reason = (text: string) => (/\s/.test(text) ? text : words(text));

const doors: Record<string, string> = { implicit: "an id on an activity", worker: "a worker's verb", workflow: "start_session" };

function Session({ session: s }: { session: SessionView }) {
  const timeline = s.timeline ?? [];
  return (
    <>
      <nav aria-label="Breadcrumb" className="mb-2 text-[13px] text-faint">
        <Link to="/sessions" className="quiet text-soft">
          Sessions
        </Link>
      </nav>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <h1 className="min-w-0 font-mono text-lg font-semibold break-all">{s.session_id}</h1>
        <CopyButton text={s.session_id} what="session id" />
        <Status status={s.status} large />
      </div>
      {(s.waiting || s.ended_reason) && (
        <div className={`card mt-3 border-l-3 p-4 ${s.waiting ? "border-l-warn" : s.status === "failed" ? "border-l-bad" : "border-l-idle"}`}>
          {s.ended_reason && <p className={`break-words ${s.status === "failed" ? "font-medium text-bad" : ""}`}>{reason(s.ended_reason)}</p>}
          {s.waiting && <p className="break-words">{s.waiting}</p>}
        </div>
      )}
      <dl className="card mt-4 grid grid-cols-2 gap-x-6 gap-y-4 p-4 md:grid-cols-4">
        <Fact name="Holder">
          {s.holder && s.status === "active" ? (
            <span className="flex flex-wrap items-center gap-2">
              <span className="min-w-0 truncate">{s.holder.worker_id}</span>
              {s.holder.status !== "active" && <Status status={s.holder.status} />}
            </span>
          ) : (
            <Plain>{s.lease_owner ? `nobody, last ${s.lease_owner}` : "nobody"}</Plain>
          )}
        </Fact>
        <Fact name="Epoch">{s.epoch > 0 ? <Id id={String(s.epoch)} what="epoch" /> : <Plain>never claimed</Plain>}</Fact>
        <Fact name="Lease left">
          <LeaseLeft session={s} align="start" />
        </Fact>
        <Fact name="Activities">
          {s.active_activity_count} running, {s.ready_activity_count} ready
          {s.max_concurrent_activities > 0 && <span className="text-faint"> (at most {s.max_concurrent_activities})</span>}
        </Fact>
        <Fact name="Scope">
          {s.scope === "workflow" ? (
            <>
              workflow{" "}
              <Link to="/" search={{ q: s.workflow_id ?? "" }} className="quiet font-mono text-[13px] break-all">
                {s.workflow_id}
              </Link>
            </>
          ) : (
            `namespace ${s.namespace}`
          )}
        </Fact>
        <Fact name="Opened by">{doors[s.door] ?? s.door}</Fact>
        <Fact name="Queue">{s.queue || <Plain>that of each activity</Plain>}</Fact>
        <Fact name="Requirements">{s.requirements?.length ? s.requirements.join(", ") : <Plain>none</Plain>}</Fact>
        <Fact name="Created">
          <When value={s.created_at} form="both" />
        </Fact>
        <Fact name="Last activity">
          <When value={s.last_activity_at} form="both" />
        </Fact>
        <Fact name={s.closed_at ? "Closed" : "Ends at the latest"}>
          <When value={s.closed_at ?? s.ttl_expires_at} form="both" />
        </Fact>
        <Fact name="Idle limit">{s.idle_seconds ? duration(s.idle_seconds * 1000) : <Plain>none</Plain>}</Fact>
      </dl>
      <Section title="Ownership">
        {timeline.length === 0 ? (
          <Empty title="Nobody has held this session yet">The first activity of the session decides which worker it stays with.</Empty>
        ) : (
          <div className="card overflow-hidden">
            <HoldBar timeline={timeline} />
            <ol aria-label="Ownership events">
              {[...timeline].reverse().map((e, i) => (
                <Entry key={`${e.at}${e.what}${i}`} event={e} last={i === timeline.length - 1} />
              ))}
            </ol>
          </div>
        )}
      </Section>
    </>
  );
}

const Plain = ({ children }: { children: ReactNode }) => <span className="text-soft">{children}</span>;

/** Who held the session when, on one line. Each worker keeps its colour. */
function HoldBar({ timeline }: { timeline: SessionEvent[] }) {
  const all = holds(timeline);
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
            content={<HoldTip hold={h} now={now} />}
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

const holdLooks = ["bg-stay-soft border-stay/40 text-stay", "bg-accent-soft border-accent/40 text-accent", "bg-run-soft border-run/40 text-run", "bg-warn-soft border-warn/40 text-warn"];

function HoldTip({ hold: h, now }: { hold: Hold; now: number }) {
  const zone = useZone();
  return (
    <div className="grid gap-0.5">
      <b className="font-medium">{h.worker}</b>
      <span className="text-soft">
        {clockTime(h.from, zone)} – {h.to === null ? "now" : clockTime(h.to, zone)} · {duration((h.to ?? now) - h.from)}
      </span>
      <span className="font-mono text-xs text-faint">epoch {h.epoch}</span>
      {h.ended && (
        <span className="text-soft">
          {words(h.ended)}
          {h.why && `: ${h.why}`}
        </span>
      )}
    </div>
  );
}

const entryTone: Record<string, string> = { claimed: "stay", reclaimed: "stay", started: "running", failed: "failed", expired: "expired", orphaned: "orphaned" };
const dots = { run: "bg-run", good: "bg-good", bad: "bg-bad", warn: "bg-warn", idle: "bg-line-strong", stay: "bg-stay" };

function Entry({ event: e, last }: { event: SessionEvent; last: boolean }) {
  const look = e.what === "claimed" || e.what === "reclaimed" ? "stay" : tone(entryTone[e.what] ?? "");
  return (
    <li className="relative flex gap-4 px-4 py-2.5" data-owner-event={e.what}>
      {!last && <span className="absolute top-6 bottom-[-0.65rem] left-[1.21rem] w-px bg-line" aria-hidden />}
      <span className={`mt-1.5 size-2 shrink-0 rounded-full ${dots[look]}`} aria-hidden />
      <div className="min-w-0 flex-1">
        <span className="font-medium">{words(e.what)}</span>
        {e.worker_id && (
          <span className="text-soft">
            {" "}
            {e.what === "released" || e.what === "expired" ? "from" : "by"} {e.worker_id}
          </span>
        )}
        {e.why && <span className="text-soft">: {reason(e.why)}</span>}
        <span className="flex flex-wrap gap-x-4 font-mono text-xs break-all text-faint">
          {e.epoch ? <span>epoch {e.epoch}</span> : null}
          {e.task_id && <span>{e.task_id}</span>}
        </span>
      </div>
      <span className="shrink-0 text-right text-soft">
        <When value={e.at} form="both" />
      </span>
    </li>
  );
}
