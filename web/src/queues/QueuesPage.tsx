import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { queuesQuery } from "../api/queries";
import { useNow } from "../lib/clock";
import { count } from "../lib/format";
import { duration } from "../lib/time";
import { useNamespace } from "../shell/namespace";
import { Empty, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Pager } from "../ui/Pager";
import { Status } from "../ui/Status";
import { WaitText } from "../ui/WaitText";
import { oldestReady, unserved, waitsIn, withheld } from "./facts";

export function QueuesPage() {
  useTitle("Queues");
  const { after } = useSearch({ from: "/queues" });
  const namespace = useNamespace();
  const list = useQuery(queuesQuery(namespace, after));
  const queues = list.data?.task_queues ?? [];
  const now = useNow(queues.some((q) => oldestReady(q) !== null));
  return (
    <>
      <Heading title="Queues" />
      {list.isPending ? (
        <Waiting rows={3} />
      ) : list.isError && !list.data ? (
        <Failed error={list.error} retry={() => void list.refetch()} what="list of queues" />
      ) : queues.length === 0 ? (
        <Empty title={`No task queues in ${namespace}`}>A queue appears here when a worker polls it or a task waits in it.</Empty>
      ) : (
        <>
          <div className="card overflow-x-auto">
            <table className="w-full text-left sm:min-w-[44rem]">
              <thead>
                <tr className="border-b border-line text-xs text-faint [&>th]:px-3 [&>th]:py-2 sm:[&>th]:px-4 [&>th]:font-normal">
                  <th>Queue</th>
                  <th className="text-right">Ready workflow tasks</th>
                  <th className="text-right">Ready activities</th>
                  <th className="hidden text-right sm:table-cell">Leased</th>
                  <th className="hidden text-right sm:table-cell">Backlog age</th>
                  <th className="hidden text-right sm:table-cell">Workers</th>
                  <th className="hidden sm:table-cell">Build of new runs</th>
                  <th className="hidden sm:table-cell">Limits</th>
                </tr>
              </thead>
              <tbody className="divide-y divide-line">
                {queues.map((q) => {
                  const since = oldestReady(q);
                  const why = withheld(q);
                  const bounded = [q.admission.workflow_tasks, q.admission.activity_tasks].some((a) => a.status !== "unlimited");
                  return (
                    <tr key={q.name} className="h-12 [&>td]:px-3 [&>td]:py-1.5 sm:[&>td]:px-4" data-queue={q.name}>
                      <td>
                        <Link to="/queues/$queue" params={{ queue: q.name }} data-nav className="quiet font-medium break-all">
                          {q.name}
                        </Link>
                        {(why || waitsIn(q, now)) && (
                          <span className={`line-clamp-3 max-w-72 text-xs ${!why && unserved(q, now) ? "text-warn" : "text-soft"}`} data-waits>
                            {why ? <WaitText wait={why} /> : waitsIn(q, now)}
                          </span>
                        )}
                      </td>
                      <td className="text-right">{count(q.stats.workflow_tasks.ready_count)}</td>
                      <td className="text-right">{count(q.stats.activity_tasks.ready_count)}</td>
                      <td className="hidden text-right text-soft sm:table-cell">{count(q.stats.workflow_tasks.leased_count + q.stats.activity_tasks.leased_count)}</td>
                      <td className="hidden text-right text-soft sm:table-cell">{since === null ? "–" : duration(Math.max(0, now - since))}</td>
                      <td className="hidden text-right text-soft sm:table-cell" title={q.group && `Tasks go only to group ${q.group}`}>
                        {count(q.stats.pollers.active_count)}
                        {q.group && <span className="block max-w-32 truncate text-xs">only {q.group}</span>}
                      </td>
                      <td className="hidden max-w-64 wrap-anywhere text-soft sm:table-cell">{q.promoted_build_id ?? "any build"}</td>
                      <td className="hidden sm:table-cell" title={why?.message}>
                        {bounded ? <Status status={why ? "throttled" : "accepting"} /> : <span className="text-faint">none</span>}
                      </td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
          <Pager next={list.data?.next_page_token ?? null} before={list.isPlaceholderData} after={after} />
        </>
      )}
    </>
  );
}
