import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Envelope, HistoryEvent, Json, RunView, SessionEvent } from "../api/types";
import { api } from "../api/client";
import { eventQuery, historyQuery, runQuery, runsOfQuery, sessionQuery, sessionThenQuery } from "../api/queries";
import { useStream } from "../api/stream";
import { Alone, Length } from "../runs/RunsPage";
import { isOpen, runStatus, words } from "../lib/status";
import { count, without } from "../lib/format";
import { useNarrow } from "../lib/narrow";
import { isObject } from "../lib/json";
import { failureText, lastStack, stackOf } from "../lib/stack";
import { ordinals } from "../sessions/ownership";
import { useNamespace } from "../shell/namespace";
import { Id } from "../ui/Copy";
import { JsonView } from "../ui/JsonView";
import { Fact, Failed, useTitle, Waiting } from "../ui/Page";
import { Stack } from "../ui/Stack";
import { Status } from "../ui/Status";
import { TruncatedValue } from "../ui/TruncatedValue";
import { When } from "../ui/When";
import { chainsOf } from "./chains";
import { Actions } from "./Actions";
import { useElsewhere } from "./elsewhere";
import { EventList } from "./EventList";
import { Reset, resetPoints } from "./Reset";
import { Log } from "./Log";
import { buildTimeline, numbered, type Timeline } from "./timeline";
import { TimelineView } from "./TimelineView";
import { envelope } from "./summary";
import { fileName, wholeValue } from "./values";
import { WhyWaiting } from "./WhyWaiting";

const sessionsAsked = 8; // sessions whose ownership timeline is loaded; for others it is derived from the history

export function RunPage() {
  const { runId } = useParams({ from: "/runs/$runId" });
  const namespace = useNamespace();
  const run = useQuery(runQuery(namespace, runId));
  const seeking = useElsewhere(runId, run.error);
  useTitle(run.data ? `${run.data.workflow_type} ${run.data.workflow_id}` : "Run");
  if (run.isPending || seeking) return <Waiting rows={9} height={56} />;
  if (!run.data) return <Failed error={run.error} retry={() => void run.refetch()} what="run" all="/" />;
  return <Run key={runId} run={run.data} />;
}

function Run({ run }: { run: RunView }) {
  const history = useQuery(historyQuery(run));
  const following = useStream(run, isOpen(run) && history.data?.complete === true);
  const [picked, setPicked] = useState<string | null>(null);
  const events = useMemo(() => history.data?.events ?? [], [history.data]);
  const timeline = useTimeline(run, events);
  const points = useMemo(() => resetPoints(events, history.data?.complete ?? true), [events, history.data]);
  const lane = timeline.lanes.find((l) => l.id === picked);
  // The log of an activity run is always shown.
  const logged = run.kind === "activity" ? timeline.lanes.find((l) => l.kind === "activity") : lane?.kind === "activity" ? lane : undefined;
  const shown = useMemo(() => (lane ? events.filter((e) => lane.events.includes(e.sequence)) : events), [events, lane]);

  // On a narrow screen, status and timeline come first.
  const narrow = useNarrow();
  const about = (
    <>
      <Facts run={run} />
      {(run.run_count > 1 || run.chain_run_id || !run.is_current_run) && <Chain run={run} />}
    </>
  );
  const below = narrow && (
    <>
      {about}
      <Values run={run} />
    </>
  );
  return (
    <>
      <Header run={run} />
      {!narrow && about}
      {isOpen(run) && <WhyWaiting run={run} />}
      <Failure run={run} events={events} />
      {!narrow && <Values run={run} />}
      {history.isPending ? (
        <div className="mt-6">
          <Waiting rows={5} height={32} />
          {below}
        </div>
      ) : history.isError && !history.data ? (
        <div className="mt-6">
          <Failed error={history.error} retry={() => void history.refetch()} what="history" />
          {below}
        </div>
      ) : (
        <>
          <TimelineView timeline={timeline} picked={picked} onPick={setPicked} />
          {logged && <Log key={logged.id} run={run} lane={logged} />}
          {below}
          <EventList
            run={run}
            events={shown}
            start={timeline.from}
            total={Math.max(events.length, run.history_length ?? 0)}
            of={lane ? lane.title : null}
            onAll={() => setPicked(null)}
            complete={history.data?.complete ?? true}
            following={following}
            action={(e) => run.kind !== "activity" && points.has(e.sequence) && <Reset run={run} event={e.sequence} />}
          />
        </>
      )}
    </>
  );
}

function useTimeline(run: RunView, events: Parameters<typeof buildTimeline>[0]): Timeline {
  const plain = useMemo(() => buildTimeline(events, run.pending), [events, run.pending]);
  const ids = plain.lanes.filter((l) => l.kind === "session").map((l) => l.title);
  const answers = useQueries({
    queries: ids.slice(0, sessionsAsked).map((id) => {
      const k = { namespace: run.namespace, session_id: id };
      return isOpen(run) ? { ...sessionQuery(k), retry: false } : sessionThenQuery(k);
    }),
    combine: (all) => all.map((a) => a.data?.session ?? null),
  });
  return useMemo(() => {
    const ownership: Record<string, SessionEvent[]> = {};
    const numbers = new Map<number, number>();
    answers.forEach((session, i) => {
      const id = ids[i];
      if (!id || !session?.timeline) return;
      ownership[id] = session.timeline;
      for (const [epoch, n] of ordinals(session.timeline, session.claims)) numbers.set(epoch, n);
    });
    return numbered(Object.keys(ownership).length > 0 ? buildTimeline(events, run.pending, ownership) : plain, numbers);
    // The ids follow from the events.
  }, [answers, events, plain, run.pending]);
}

function Header({ run }: { run: RunView }) {
  return (
    <>
      <nav aria-label="Breadcrumb" className="mb-2 text-[13px] text-faint">
        <Link to="/" className="quiet text-soft">
          Runs
        </Link>{" "}
        / <Link to="/" search={{ type: run.workflow_type, ...(run.kind === "activity" && { kind: run.kind }) }} className="quiet text-soft">{run.workflow_type}</Link>
      </nav>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <h1 className="min-w-0 text-xl font-semibold tracking-tight break-words">{run.workflow_type}</h1>
        {run.kind === "activity" && <Alone />}
        <Status status={runStatus(run)} large />
        <div className="ml-auto">
          <Actions run={run} />
        </div>
      </div>
    </>
  );
}

function Facts({ run }: { run: RunView }) {
  return (
    <dl className="card mt-4 grid grid-cols-2 gap-x-6 gap-y-4 p-4 md:grid-cols-4 xl:grid-cols-8">
      <Fact name="Workflow ID" wide>
        <Id id={run.workflow_id} what="workflow ID" />
      </Fact>
      <Fact name="Run ID" wide>
        <Id id={run.run_id} what="run ID" />
      </Fact>
      <Fact name="Started">
        <When value={run.started_at} form="both" />
      </Fact>
      <Fact name="Closed">
        <When value={run.closed_at} form="both" />
      </Fact>
      <Fact name="Duration">
        <Length run={run} />
      </Fact>
      <Fact name="Task queue">{run.task_queue}</Fact>
      {run.parent_run_id && (
        <Fact name="Parent workflow" wide>
          <Link to="/runs/$runId" params={{ runId: run.parent_run_id }} className="quiet font-mono text-[13px]">
            {run.parent_workflow_id}
          </Link>
        </Fact>
      )}
      {run.business_key && (
        <Fact name="Business key" wide>
          <Id id={run.business_key} what="business key" />
        </Fact>
      )}
    </dl>
  );
}

/** Links to all runs of the chain. */
function Chain({ run }: { run: RunView }) {
  const runs = useQuery(runsOfQuery(run));
  const { own, others } = chainsOf(run, runs.data?.runs ?? []);
  return (
    <nav aria-label="Runs of this workflow" className="mt-3 flex items-center gap-1.5 overflow-x-auto text-[13px]">
      <span className="mr-1 shrink-0 text-faint">
        Run {run.run_number} of {count(run.run_count)}
      </span>
      {own.slice(0, 30).map((r) => (
        <Link
          key={r.run_id}
          to="/runs/$runId"
          params={{ runId: r.run_id }}
          title={`${words(runStatus(r))}, ${r.run_id}`}
          className={`grid h-7 min-w-7 shrink-0 place-items-center rounded-md border px-1.5 ${
            r.run_id === run.run_id ? "border-accent bg-accent-soft text-accent" : "border-line text-soft hover:bg-card"
          }`}
        >
          {r.run_number}
        </Link>
      ))}
      {others.length > 0 && <span className="ml-3 shrink-0 text-faint">Other starts of this workflow ID</span>}
      {others.slice(0, 10).map((r) => (
        <Link
          key={r.run_id}
          to="/runs/$runId"
          params={{ runId: r.run_id }}
          title={r.run_id}
          className="h-7 shrink-0 rounded-md border border-line px-1.5 leading-7 text-soft hover:bg-card"
        >
          {words(runStatus(r))}
        </Link>
      ))}
    </nav>
  );
}

function Failure({ run, events }: { run: RunView; events: HistoryEvent[] }) {
  const f = run.failure;
  const own = stackOf(f);
  const step = useMemo(() => (own ? null : lastStack(events)), [own, events]);
  if (isOpen(run)) return null;
  const message = failureText(isObject(f) ? f.exception_type : undefined, run.error || (isObject(f) && typeof f.message === "string" ? f.message : ""));
  if (!message && !f) return null;
  const bad = run.status_bucket === "failed";
  return (
    <div className={`card mt-3 border-l-3 p-4 ${bad ? "border-l-bad" : "border-l-idle"}`}>
      <p className={`font-medium break-words ${bad ? "text-bad" : ""}`}>{message || words(runStatus(run))}</p>
      {own ? <Stack stack={own} /> : bad && step && <Stack stack={step.stack} of={step.of} />}
      {f && (
        <details className="mt-2">
          <summary className="text-[13px] text-soft">Details</summary>
          <div className="mt-2">
            <JsonView value={isObject(f) ? without(f, "stack_trace") : f} what="failure" />
          </div>
        </details>
      )}
    </div>
  );
}

function Values({ run }: { run: RunView }) {
  const client = useQueryClient();
  const result = run.status === "completed" && run.closed_reason !== "continued";
  const of = (sequence: number, name: string) => async () => wholeValue(await client.fetchQuery(eventQuery(run, sequence)), name);
  return (
    <div className="mt-3 grid items-start gap-3 md:grid-cols-2">
      <Value run={run} name="Input" member="input" value={run.input} stored={run.input_envelope} none="No arguments" load={of(1, "arguments")} />
      <Value
        run={run}
        name="Result"
        member="output"
        value={result ? run.output : undefined}
        stored={result ? run.output_envelope : null}
        none={isOpen(run) ? "Not available yet" : "None"}
        load={of(run.history_length, "output")}
      />
      {(filled(run.memo) || run.truncated?.memo) && <Value run={run} name="Memo" member="memo" value={run.memo} none="" load={() => api.memo(run)} />}
      {filled(run.search_attributes) && <Value run={run} name="Search attributes" member="search_attributes" value={run.search_attributes} none="" />}
    </div>
  );
}

const filled = (v: Json | undefined): boolean => isObject(v) && Object.keys(v).length > 0;

interface ValueProps {
  run: RunView;
  name: string;
  member: string;
  value: Json | undefined;
  stored?: Envelope | null | undefined;
  none: string;
  load?: () => Promise<Json | undefined>;
}

function Value({ run, name, member, value, stored, none, load }: ValueProps) {
  const cut = run.truncated?.[member];
  const encoded = value === undefined || value === null ? envelope(stored) : undefined;
  // A null value is a decoded null if the codec is known, otherwise it means that the app could not decode it.
  const unknown = encoded && encoded.codec !== "avro" ? encoded : undefined;
  const empty = value === undefined || (name === "Input" && (value === null || (Array.isArray(value) && value.length === 0)));
  return (
    <section aria-label={name} className="card min-w-0 p-4">
      <h2 className="label mb-1.5">{name}</h2>
      {cut && load ? (
        <TruncatedValue what={name.toLowerCase()} cut={cut} file={fileName(run.run_id, member, cut.encoded === true)} load={load} />
      ) : unknown ? (
        <>
          <p className="mb-1.5 text-[13px] text-warn">Encoded with codec {unknown.codec}, which this app cannot decode.</p>
          <JsonView value={unknown} what={`${name.toLowerCase()}, encoded`} />
        </>
      ) : empty ? (
        <p className="flex h-11 items-center text-soft">{none}</p>
      ) : (
        <JsonView value={value} what={name.toLowerCase()} />
      )}
    </section>
  );
}
