import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { api } from "../api/client";
import { readBack, type Past } from "../api/past";
import { scheduleHistoryQuery, scheduleQuery } from "../api/queries";
import type { Schedule, ScheduleEvent } from "../api/types";
import { count } from "../lib/format";
import { words } from "../lib/status";
import { eventName } from "../run/summary";
import { fileName } from "../run/values";
import { useNamespace } from "../shell/namespace";
import { JsonView } from "../ui/JsonView";
import { Empty, Fact, Failed, Section, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { Older } from "../ui/Older";
import { TruncatedValue } from "../ui/TruncatedValue";
import { When } from "../ui/When";
import { details, started, timing } from "./facts";
import { Verbs } from "./Verbs";

export function SchedulePage() {
  const { schedule } = useParams({ from: "/schedules/$schedule" });
  const state = useQuery(scheduleQuery({ namespace: useNamespace(), schedule_id: schedule }));
  useTitle(`Schedule ${schedule}`);
  if (state.isPending) return <Waiting rows={6} height={56} />;
  if (!state.data) return <Failed error={state.error} retry={() => void state.refetch()} what="schedule" all="/schedules" />;
  return <View schedule={state.data} />;
}

function View({ schedule: s }: { schedule: Schedule }) {
  const client = useQueryClient();
  const query = scheduleHistoryQuery(s);
  const history = useQuery(query);
  const events = history.data?.events ?? [];
  const older = useMutation({
    mutationFn: async () => {
      const before = client.getQueryData<Past>(query.queryKey);
      if (!before) return;
      const past = await readBack((where) => api.scheduleHistory(s, where), before);
      // Events that arrived since the request stay in front.
      client.setQueryData<Past>(query.queryKey, (now) => ({ ...past, events: [...(now?.events ?? []).filter((e) => e.sequence > (before.events[0]?.sequence ?? 0)), ...past.events] }));
    },
  });
  return (
    <>
      <nav aria-label="Breadcrumb" className="mb-2 text-[13px] text-faint">
        <Link to="/schedules" className="quiet text-soft">
          Schedules
        </Link>
      </nav>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <h1 className="min-w-0 font-mono text-lg font-semibold break-all">{s.schedule_id}</h1>
        <Status status={s.status} large />
        <div className="ml-auto">
          <Verbs schedule={s} />
        </div>
      </div>
      {s.note && <p className={"card mt-3 border-l-3 border-l-idle px-4 py-3 break-words"}>{s.note}</p>}
      <dl className="card mt-4 grid grid-cols-2 gap-x-6 gap-y-4 p-4 md:grid-cols-4">
        <Fact name="Timing" wide>
          <span className="font-mono text-[13px]">{timing(s)}</span>
          {s.jitter_seconds > 0 && <span className="text-faint">, jitter up to {s.jitter_seconds} s</span>}
        </Fact>
        <Fact name="Action">
          {started(s)}
          {s.action.session_id && (
            <>
              <span className="text-faint"> in session </span>
              <Link to="/sessions/$session" params={{ session: s.action.session_id }} className="quiet">
                {s.action.session_id}
              </Link>
            </>
          )}
          {s.action.task_queue && (
            <>
              <span className="text-faint"> on queue </span>
              <Link to="/queues/$queue" params={{ queue: s.action.task_queue }} className="quiet">
                {s.action.task_queue}
              </Link>
            </>
          )}
        </Fact>
        <Fact name="Overlap policy">{words(s.overlap_policy)}</Fact>
        <Fact name="Next run">
          <When value={s.paused ? null : s.next_fire} form="both" />
        </Fact>
        <Fact name="Last run">
          <When value={s.last_fire} form="both" />
        </Fact>
        <Fact name="Runs">
          {count(s.fires_count)}
          {s.failures_count > 0 && <span className="text-bad">, {count(s.failures_count)} failed</span>}
          {s.remaining_actions !== null && <span className="text-faint">, {count(s.remaining_actions)} remaining</span>}
        </Fact>
        <Fact name="Skipped or buffered">
          {count(s.info.skipped_trigger_count)} skipped, {count(s.info.buffered_actions)} buffered
          {s.info.last_skip_reason && <span className="block text-xs text-faint">{words(s.info.last_skip_reason)}</span>}
        </Fact>
      </dl>
      <section aria-label="Input" className="card mt-3 p-4">
        <h2 className="label mb-1.5">Input</h2>
        {s.truncated?.["action.input"] ? (
          <TruncatedValue
            what="input"
            cut={s.truncated["action.input"]}
            file={fileName(s.schedule_id, "input", false)}
            load={async () => (await api.schedule(s, true)).action.input}
          />
        ) : s.action.input === undefined || s.action.input === null ? <p className="text-soft">No arguments</p> : <JsonView value={s.action.input} what="input" />}
      </section>
      <Section title="History">
        {history.isPending ? <Waiting rows={3} height={44} /> : events.length === 0 ? <Empty title="No events yet" /> : <Events events={events} />}
        {history.data?.more && (
          <Older pending={older.isPending} error={older.error} onClick={() => older.mutate()} shown={events.length} what="events" />
        )}
      </Section>
    </>
  );
}

function Events({ events }: { events: ScheduleEvent[] }) {
  return (
    <ol className="card divide-y divide-line">
      {events.map((e) => (
        <li key={e.sequence} className="flex min-h-11 flex-wrap items-center gap-x-4 gap-y-0.5 px-4 py-2" data-schedule-event={e.event_type}>
          <span className="font-medium">{eventName(e.event_type)}</span>
          <span className="min-w-0 flex-1 break-words text-soft">{details(e)}</span>
          {e.workflow_run_id && (
            <Link to="/runs/$runId" params={{ runId: e.workflow_run_id }} data-nav className="quiet min-w-0 font-mono text-[13px] break-all">
              {e.workflow_instance_id}
            </Link>
          )}
          <span className="text-faint">
            <When value={e.recorded_at} />
          </span>
        </li>
      ))}
    </ol>
  );
}
