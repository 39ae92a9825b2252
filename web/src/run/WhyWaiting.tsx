import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { PendingActivity, RunView } from "../api/types";
import { useNow } from "../lib/clock";
import { whyWaiting } from "../lib/status";
import { duration, parseTime } from "../lib/time";
import { Icon, type IconName } from "../ui/Icon";

/** Why an open run does not move: the reason in words, and everything that is open with its own. */
export function WhyWaiting({ run }: { run: RunView }) {
  const p = run.pending;
  const why = whyWaiting(run);
  const task = p?.workflow_task;
  const items = [
    ...(p?.activities ?? []).map((a) => <Activity key={`a${a.sequence}`} a={a} />),
    ...(p?.timers ?? []).map((t) => <Countdown key={`t${t.sequence}`} at={t.fire_at} />),
    ...(p?.waits ?? []).map((w) => (
      <Item key={`w${w.sequence}`} icon="signal">
        {w.kind === "condition" ? "waits for a condition that signals and updates may make true" : "waits for the signal"}{" "}
        <b className="font-medium">{w.kind === "condition" ? w.condition_key : w.signal_name}</b>
      </Item>
    )),
    ...(p?.children ?? []).map((c) => (
      <Item key={`c${c.sequence}`} icon="play" alarm={c.attempt_number > 1}>
        child <b className="font-medium text-ink">{c.workflow_type}</b>{" "}
        <Link to="/runs/$runId" params={{ runId: c.run_id }} className="quiet font-mono text-[13px]">
          {c.workflow_id}
        </Link>{" "}
        is open{c.attempt_number > 1 && <>, attempt {c.attempt_number}</>}
      </Item>
    )),
    ...(p?.updates ?? []).map((u) => (
      <Item key={u.update_id} icon="signal">
        the update <b className="font-medium">{u.update_name}</b> is not answered yet
      </Item>
    )),
    ...(task
      ? [
          <Item key="task" icon="play" alarm={task.state === "quarantined"}>
            workflow code {task.state === "leased" ? "runs" : task.state === "quarantined" ? "is quarantined" : "is ready to run"}
            {task.worker_id && <> on {task.worker_id}</>}
            {task.why && <>: {task.why}</>}
          </Item>,
        ]
      : []),
  ];
  if (!why && items.length === 0) return null;
  return (
    <section aria-label="What is open" className="card mt-3 border-l-3 border-l-warn p-4">
      {why && <p className="font-medium break-words">{why}</p>}
      {items.length > 0 && <ul className={`grid gap-1.5 ${why ? "mt-2" : ""}`}>{items}</ul>}
    </section>
  );
}

function Item({ icon, alarm = false, children }: { icon: IconName; alarm?: boolean; children: ReactNode }) {
  return (
    <li className="flex min-w-0 items-start gap-2 text-soft">
      <span className={`mt-0.5 ${alarm ? "text-bad" : "text-faint"}`}>
        <Icon name={icon} size={15} />
      </span>
      <span className="min-w-0 break-words">{children}</span>
    </li>
  );
}

function Activity({ a }: { a: PendingActivity }) {
  const now = useNow();
  const next = parseTime(a.next_attempt_at);
  const started = parseTime(a.started_at);
  return (
    <Item icon={a.state === "delayed" ? "clock" : "bolt"} alarm={a.attempt_number > 1 && Boolean(a.last_failure)}>
      <b className="font-medium text-ink">{a.activity_type}</b>{" "}
      {a.state === "leased" && (
        <>
          runs on <span className="text-ink">{a.worker_id}</span>
          {started !== null && <> for {duration(Math.max(0, now - started))}</>}
        </>
      )}
      {a.state === "delayed" && <>tries again{next !== null && next > now ? <> in {duration(next - now)}</> : <> now</>}</>}
      {a.state === "ready" && <>is ready on queue {a.task_queue}</>}
      {a.attempt_number > 1 && <>, attempt {a.attempt_number}</>}
      {a.why && <>: {a.why}</>}
      {a.session_id && (
        <>
          {" · session "}
          <Link to="/sessions/$sessionId" params={{ sessionId: a.session_id }} className="quiet font-mono text-[13px]">
            {a.session_id}
          </Link>
        </>
      )}
      {a.last_failure && <span className="block text-bad">{a.last_failure}</span>}
    </Item>
  );
}

function Countdown({ at }: { at: string | null }) {
  const now = useNow();
  const fire = parseTime(at);
  return <Item icon="hourglass">timer fires{fire !== null && fire > now ? ` in ${duration(fire - now)}` : " now"}</Item>;
}
