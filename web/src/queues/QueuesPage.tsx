import { useQuery } from "@tanstack/react-query";
import { overviewQuery } from "../api/queries";
import { useNow } from "../lib/clock";
import { count } from "../lib/format";
import { duration, parseTime } from "../lib/time";
import { Empty, Failed, Heading, useTitle, Waiting } from "../ui/Page";

export function QueuesPage() {
  useTitle("Queues");
  const overview = useQuery(overviewQuery);
  const queues = overview.data?.queues ?? [];
  const now = useNow(queues.some((q) => q.oldest_ready));
  return (
    <>
      <Heading title="Queues" />
      {overview.isPending ? (
        <Waiting rows={3} />
      ) : overview.isError && !overview.data ? (
        <Failed error={overview.error} retry={() => void overview.refetch()} what="list of queues" />
      ) : queues.length === 0 ? (
        <Empty title="No queue holds a task">Tasks appear here while they wait for a worker or run on one.</Empty>
      ) : (
        <div className="card overflow-x-auto">
          <table className="w-full min-w-[34rem] text-left">
            <thead>
              <tr className="border-b border-line text-xs text-faint [&>th]:px-4 [&>th]:py-2 [&>th]:font-normal">
                <th>Queue</th>
                <th>Kind</th>
                <th className="text-right">Ready</th>
                <th className="text-right">Leased</th>
                <th className="text-right">Delayed</th>
                <th className="text-right">Oldest waits</th>
              </tr>
            </thead>
            <tbody className="divide-y divide-line">
              {queues.map((q) => {
                const oldest = parseTime(q.oldest_ready);
                return (
                  <tr key={`${q.namespace}/${q.queue}/${q.kind}`} className="h-12 [&>td]:px-4">
                    <td>
                      <span className="font-medium">{q.queue}</span>
                      {q.namespace !== "default" && <span className="ml-2 text-xs text-faint">{q.namespace}</span>}
                    </td>
                    <td className="text-soft">{q.kind}</td>
                    <td className="text-right">{count(q.ready)}</td>
                    <td className="text-right text-soft">{count(q.leased)}</td>
                    <td className="text-right text-soft">{count(q.delayed)}</td>
                    <td className="text-right text-soft">{oldest === null ? "–" : duration(Math.max(0, now - oldest))}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
