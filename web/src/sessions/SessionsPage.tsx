import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { sessionsQuery } from "../api/queries";
import type { SessionView } from "../api/types";
import { useChosenInView } from "../lib/chosen";
import { count } from "../lib/format";
import { sessionStatuses, words } from "../lib/status";
import { useStill } from "../lib/still";
import { useNamespace } from "../shell/namespace";
import { Empty, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Pager } from "../ui/Pager";
import { Status } from "../ui/Status";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";
import { LeaseLeft } from "./LeaseLeft";

export function SessionsPage() {
  useTitle("Sessions");
  const { status, after } = useSearch({ from: "/sessions" });
  const namespace = useNamespace();
  const sessions = useQuery(sessionsQuery(namespace, status, after));
  const rows = sessions.data?.sessions ?? [];
  return (
    <>
      <Heading title="Sessions" />
      <Tabs current={status} counts={sessions.data?.metrics} />
      <div className="mt-3" aria-busy={sessions.isFetching}>
        {sessions.isPending ? (
          <Waiting rows={6} height={57} />
        ) : sessions.isError && !sessions.data ? (
          <Failed error={sessions.error} retry={() => void sessions.refetch()} what="list of sessions" />
        ) : rows.length === 0 ? (
          status ? (
            <Empty title={`No ${words(status)} sessions in ${namespace}`}>
              <Link to="/sessions" className="btn mt-4">
                Show all sessions
              </Link>
            </Empty>
          ) : (
            <Empty title={`No sessions in ${namespace} yet`}>A session runs activities on one worker, which keeps their state in memory.</Empty>
          )
        ) : (
          <Table key={`${status} ${after}`} rows={rows} />
        )}
      </div>
      <Pager next={sessions.data?.next_page_token ?? null} before={sessions.isPlaceholderData} after={after} />
    </>
  );
}

function Table({ rows: now }: { rows: SessionView[] }) {
  const { rows, height, hold } = useStill(now, (s) => s.session_id);
  return (
    <div className="card overflow-hidden" {...hold}>
      <table className="w-full table-fixed text-left">
        <thead>
          <tr className="border-b border-line text-xs text-faint [&>th]:px-3 [&>th]:py-2 [&>th]:font-normal sm:[&>th]:px-4">
            <th className="w-28 sm:w-32">Status</th>
            <th>Session</th>
            <th className="hidden md:table-cell md:w-52">Owner</th>
            <th className="hidden w-32 text-right lg:table-cell">Activities</th>
            <th className="w-24 text-right sm:w-32">Lease expires in</th>
            <th className="hidden w-32 sm:table-cell">Last activity</th>
          </tr>
        </thead>
        <tbody className="divide-y divide-line">
          {rows.map((s) => (
            <tr key={`${s.namespace}/${s.session_id}`} data-row={s.session_id} style={{ height: height(s.session_id) }} className="relative h-[57px] hover:bg-sunken [&>td]:px-3 [&>td]:py-2 sm:[&>td]:px-4">
              <td>
                <Status status={s.status} />
              </td>
              <td>
                <Link
                  to="/sessions/$sessionId"
                  params={{ sessionId: s.session_id }}
                  data-nav
                  data-session={s.session_id}
                  title={s.session_id}
                  className="block truncate font-mono text-[13px] outline-none after:absolute after:inset-0 focus-visible:after:rounded-lg focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-accent"
                >
                  {s.session_id}
                </Link>
                <span className="block truncate text-xs text-faint">
                  {s.scope === "workflow" ? `workflow ${s.workflow_id}` : "shared"}
                  {s.queue && ` · ${s.queue}`}
                </span>
                {s.wait && (
                  <span className={`line-clamp-2 text-xs break-words ${s.wait.needs_attention ? "text-warn" : "text-soft"}`} title={s.wait.message} data-waits>
                    <WaitText wait={s.wait} />
                  </span>
                )}
              </td>
              <td className="hidden truncate md:table-cell">
                {s.status === "active" && s.lease_owner ? s.lease_owner : <span className="text-faint">no owner</span>}
                {s.epoch > 0 && s.claims ? (
                  <span className="block truncate text-[11px] text-faint" title={`epoch ${s.epoch}`}>
                    epoch {s.claims}
                  </span>
                ) : null}
              </td>
              <td className="hidden text-right text-soft lg:table-cell">
                {s.active_activity_count} running
                {s.ready_activity_count > 0 && <span className="block text-xs text-faint">{s.ready_activity_count} ready</span>}
              </td>
              <td className="text-right">
                <LeaseLeft session={s} />
              </td>
              <td className="hidden text-soft sm:table-cell">
                <When value={s.last_activity_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Tabs({ current, counts }: { current: string | undefined; counts: Record<string, number> | undefined }) {
  const row = useChosenInView(`${current} ${Boolean(counts)}`);
  const tab = (status: string | undefined, n: number | undefined) => {
    const on = current === status;
    return (
      <Link
        key={status ?? "all"}
        to="/sessions"
        search={status ? { status } : {}}
        activeOptions={{ exact: true }} // or "all" is the current one, too
        aria-current={on ? "true" : undefined}
        className={`flex h-8 shrink-0 items-center gap-2 rounded-full border px-3 text-[13px] ${
          on ? "border-accent bg-accent-soft font-medium text-accent" : "border-line text-soft hover:bg-card hover:text-ink"
        }`}
      >
        {status ? words(status) : "all"}
        <span className={`min-w-4 text-right text-xs ${on ? "" : "text-faint"}`}>{n === undefined ? "" : count(n)}</span>
      </Link>
    );
  };
  return (
    <nav ref={row} aria-label="Status" className="-mx-1 flex gap-1.5 overflow-x-auto px-1 py-1">
      {tab(undefined, counts?.total)}
      {sessionStatuses.map((s) => tab(s, counts && (counts[s] ?? 0)))}
    </nav>
  );
}
