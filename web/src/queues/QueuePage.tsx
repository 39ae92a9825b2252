import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import { keys, queueQuery } from "../api/queries";
import type { BuildCohort, QueueState, TaskAdmission, TaskTally } from "../api/types";
import { useNow } from "../lib/clock";
import { count } from "../lib/format";
import { duration, parseTime } from "../lib/time";
import { useNamespace } from "../shell/namespace";
import { Act } from "../ui/Act";
import { Id } from "../ui/Copy";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { Empty, Fact, Failed, Section, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";
import { BudgetDialog } from "./BudgetDialog";
import { bars, buildName, unservedBuild, verbs, withheld, type BuildVerb } from "./facts";

export function QueuePage() {
  const { queue } = useParams({ from: "/queues/$queue" });
  const state = useQuery(queueQuery({ namespace: useNamespace(), name: queue }));
  useTitle(`Queue ${queue}`);
  if (state.isPending) return <Waiting rows={7} height={56} />;
  if (!state.data) return <Failed error={state.error} retry={() => void state.refetch()} what="queue" all="/queues" />;
  return <Queue queue={state.data} />;
}

function Queue({ queue: q }: { queue: QueueState }) {
  const [limiting, setLimiting] = useState(false);
  const why = withheld(q);
  const unserved = unservedBuild(q);
  return (
    <>
      <nav aria-label="Breadcrumb" className="mb-2 text-[13px] text-faint">
        <Link to="/queues" className="quiet text-soft">
          Queues
        </Link>
      </nav>
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-3">
        <h1 className="min-w-0 font-mono text-lg font-semibold break-all">{q.name}</h1>
        <Act needs="operator" onClick={() => setLimiting(true)}>
          Limits
        </Act>
      </div>
      {why && (
        <p className="card mt-3 border-l-3 border-l-idle px-4 py-3 break-words">
          <WaitText wait={why} />
        </p>
      )}
      {unserved && (
        <p className="card mt-3 border-l-3 border-l-warn px-4 py-3 wrap-anywhere text-warn" data-unserved-build>
          {unserved}
        </p>
      )}
      <div className="mt-4 grid gap-3 lg:grid-cols-2">
        <Tasks name="Workflow tasks" tally={q.stats.workflow_tasks} admission={q.admission.workflow_tasks} />
        <Tasks name="Activities" tally={q.stats.activity_tasks} admission={q.admission.activity_tasks} />
      </div>
      <Waits queue={q} />
      <Section title="Builds" aside={<span className="min-w-0 text-[13px] wrap-anywhere text-soft">New runs: {q.promoted_build_id ? `build ${q.promoted_build_id}` : "any build"}</span>}>
        <Builds queue={q} />
      </Section>
      <Section
        title="Workers"
        aside={q.group && <span className="min-w-0 text-[13px] wrap-anywhere text-soft" data-group={q.group}>Tasks go only to group {q.group}{q.group_of_namespace && " (setting of the namespace)"}</span>}
      >
        <Workers queue={q} />
      </Section>
      <Section title="Leased tasks">
        <Leases queue={q} />
      </Section>
      {limiting && <BudgetDialog queue={q} onClose={() => setLimiting(false)} />}
    </>
  );
}

function Tasks({ name, tally: t, admission: a }: { name: string; tally: TaskTally; admission: TaskAdmission }) {
  const since = parseTime(t.oldest_ready_at);
  const now = useNow(since !== null);
  return (
    <section className="card p-4" aria-label={name}>
      <div className="flex items-center justify-between gap-3">
        <h2 className="font-medium">{name}</h2>
        <Status status={a.status} />
      </div>
      <dl className="mt-3 grid grid-cols-4 gap-x-4">
        <Fact name="Ready">{count(t.ready_count)}</Fact>
        <Fact name="Backlog age">{since === null ? "–" : duration(Math.max(0, now - since))}</Fact>
        <Fact name="Leased">{count(t.leased_count)}</Fact>
        <Fact name="Delayed">{count(t.delayed_count)}</Fact>
      </dl>
      <div className="mt-4 grid gap-2">
        {bars(a).map((b) => (
          <div key={b.name}>
            <div className="flex justify-between text-xs">
              <span className="text-faint">{b.name}</span>
              <span className="text-soft">{b.most === null ? `${b.used}, no limit` : `${b.used} of ${b.most}`}</span>
            </div>
            {b.most !== null && (
              <div className="mt-1 h-1.5 overflow-hidden rounded-full bg-idle-soft" aria-hidden>
                <div className={"h-full rounded-full bg-run"} style={{ width: `${Math.min(1, b.used / b.most) * 100}%` }} />
              </div>
            )}
          </div>
        ))}
      </div>
    </section>
  );
}

const asks = {
  promote: {
    name: "Promote",
    title: "Promote this build?",
    act: "Promote build",
    says: "New runs are pinned to workers with this build. Open runs are not affected.",
  },
  drain: {
    name: "Drain",
    title: "Drain this build?",
    act: "Drain build",
    says: "Workers with this build get no new tasks from this queue; running tasks finish. Runs pinned to the build wait until it is resumed.",
  },
  unpin: {
    name: "Promote",
    title: "Stop pinning new runs?",
    act: "Stop pinning",
    says: "New runs go to any worker of the queue, whatever its build. Open runs are not affected.",
  },
  resume: { name: "Resume", title: "Resume this build?", act: "Resume build", says: "Workers with this build get tasks from this queue again." },
};

function Builds({ queue: q }: { queue: QueueState }) {
  const [asked, setAsked] = useState<{ verb: BuildVerb; build: BuildCohort } | null>(null);
  const list = q.build_ids ?? [];
  if (list.length === 0) return <Empty title="No builds">Builds appear here when workers register.</Empty>;
  return (
    <div className="card overflow-x-auto">
      <table className="w-full text-left sm:min-w-[40rem]">
        <thead>
          <tr className="border-b border-line text-xs text-faint [&>th]:px-3 [&>th]:py-2 sm:[&>th]:px-4 [&>th]:font-normal">
            <th>Build</th>
            <th>Rollout</th>
            <th className="hidden text-right sm:table-cell">Workers</th>
            <th className="hidden sm:table-cell">Runtimes</th>
            <th className="hidden sm:table-cell">Last heartbeat</th>
            <th />
          </tr>
        </thead>
        <tbody className="divide-y divide-line">
          {list.map((b) => (
            <tr key={b.build_id ?? ""} className="h-12 [&>td]:px-3 [&>td]:py-1.5 sm:[&>td]:px-4" data-build={b.build_id ?? ""}>
              <td className="min-w-28">
                <span className={b.build_id === null ? "whitespace-nowrap text-soft" : "mr-2 font-medium wrap-anywhere"}>{buildName(b.build_id)}</span>
                {b.new_start_selected && <span className="inline-block rounded-full bg-run-soft px-2 py-0.5 text-xs whitespace-nowrap text-run">new runs</span>}
              </td>
              <td>
                <Status status={b.rollout_status} />
              </td>
              <td className="hidden text-right text-soft sm:table-cell">
                {b.active_worker_count + b.draining_worker_count} of {b.total_worker_count}
              </td>
              <td className="hidden text-soft sm:table-cell">{b.runtimes?.join(", ") || "–"}</td>
              <td className="hidden text-soft sm:table-cell">
                <When value={b.last_heartbeat_at} />
              </td>
              <td>
                <div className="flex flex-wrap justify-end gap-2 sm:flex-nowrap">
                  {verbs(b).map((v) => (
                    <Act key={v} needs="operator" danger={v === "drain"} onClick={() => setAsked({ verb: v, build: b })}>
                      {asks[v].name}
                    </Act>
                  ))}
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {asked && <BuildDialog queue={q} verb={asked.verb} build={asked.build} onClose={() => setAsked(null)} />}
    </div>
  );
}

function BuildDialog({ queue: q, verb, build, onClose }: { queue: QueueState; verb: BuildVerb; build: BuildCohort; onClose: () => void }) {
  const client = useQueryClient();
  const m = useMutation({
    mutationFn: () => api.decideBuild(q, verb, build.build_id),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.queues(q.namespace) });
    },
  });
  const a = asks[verb === "promote" && build.build_id === null ? "unpin" : verb];
  return (
    <Dialog open onClose={onClose} title={a.title} description={`${buildName(build.build_id)} on ${q.name}. ${a.says}`}>
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={a.act} danger={verb === "drain"}>
        {null}
      </Form>
    </Dialog>
  );
}

/** The oldest ready tasks, with the reason why no worker has leased them. */
function Waits({ queue: q }: { queue: QueueState }) {
  const list = q.waiting ?? [];
  if (list.length === 0) return null;
  const ready = q.stats.workflow_tasks.ready_count + q.stats.activity_tasks.ready_count;
  return (
    <Section title="Waiting tasks" aside={ready > list.length && <span className="text-[13px] text-soft">oldest {count(list.length)} of {count(ready)}</span>}>
      <ul className={`card divide-y divide-line border-l-3 ${list.some((w) => w.wait?.needs_attention) ? "border-l-warn" : "border-l-idle"}`} data-waiting>
        {list.map((w) => (
          <li key={w.task_id} className="flex min-h-12 flex-wrap items-center gap-x-4 gap-y-0.5 px-4 py-2">
            <span className="w-full min-w-0 break-words sm:w-auto sm:flex-1">
              <b className="font-medium">{w.type}</b>
              <span className={w.wait?.needs_attention ? "text-warn" : "text-soft"}>
                {w.wait && <WaitText wait={w.wait} behind />}
              </span>
            </span>
            <Link to="/runs/$runId" params={{ runId: w.run_id }} data-nav className="quiet min-w-0 font-mono text-[13px] break-all">
              {w.workflow_id}
            </Link>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Workers({ queue: q }: { queue: QueueState }) {
  const list = q.pollers ?? [];
  if (list.length === 0) return <Empty title="No worker polls this queue">Start a worker with this task queue.</Empty>;
  return (
    <ul className="card divide-y divide-line">
      {list.map((w) => (
        <li key={w.worker_id} className="flex min-h-12 flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
          <span className="w-full min-w-0 sm:w-auto sm:flex-1">
            <Id id={w.worker_id} what="worker ID" />
          </span>
          <span className="min-w-0 wrap-anywhere text-soft">{buildName(w.build_id)}</span>
          <span className="text-faint">{w.runtime}</span>
          <Status status={w.status} />
        </li>
      ))}
    </ul>
  );
}

function Leases({ queue: q }: { queue: QueueState }) {
  const list = q.current_leases ?? [];
  if (list.length === 0) return <Empty title="No leased tasks">Tasks appear here while a worker runs them.</Empty>;
  return (
    <ul className="card divide-y divide-line">
      {list.map((l) => (
        <li key={l.task_id} className="flex min-h-12 flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
          <Link to="/runs/$runId" params={{ runId: l.run_id }} data-nav className="quiet w-full min-w-0 font-mono text-[13px] break-all sm:w-auto sm:flex-1">
            {l.workflow_id}
          </Link>
          <span className="text-soft">{l.task_type}</span>
          <span className="min-w-0 wrap-anywhere text-soft">{l.lease_owner}</span>
          <span className="text-faint">
            lease expires <When value={l.lease_expires_at} />
          </span>
        </li>
      ))}
    </ul>
  );
}
