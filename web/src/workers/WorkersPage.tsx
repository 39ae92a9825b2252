import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { heldQuery, aboutQuery, queueQuery, workersQuery } from "../api/queries";
import type { ClockJump, QueueState, WorkerView } from "../api/types";
import { bytes, count } from "../lib/format";
import { useZone } from "../lib/prefs";
import { duration, zoneName } from "../lib/time";
import { LeaseLeft } from "../sessions/LeaseLeft";
import { useNamespace } from "../shell/namespace";
import { Id } from "../ui/Copy";
import { JsonView } from "../ui/JsonView";
import { Empty, Fact, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";
import { Drain } from "./Drain";
import { DrainSeveral, Drains } from "./Drains";
import { FleetWide, SetFleetWide } from "./FleetWide";
import { executors, isolation, machine, otherCode, packages, slots, type Meter } from "./facts";
import { whyNoWork, type Reason } from "./why";

const order = ["mismatched", "draining", "active", "stale"];

export function WorkersPage() {
  useTitle("Workers");
  const namespace = useNamespace();
  const workers = useQuery(workersQuery(namespace));
  const overview = useQuery({ ...aboutQuery(namespace), refetchOnMount: "always" });
  const queues = useQueues(namespace, workers.data?.workers ?? []);
  const rows = [...(workers.data?.workers ?? [])].sort(
    (a, b) => order.indexOf(a.status) - order.indexOf(b.status) || a.worker_id.localeCompare(b.worker_id),
  );
  return (
    <>
      <Heading title="Workers">
        <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
          {overview.data && <span className="text-[13px] text-soft">App release {overview.data.release}</span>}
          <SetFleetWide namespace={namespace} />
          {rows.length > 0 && <DrainSeveral namespace={namespace} workers={rows} />}
        </div>
      </Heading>
      {overview.data?.clock_jump && <ClockJumped jump={overview.data.clock_jump} />}
      <FleetWide namespace={namespace} />
      <Drains namespace={namespace} />
      {workers.isPending ? (
        <Waiting rows={4} height={90} />
      ) : workers.isError && !workers.data ? (
        <Failed error={workers.error} retry={() => void workers.refetch()} what="list of workers" />
      ) : rows.length === 0 ? (
        <Empty title={`No workers in ${namespace}`}>
          Start one with <code className="font-mono text-[13px]">sojourn worker</code>; it appears as soon as it has registered.
        </Empty>
      ) : (
        <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-3 lg:grid-cols-2">
          {rows.map((w) => (
            <Worker key={`${w.namespace}/${w.worker_id}`} worker={w} queues={queues} />
          ))}
        </div>
      )}
    </>
  );
}

/** The last jump of the database clock and the adjustments by the apps. */
function ClockJumped({ jump }: { jump: ClockJump }) {
  return (
    <p role="status" className="mb-3 text-[13px] text-warn" data-clock-jump={jump.direction}>
      The database clock jumped {jump.direction} by {duration(jump.by_seconds * 1000)} at <When value={jump.at} form="absolute" />. Leases, back-offs and
      schedules were adjusted ({count(jump.rows)} rows); timers, start delays and timeouts keep their times.
      {jump.error && <> Adjusting some rows failed: {jump.error}</>}
    </p>
  );
}

function Worker({ worker: w, queues }: { worker: WorkerView; queues: QueueState[] }) {
  const [open, setOpen] = useState(false);
  const zone = useZone();
  const box = isolation(w.isolation);
  const box2 = machine(w.machine);
  return (
    <article className="card flex min-w-0 flex-col p-4" aria-label={`Worker ${w.worker_id}`} data-worker={w.worker_id}>
      <div className="flex items-center justify-between gap-3">
        <h2 className="min-w-0 font-medium">
          <Id id={w.worker_id} what="worker ID" />
        </h2>
        <Status status={w.status} />
      </div>
      <Reasons of={whyNoWork(w, queues)} />
      {otherCode(w).map((text) => (
        <p key={text} className="mt-2 text-[13px] text-warn" data-other-code>
          {text}
        </p>
      ))}
      <div className="mt-3 grid gap-x-6 gap-y-2 sm:grid-cols-3">
        {slots(w).map((m) => (
          <MeterView key={m.name} meter={m} />
        ))}
      </div>
      <dl className="mt-4 grid grid-cols-2 gap-x-6 gap-y-3 sm:grid-cols-3">
        <Fact name="Release">{w.release || <None />}</Fact>
        <Fact name="Build">{w.build_id ?? <None />}</Fact>
        <Fact name={`Last heartbeat (${zoneName(zone)})`}>
          <When value={w.last_heartbeat_at} form="both" />
        </Fact>
        <Fact name="Task queues">
          {(w.task_queues?.length ? w.task_queues : [w.task_queue]).map((q, i) => (
            <span key={q}>
              {i > 0 && ", "}
              <Link to="/queues/$queue" params={{ queue: q }} className="quiet">
                {q}
              </Link>
            </span>
          ))}
        </Fact>
        <Fact name="Tasks in progress">{count(w.active_leases)}</Fact>
        <Fact name="Runtime">
          {w.runtime || <None />}
          {w.sdk_version && <span className="text-faint"> {w.sdk_version}</span>}
        </Fact>
        <Fact name="Sandbox">
          {box ? (
            <>
              {box.level}
              {box.limits && <span className="block text-xs text-faint">{box.limits}</span>}
            </>
          ) : (
            <None />
          )}
        </Fact>
        <Fact name="Machine">
          {box2 ? (
            <>
              {box2.size || box2.address}
              {box2.load && <span className="block text-xs text-faint">{box2.load}</span>}
            </>
          ) : (
            <None />
          )}
        </Fact>
        {Object.entries(w.resources ?? {}).sort().map(([name, r]) => (
          <Fact key={name} name={`Resource ${name}`}>{`${r.used} of ${r.total} used`}</Fact>
        ))}
      </dl>
      {(w.capabilities ?? []).length > 0 && (
        <p className="mt-3 flex flex-wrap gap-1.5" aria-label="Capabilities" role="group">
          {w.capabilities!.map((c) => (
            <span key={c} className="rounded-md border border-line px-1.5 py-px text-xs break-all text-soft">
              {c}
            </span>
          ))}
        </p>
      )}
      {w.held_sessions > 0 && <Held worker={w} />}
      <Executors worker={w} />
      <Packages worker={w} />
      {box && box.missing.length > 0 && (
        <details className="mt-3 text-[13px]">
          <summary className="text-soft">
            Not blocked by the sandbox: {count(box.missing.length)}
          </summary>
          <ul className="mt-1.5 list-disc pl-5 text-soft">
            {box.missing.map((m) => (
              <li key={m}>{m}</li>
            ))}
          </ul>
        </details>
      )}
      <div className="mt-auto flex flex-wrap items-center justify-between gap-3 pt-3">
        <button type="button" data-nav className="quiet text-[13px] text-soft" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Less" : "More"}
        </button>
        <Drain worker={w} />
      </div>
      {open && <More worker={w} />}
    </article>
  );
}

/** The reasons why the worker gets no tasks. */
function Reasons({ of }: { of: Reason[] }) {
  if (of.length === 0) return null;
  const needs = of.filter((r) => r.needs);
  const look = needs.some((r) => r.weight === "stop") ? "bg-bad-soft text-bad" : needs.length > 0 ? "bg-warn-soft text-warn" : "bg-sunken text-soft";
  return (
    <ul aria-label="Reasons for receiving no tasks" className={`mt-2 grid gap-1 rounded-lg px-3 py-2 ${look}`}>
      {of.map((r) => (
        <li key={r.text} className="wrap-anywhere" data-why={r.weight}>
          {r.text}
          {r.wait && <WaitText wait={r.wait} behind />}{" "}
          {r.queue && (
            <Link to="/queues/$queue" params={{ queue: r.queue }} className="underline underline-offset-3">
              Open queue {r.queue}
            </Link>
          )}
        </li>
      ))}
    </ul>
  );
}

/** The sessions that a worker owns, loaded on a click. */
function Held({ worker: w }: { worker: WorkerView }) {
  const [open, setOpen] = useState(false);
  const held = useQuery({ ...heldQuery(w.namespace, w.worker_id), enabled: open });
  return (
    <div className="mt-3 text-[13px]">
      <button type="button" className="quiet text-stay" aria-expanded={open} onClick={() => setOpen(!open)}>
        Holds {count(w.held_sessions)} {w.held_sessions === 1 ? "session" : "sessions"}
      </button>
      {open && held.error && (
        <p role="alert" className="text-bad">
          {held.error.message}
        </p>
      )}
      {open && held.data && (
        <ul aria-label={`Sessions of ${w.worker_id}`} className="mt-1.5 max-h-64 divide-y divide-line overflow-y-auto rounded-lg border border-line" tabIndex={0}>
          {(held.data.sessions ?? []).map((s) => (
            <li key={s.session_id} className="flex flex-wrap items-center justify-between gap-x-3 px-3 py-1.5">
              <Link to="/sessions/$sessionId" params={{ sessionId: s.session_id }} className="quiet min-w-0 font-mono text-xs break-all">
                {s.session_id}
              </Link>
              <span className="flex items-center gap-3 text-soft">
                {s.active_activity_count} running, {s.ready_activity_count} ready
                <LeaseLeft session={s} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** The executor processes of a worker, from its last heartbeat. */
function Executors({ worker: w }: { worker: WorkerView }) {
  const all = executors(w.machine);
  if (all.length === 0) return null;
  const busy = all.filter((e) => e.busy).length;
  return (
    <details className="mt-3 text-[13px]" data-executors>
      <summary className="text-soft">
        {all.length === 1 ? "1 executor" : `${count(all.length)} executors`}, {count(busy)} busy, {bytes(all.reduce((sum, e) => sum + e.memory, 0))}
      </summary>
      <ul aria-label={`Executors of ${w.worker_id}`} className="mt-1.5 max-h-64 divide-y divide-line overflow-y-auto rounded-lg border border-line" tabIndex={0}>
        {all.map((e) => (
          <li key={e.id} className="flex flex-wrap items-center justify-between gap-x-3 px-3 py-1.5">
            <span className="min-w-0">
              {e.runtime || e.id}
              {e.session && (
                <>
                  {" "}
                  in session{" "}
                  <Link to="/sessions/$sessionId" params={{ sessionId: e.session }} className="quiet font-mono text-xs break-all">
                    {e.session}
                  </Link>
                  {e.epoch !== null && <span className="text-faint"> epoch {e.epoch}</span>}
                </>
              )}
            </span>
            <span className="flex items-center gap-3 text-soft">
              {e.busy ? "busy" : "idle"}, {count(e.calls)} {e.calls === 1 ? "call" : "calls"}, {bytes(e.memory)}
              {e.since && <When value={e.since} />}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The packages that the worker's handlers need, and their state. */
function Packages({ worker: w }: { worker: WorkerView }) {
  const all = packages(w.machine);
  if (all.length === 0) return null;
  return (
    <ul aria-label={`Packages of ${w.worker_id}`} className="mt-3 grid gap-2 text-[13px]" data-packages>
      {all.map((p) => (
        <li key={p.runtime} className="min-w-0">
          <span className="text-soft">
            Packages of {p.runtime}
            {p.files && <span className="text-faint"> ({p.files})</span>}
          </span>{" "}
          <span className={p.look}>
            {p.state}
            {p.since && (
              <>
                {" "}
                <When value={p.since} />
              </>
            )}
            {p.size && `, ${p.size}`}
          </span>
          {p.again && (
            <span className="text-soft">
              , retry <When value={p.again} />
            </span>
          )}
          {p.detail && <span className="block wrap-anywhere text-soft">{p.detail}</span>}
          {p.path && <span className="block font-mono text-xs break-all text-faint">{p.path}</span>}
        </li>
      ))}
    </ul>
  );
}

const queuesAsked = 12; // queues whose builds and backlog are loaded

/** The task queues of the workers, with their builds. */
function useQueues(namespace: string, workers: WorkerView[]): QueueState[] {
  const names = [...new Set(workers.flatMap((w) => (w.task_queues?.length ? w.task_queues : [w.task_queue])))].sort().slice(0, queuesAsked);
  return useQueries({
    queries: names.map((name) => ({ ...queueQuery({ namespace, name }), retry: false })),
    combine: (all) => all.map((q) => q.data).filter((q) => q !== undefined),
  });
}

const None = () => <span className="text-faint">–</span>;

function MeterView({ meter: m }: { meter: Meter }) {
  const share = m.most > 0 ? Math.min(1, (m.used ?? 0) / m.most) : 0;
  return (
    <div>
      <div className="flex justify-between text-xs">
        <span className="text-faint">{m.name}</span>
        <span className="text-soft">{m.used === null ? m.most : `${m.used} of ${m.most}`}</span>
      </div>
      <div className="mt-1 h-1.5 overflow-hidden rounded-full bg-idle-soft" aria-hidden>
        <div className={`h-full rounded-full ${m.name === "Sessions" ? "bg-stay" : "bg-run"}`} style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  );
}

function More({ worker: w }: { worker: WorkerView }) {
  const list = (names: string[] | null) => (names?.length ? names.join(", ") : <None />);
  const s = w.session_settings;
  return (
    <div className="mt-3 grid grid-cols-[minmax(0,1fr)] gap-3">
      <dl className="grid grid-cols-2 gap-x-6 gap-y-3">
        <Fact name="Workflows">{list(w.supported_workflow_types)}</Fact>
        <Fact name="Activities">{list(w.supported_activity_types)}</Fact>
        <Fact name="Registered">
          <When value={w.registered_at} />
        </Fact>
        {w.settings_revision !== undefined && <Fact name="Settings">Revision {w.settings_revision}</Fact>}
        {w.group && <Fact name="Group">{w.group}</Fact>}
        {w.incarnation && (
          <Fact name="Incarnation">
            <Id id={w.incarnation} what="incarnation" />
          </Fact>
        )}
        {s && (
          <Fact name="Session lease, buffer, idle">
            {s.lease_ms / 1000} s, {s.buffer_ms / 1000} s, {s.idle_ms / 1000} s
          </Fact>
        )}
      </dl>
      {w.isolation && <JsonView value={w.isolation} what="sandbox report" />}
      {w.machine && <JsonView value={w.machine} what="machine report" />}
    </div>
  );
}
