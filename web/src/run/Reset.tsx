import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import type { HistoryEvent, RunView } from "../api/types";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";

const closing = ["WorkflowCompleted", "WorkflowFailed", "WorkflowCancelled", "WorkflowTerminated", "WorkflowTimedOut", "WorkflowContinuedAsNew"];

/** The last events of workflow tasks that left the run open: a run can be reset to them. */
export function resetPoints(events: HistoryEvent[], complete: boolean): Set<number> {
  const last = new Map<string, HistoryEvent>();
  for (const e of events) if (e.workflow_task_id) last.set(e.workflow_task_id, e);
  const end = events[events.length - 1];
  const points = [...last.values()].filter((e) => !closing.includes(e.event_type) && (complete || e !== end));
  return new Set(points.map((e) => e.sequence));
}

/** The button and the dialog that reset a run to one of its events and open the new run. */
export function Reset({ run, event }: { run: RunView; event: number }) {
  const [asked, setAsked] = useState(false);
  return (
    <div className="mt-3">
      <Act needs="writer" why={!run.is_current_run && "Not available: a later run of this workflow ID exists."} onClick={() => setAsked(true)}>
        Reset to this event
      </Act>
      {asked && <ResetDialog run={run} event={event} onClose={() => setAsked(false)} />}
    </div>
  );
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Resets a run. The request ID makes a repeated click after a lost response safe. */
function ResetDialog({ run, event, onClose }: { run: RunView; event: number; onClose: () => void }) {
  const [request] = useState(() => crypto.randomUUID());
  const [reason, setReason] = useState("");
  const [reapply, setReapply] = useState(true);
  const go = useNavigate();
  const why = reason.trim();
  const m = useMutation({
    mutationFn: () => api.reset(run, { event, reason: why, reapply, request_id: request }),
    onSuccess: (next) => {
      onClose();
      return go({ to: "/runs/$runId", params: { runId: next.run_id } });
    },
  });
  const command = `sojourn workflow reset ${quoted(run.workflow_id)} --run ${run.run_id} --event ${event}${reapply ? "" : " --no-reapply"}${why ? ` --reason ${quoted(why)}` : ""}`;
  return (
    <Dialog
      open
      onClose={onClose}
      title={`Reset this run to event ${event}?`}
      description={`Continues as a new run with a copy of the events up to ${event}. ${run.is_terminal ? "This run stays as it is." : "This run closes as terminated."} Activities that were open at that point run again.`}
    >
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Reset run" danger>
        <label className="block">
          <span className="label">Reason (recorded in the history)</span>
          <input className="field mt-1" maxLength={1000} value={reason} onChange={(e) => setReason(e.target.value)} />
        </label>
        <label className="mt-3 flex items-baseline gap-2">
          <input type="checkbox" checked={reapply} onChange={(e) => setReapply(e.target.checked)} />
          <span>Deliver later signals, unanswered updates and outcomes of awakeables to the new run</span>
        </label>
        <p className="mt-3 text-soft">
          On the command line: <code className="font-mono text-[13px] wrap-anywhere">{command}</code>
        </p>
      </Form>
    </Dialog>
  );
}
