import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import type { PendingActivity, RunView } from "../api/types";
import { useNow } from "../lib/clock";
import { count } from "../lib/format";
import { useNarrow } from "../lib/narrow";
import { isOpen } from "../lib/status";
import { Ask } from "./Ask";
import { progress } from "./progress";
import { duration, parseTime } from "../lib/time";
import { Act } from "../ui/Act";
import { Icon, type IconName } from "../ui/Icon";
import { Stack } from "../ui/Stack";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";

/** The reason why an open run waits, and its pending items with theirs. */
export function WhyWaiting({ run }: { run: RunView }) {
  const [signal, setSignal] = useState<string | null>(null);
  const [all, setAll] = useState(false);
  const few = useNarrow() ? 3 : 6;
  const p = run.pending;
  const wait = isOpen(run) ? run.wait : null;
  const task = p?.workflow_task;
  const waits = p?.waits ?? [];
  // A timer with the sequence of a wait is the timeout of the wait.
  const timeoutOf = (sequence: number) => p?.timers?.find((t) => t.sequence === sequence)?.fire_at;
  const ownTimers = (p?.timers ?? []).filter((t) => !waits.some((w) => w.sequence === t.sequence));
  // The reason of the run is not repeated by an item: a single timer or awakeable, or the reason of the workflow task.
  const timers = wait?.reason === "timer" && ownTimers.length === 1 ? [] : ownTimers;
  const shownWaits = wait?.reason === "awakeable" && waits.length === 1 ? [] : waits;
  const code = task?.wait?.reason === wait?.reason ? null : task?.wait;
  const failed = !["quarantined", "workflow_task_failed"].includes(task?.wait?.reason ?? "") && task?.last_failure;
  const stack = task?.stack_trace?.trim();
  // Items that need an operator come first.
  const activities = [...(p?.activities ?? [])].sort((x, y) => Number(y.wait?.needs_attention ?? false) - Number(x.wait?.needs_attention ?? false));
  const cancellation = p?.cancellation;
  const items = [
    ...(cancellation
      ? [
          <Item key="cancellation" icon="signal" needs={cancellation.needs_attention}>
            Cancellation requested <When value={cancellation.requested_at} />: {cancellation.message}
          </Item>,
        ]
      : []),
    ...shownWaits.map((w) => (
      <Item key={`w${w.sequence}`} icon="signal">
        Waiting for {w.kind === "condition" && !w.condition_key ? "a condition" : w.kind} <b className="font-medium">{w.awakeable_id ?? w.condition_key ?? w.signal_name}</b>
        {timeoutOf(w.sequence) && <>, times out <When value={timeoutOf(w.sequence)} /></>}
        {w.kind !== "condition" && w.signal_name && (
          <span className="ml-3 inline-block">
            <Act needs="writer" primary why={run.actions?.can_signal === false && "Not available in the current state of the run."} onClick={() => setSignal(w.signal_name!)}>
              Send {w.signal_name}
            </Act>
          </span>
        )}
      </Item>
    )),
    ...activities.map((a) => <Activity key={`a${a.sequence}`} a={a} />),
    ...timers.map((t) => <Countdown key={`t${t.sequence}`} at={t.fire_at} />),
    ...(p?.children ?? []).map((c) => (
      <Item key={`c${c.workflow_id}`} icon="play">
        Child workflow <b className="font-medium text-ink">{c.workflow_type}</b>{" "}
        <Link to="/runs/$runId" params={{ runId: c.run_id }} className="quiet font-mono text-[13px]">
          {c.workflow_id}
        </Link>{" "}
        {c.former_run_id && "(started by an earlier run) "}is open{c.attempt_number > 1 && <>, attempt {c.attempt_number}</>}
      </Item>
    )),
    ...(p?.updates ?? []).map((u) => (
      <Item key={u.update_id} icon="signal">
        Update <b className="font-medium">{u.update_name}</b> has no result yet
      </Item>
    )),
    ...(task && (code || failed || stack)
      ? [
          <Item key="task" icon="play" needs={task.wait?.needs_attention}>
            Workflow task{code && <WaitText wait={code} behind />}
            {failed && <span className="block break-words text-bad" data-failed>Last attempt failed: {failed}</span>}
            {stack && <Stack stack={stack} />}
          </Item>,
        ]
      : []),
  ];
  if (!wait && items.length === 0) return null;
  return (
    <section aria-label="Pending work" className={`card mt-3 border-l-3 p-4 ${wait?.needs_attention ? "border-l-warn" : "border-l-idle"}`}>
      {wait && <p className="font-medium break-words"><WaitText wait={wait} /></p>}
      {run.stuck && (
        <p className="mt-1 text-[13px] text-warn" data-stuck>
          Became stuck <When value={run.stuck.since} />
          {run.stuck.reason !== wait?.reason && <>: {run.stuck.message}</>}
        </p>
      )}
      {items.length > 0 && <ul className={`grid gap-1.5 ${wait ? "mt-2" : ""}`}>{all ? items : items.slice(0, few)}</ul>}
      {items.length > few && (
        <button type="button" className="quiet mt-2 text-[13px] text-soft" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show ${items.length - few} more`}
        </button>
      )}
      {signal !== null && <Ask kind="signal" run={run} named={signal} onClose={() => setSignal(null)} />}
    </section>
  );
}

function Item({ icon, needs = false, children }: { icon: IconName; needs?: boolean | undefined; children: ReactNode }) {
  return (
    <li data-needs={needs || undefined} className="flex min-w-0 items-start gap-2 text-soft">
      <span className={`mt-0.5 ${needs ? "text-warn" : "text-faint"}`}>
        <Icon name={icon} size={15} />
      </span>
      <span className="min-w-0 break-words">{children}</span>
    </li>
  );
}

function Activity({ a }: { a: PendingActivity }) {
  const now = useNow();
  const started = parseTime(a.started_at);
  const retry = a.wait?.reason === "retry_backoff" ? a.wait : undefined;
  return (
    <Item icon={a.state === "delayed" ? "clock" : "bolt"} needs={a.wait?.needs_attention}>
      <b className="font-medium text-ink">{a.activity_type}</b>
      {retry ? (
        <>: attempt {a.attempt_number + 1} starts <When value={retry.until} /> ({count(retry.failures ?? a.attempt_number)} failed)</>
      ) : (
        <>
          {a.wait && <WaitText wait={a.wait} behind />}
          {a.state === "leased" && started !== null && <> for {duration(Math.max(0, now - started))}</>}
          {a.attempt_number > 1 && <>, attempt {a.attempt_number}</>}
        </>
      )}
      {a.session_id && (
        <>
          {" · session "}
          <Link to="/sessions/$sessionId" params={{ sessionId: a.session_id }} className="quiet font-mono text-[13px]">
            {a.session_id}
          </Link>
        </>
      )}
      <Progress a={a} />
      <LastHeartbeat a={a} />
      {a.last_failure && <span className="block text-bad">{a.last_failure}</span>}
    </Item>
  );
}

/** The progress of the activity's last heartbeat. */
function Progress({ a }: { a: PendingActivity }) {
  const p = progress(a.progress);
  if ((a.state !== "leased" && a.state !== "pending") || !p) return null;
  return (
    <span className="mt-0.5 flex flex-wrap items-center gap-x-2" data-progress>
      {p.share !== null && (
        <span className="h-1.5 w-32 overflow-hidden rounded-full bg-idle-soft" aria-hidden>
          <span className="block h-full rounded-full bg-run" style={{ width: `${p.share * 100}%` }} />
        </span>
      )}
      <span className="break-words text-ink">{p.text}</span>
      {a.last_heartbeat_at && (
        <span className="text-xs text-faint">
          Last heartbeat <When value={a.last_heartbeat_at} />
        </span>
      )}
    </span>
  );
}

/** The heartbeat details of an earlier attempt, which the current or the next attempt continues from. */
function LastHeartbeat({ a }: { a: PendingActivity }) {
  const p = progress(a.last_heartbeat?.details);
  if (!a.last_heartbeat || !p) return null;
  return (
    <span className="block break-words text-xs text-faint" data-last-heartbeat>
      Attempt {a.last_heartbeat.attempt_number} reported {p.text} <When value={a.last_heartbeat.at} />
    </span>
  );
}

function Countdown({ at }: { at: string | null }) {
  const now = useNow();
  const fire = parseTime(at);
  return <Item icon="hourglass">Timer fires{fire !== null && fire > now ? ` in ${duration(fire - now)}` : " now"}</Item>;
}
