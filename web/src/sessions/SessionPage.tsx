import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { sessionQuery } from "../api/queries";
import type { SessionView } from "../api/types";
import { duration } from "../lib/time";
import { useNamespace } from "../shell/namespace";
import { CopyButton } from "../ui/Copy";
import { Fact, Failed, Section, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { When } from "../ui/When";
import { Actions } from "./Actions";
import { LeaseLeft, TtlLeft } from "./LeaseLeft";
import { Notice } from "./Notice";
import { Ownership } from "./Ownership";
import { isHeld, isOver } from "./verbs";

export function SessionPage() {
  const { sessionId } = useParams({ from: "/sessions/$sessionId" });
  const session = useQuery(sessionQuery({ namespace: useNamespace(), session_id: sessionId }));
  useTitle(`Session ${sessionId}`);
  if (session.isPending) return <Waiting rows={7} height={56} />;
  if (!session.data) return <Failed error={session.error} retry={() => void session.refetch()} what="session" all="/sessions" />;
  return <Session session={session.data.session} />;
}

const origins: Record<string, string> = { implicit: "implicit (session ID on an activity)", worker: "worker API", workflow: "StartSession in workflow code" };

const policies: Record<string, string> = {
  migrate: "any worker may acquire it",
  finish: "stays with its release while an app of that release is running",
  fail: "waiting activities fail",
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
          <CopyButton text={s.session_id} what="session ID" />
          <Status status={s.status} large />
        </div>
        <Actions session={s} />
      </div>
      <Notice session={s} />
      <dl className="card mt-4 grid grid-cols-2 gap-x-6 gap-y-4 p-4 md:grid-cols-4">
        <Fact name="Owner">
          <Owner session={s} />
        </Fact>
        <Fact name="Activities">
          {s.active_activity_count} running, {s.ready_activity_count} ready
          {s.max_concurrent_activities > 0 && <span className="text-faint"> (limit {s.max_concurrent_activities})</span>}
        </Fact>
        <Fact name="Lease expires in">
          <LeaseLeft session={s} align="start" />
        </Fact>
        {s.fail_fast && <Fact name="Takeover">fail-fast: leases of at most 10 s, renewed every 3 s</Fact>}
        <Fact name={isOver(s) ? "Ended" : "Time to live"}>
          {isOver(s) ? <When value={s.closed_at} form="both" /> : s.ttl_expires_at ? <TtlLeft session={s} /> : <Plain>unlimited</Plain>}
        </Fact>
        <Fact name="Task queue">{s.queue || <Plain>queue of each activity</Plain>}</Fact>
        <Fact name="Requirements">{s.requirements?.length ? s.requirements.join(", ") : <Plain>none</Plain>}</Fact>
        <Fact name="Idle timeout">{s.idle_seconds ? duration(s.idle_seconds * 1000) : <Plain>none</Plain>}</Fact>
        <Fact name="If the owner drains">{policies[s.release_policy || "migrate"] ?? s.release_policy}</Fact>
        {s.affinity === "soft" && (
          <Fact name="If the owner is unavailable">any worker may acquire it after {duration((s.fallback_after_seconds ?? 0) * 1000)}</Fact>
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
        <Fact name="Origin">{s.pool ? `member of pool ${s.pool}` : (origins[s.door] ?? s.door)}</Fact>
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
              <CopyButton text={String(s.epoch)} what="fencing token of the epoch" />
              {s.claims ? <span className="text-soft">{s.claims === 1 ? "acquired once" : `acquired ${s.claims} times`}</span> : null}
            </span>
          ) : (
            <Plain>never acquired</Plain>
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

function Owner({ session: s }: { session: SessionView }) {
  if (!isHeld(s)) return <Plain>{s.lease_owner ? `no owner (last: ${s.lease_owner})` : "no owner"}</Plain>;
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
          heartbeat <When value={h.last_heartbeat_at} />
        </span>
      )}
    </>
  );
}

const Plain = ({ children }: { children: ReactNode }) => <span className="text-soft">{children}</span>;
