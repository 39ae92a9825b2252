import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { sessionQuery } from "../api/queries";
import type { SessionView } from "../api/types";
import { words } from "../lib/status";
import { duration } from "../lib/time";
import { useNamespace } from "../shell/namespace";
import { CopyButton } from "../ui/Copy";
import { Fact, Failed, Section, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";
import { Actions } from "./Actions";
import { LeaseLeft, TtlLeft } from "./LeaseLeft";
import { Ownership } from "./Ownership";
import { reason } from "./ownership";
import { isHeld, isOver } from "./verbs";

export function SessionPage() {
  const { sessionId } = useParams({ from: "/sessions/$sessionId" });
  const session = useQuery(sessionQuery({ namespace: useNamespace(), session_id: sessionId }));
  useTitle(`Session ${sessionId}`);
  if (session.isPending) return <Waiting rows={7} height={56} />;
  if (!session.data) return <Failed error={session.error} retry={() => void session.refetch()} what="session" all="/sessions" />;
  return <Session session={session.data.session} />;
}

const doors: Record<string, string> = { implicit: "an id on an activity", worker: "a worker's verb", workflow: "start_session" };

/** What the reader should know before anything else: why the session's work waits, who moves it, how the last holding ended. */
function Notice({ session: s }: { session: SessionView }) {
  const bad = s.status === "failed" || s.status === "orphaned";
  const why = s.ended_reason ? reason(s.ended_reason) : s.failure_reason ? words(s.failure_reason) : "";
  const lines: [text: ReactNode, look: string][] = [];
  if (s.moving) lines.push([`${s.moving} moves it: what runs in it may end, and what is queued waits until another worker has it.`, "border-l-idle"]);
  if (s.kept_for) lines.push([`For a short time it is kept for ${s.kept_for}.`, "border-l-idle"]);
  if (why) lines.push([`${isOver(s) ? "Ended" : "Last holding ended"}: ${why}`, bad ? "border-l-bad" : "border-l-idle"]);
  const waits = s.wait && !s.moving && !s.kept_for ? s.wait : undefined; // those say it already
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

const policies: Record<string, string> = {
  migrate: "any worker may have it after a drain",
  finish: "stays with its release while an app of it lives",
  fail: "what waits fails when its holder drains",
};

function Session({ session: s }: { session: SessionView }) {
  return (
    <>
      <nav aria-label="Breadcrumb" className="mb-2 text-[13px] text-faint">
        <Link to="/sessions" className="quiet text-soft">
          Sessions
        </Link>
      </nav>
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-3">
        <div className="flex min-w-0 flex-wrap items-center gap-x-3 gap-y-2">
          <h1 className="min-w-0 font-mono text-lg font-semibold break-all">{s.session_id}</h1>
          <CopyButton text={s.session_id} what="session id" />
          <Status status={s.status} large />
        </div>
        <Actions session={s} />
      </div>
      <Notice session={s} />
      <dl className="card mt-4 grid grid-cols-2 gap-x-6 gap-y-4 p-4 md:grid-cols-4">
        <Fact name="Holder">
          <Holder session={s} />
        </Fact>
        <Fact name="Activities">
          {s.active_activity_count} running, {s.ready_activity_count} ready
          {s.max_concurrent_activities > 0 && <span className="text-faint"> (at most {s.max_concurrent_activities})</span>}
        </Fact>
        <Fact name="Lease left">
          <LeaseLeft session={s} align="start" />
        </Fact>
        <Fact name={isOver(s) ? "Ended" : "Time to live"}>
          {isOver(s) ? <When value={s.closed_at} form="both" /> : s.ttl_expires_at ? <TtlLeft session={s} /> : <Plain>without limit</Plain>}
        </Fact>
        <Fact name="Queue">{s.queue || <Plain>that of each activity</Plain>}</Fact>
        <Fact name="Requirements">{s.requirements?.length ? s.requirements.join(", ") : <Plain>none</Plain>}</Fact>
        <Fact name="Idle limit">{s.idle_seconds ? duration(s.idle_seconds * 1000) : <Plain>none</Plain>}</Fact>
        <Fact name="When its holder drains">{policies[s.release_policy || "migrate"] ?? s.release_policy}</Fact>
        {s.affinity === "soft" && (
          <Fact name="When its holder takes nothing">any worker may claim it after {duration((s.fallback_after_seconds ?? 0) * 1000)}</Fact>
        )}
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
        <Fact name="Created">
          <When value={s.created_at} form="both" />
        </Fact>
        <Fact name="Last activity">
          <When value={s.last_activity_at} form="both" />
        </Fact>
        <Fact name="Epoch" wide>
          {s.epoch > 0 ? (
            <span className="flex flex-wrap items-center gap-x-2">
              <span title={String(s.epoch)}>{s.claims ?? "–"}</span>
              <CopyButton text={String(s.epoch)} what="fencing number of the epoch" />
              {s.claims ? <span className="text-soft">{s.claims === 1 ? "claimed once" : `claimed ${s.claims} times`}</span> : null}
            </span>
          ) : (
            <Plain>never claimed</Plain>
          )}
        </Fact>
        {s.release && (
          <Fact name="Release" wide>
            {s.release}
          </Fact>
        )}
      </dl>
      <Section title="Ownership">
        <Ownership session={s} />
      </Section>
    </>
  );
}

function Holder({ session: s }: { session: SessionView }) {
  if (!isHeld(s)) return <Plain>{s.lease_owner ? `nobody, last ${s.lease_owner}` : "nobody"}</Plain>;
  const h = s.holder;
  return (
    <>
      <span className="flex flex-wrap items-center gap-x-2 gap-y-1">
        <Link to="/workers" className="quiet min-w-0 truncate">
          {s.lease_owner}
        </Link>
        {h && h.status !== "active" && <Status status={h.status} />}
      </span>
      {h && (
        <span className="text-xs text-faint">
          heard <When value={h.last_heartbeat_at} />
        </span>
      )}
    </>
  );
}

const Plain = ({ children }: { children: ReactNode }) => <span className="text-soft">{children}</span>;
