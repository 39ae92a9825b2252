import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { schedulesQuery } from "../api/queries";
import { count } from "../lib/format";
import { useNamespace } from "../shell/namespace";
import { Act } from "../ui/Act";
import { Empty, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Pager } from "../ui/Pager";
import { Status } from "../ui/Status";
import { When } from "../ui/When";
import { started, timing } from "./facts";

const ScheduleDialog = lazy(() => import("./ScheduleDialog"));

export function SchedulesPage() {
  useTitle("Schedules");
  const { after } = useSearch({ from: "/schedules" });
  const namespace = useNamespace();
  const [making, setMaking] = useState(false);
  const list = useQuery(schedulesQuery(namespace, after));
  const schedules = list.data?.schedules ?? [];
  return (
    <>
      <Heading title="Schedules">
        <Act needs="operator" primary onClick={() => setMaking(true)}>
          New schedule
        </Act>
      </Heading>
      <Suspense>{making && <ScheduleDialog namespace={namespace} onClose={() => setMaking(false)} />}</Suspense>
      {list.isPending ? (
        <Waiting rows={4} />
      ) : list.isError && !list.data ? (
        <Failed error={list.error} retry={() => void list.refetch()} what="list of schedules" />
      ) : schedules.length === 0 ? (
        <Empty title={`No schedules in ${namespace}`}>
          A schedule starts a workflow or an activity at given times. Create one here, with <code className="font-mono text-[13px]">sojourn schedules create</code> or with the API.
        </Empty>
      ) : (
        <>
          <div className="card overflow-x-auto" tabIndex={0} role="region" aria-label="Schedules">
            <table className="w-full text-left sm:min-w-[44rem]">
              <thead>
                <tr className="border-b border-line text-xs text-faint [&>th]:px-3 [&>th]:py-2 sm:[&>th]:px-4 [&>th]:font-normal">
                  <th>Status</th>
                  <th>Schedule ID</th>
                  <th className="hidden sm:table-cell">Timing</th>
                  <th className="hidden text-right sm:table-cell">Runs</th>
                  <th className="hidden sm:table-cell">Last run</th>
                  <th>Next run</th>
                </tr>
              </thead>
              <tbody className="divide-y divide-line">
                {schedules.map((s) => (
                  <tr key={s.schedule_id} className="h-14 [&>td]:px-3 [&>td]:py-2 sm:[&>td]:px-4 sm:[&>td]:py-0" data-schedule={s.schedule_id}>
                    <td>
                      <Status status={s.status} />
                    </td>
                    <td>
                      <Link to="/schedules/$schedule" params={{ schedule: s.schedule_id }} data-nav className="quiet font-medium break-all">
                        {s.schedule_id}
                      </Link>
                      <div className="text-xs text-faint">{started(s)}</div>
                      <div className="font-mono text-xs text-soft sm:hidden">{timing(s)}</div>
                      {s.failures_count > 0 && <div className="text-xs text-bad sm:hidden">{count(s.failures_count)} failed</div>}
                      {s.info.skipped_trigger_count > 0 && <div className="text-xs sm:hidden">{count(s.info.skipped_trigger_count)} skipped</div>}
                    </td>
                    <td className="hidden font-mono text-[13px] text-soft sm:table-cell">{timing(s)}</td>
                    <td className="hidden text-right text-soft sm:table-cell">
                      {count(s.fires_count)}
                      {s.failures_count > 0 && <span className="text-bad"> ({count(s.failures_count)} failed)</span>}
                      {s.info.skipped_trigger_count > 0 && <span data-skipped> ({count(s.info.skipped_trigger_count)} skipped)</span>}
                    </td>
                    <td className="hidden text-soft sm:table-cell">
                      <When value={s.last_fire} />
                    </td>
                    <td className="text-soft">
                      <When value={s.paused ? null : s.next_fire} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <Pager next={list.data?.next_page_token ?? null} before={list.isPlaceholderData} after={after} />
        </>
      )}
    </>
  );
}
