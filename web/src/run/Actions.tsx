import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import { ApiError } from "../api/request";
import { keys } from "../api/queries";
import type { RunView } from "../api/types";
import { isOpen } from "../lib/status";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { Ask } from "./Ask";

type Which = "signal" | "update" | "query" | "cancel" | "force" | "terminate" | "redrive";

/** Actions on a run. Actions that close it open a confirmation. A closed run can still be queried. */
export function Actions({ run }: { run: RunView }) {
  const [which, setWhich] = useState<Which | null>(null);
  const close = () => setWhich(null);
  const open = isOpen(run);
  const not = (can: keyof NonNullable<RunView["actions"]>, why = "Not available in the current state of the run.") => run.actions?.[can] === false && (run.kind === "activity" ? "Not available: an activity run has no workflow code." : why);
  return (
    <div className="flex flex-wrap gap-2">
      <Act needs="viewer" why={not("can_query", "No worker can answer queries for this run.")} onClick={() => setWhich("query")}>
        Query
      </Act>
      {open && (
        <>
          <Act needs="writer" why={not("can_signal")} onClick={() => setWhich("signal")}>
            Signal
          </Act>
          <Act needs="writer" why={not("can_update")} onClick={() => setWhich("update")}>
            Update
          </Act>
          <Repair run={run} />
          <Act needs="writer" why={not("can_cancel")} onClick={() => setWhich("cancel")}>
            Cancel
          </Act>
          {run.kind !== "activity" && (
            <Act needs="writer" why={not("can_cancel")} danger onClick={() => setWhich("force")}>
              Force cancel
            </Act>
          )}
          <Act needs="writer" why={not("can_terminate")} danger onClick={() => setWhich("terminate")}>
            Terminate
          </Act>
        </>
      )}
      {run.status === "failed" && run.closed_reason === "failed" && run.kind !== "activity" && (
        <Act needs="writer" why={!run.is_current_run && "Not available: a later run of this workflow ID exists."} onClick={() => setWhich("redrive")}>
          Redrive
        </Act>
      )}
      {which === "redrive" && <RedriveDialog run={run} onClose={close} />}
      {(which === "signal" || which === "update" || which === "query") && <Ask kind={which} run={run} onClose={close} />}
      {which === "cancel" && run.kind !== "activity" && (
        <EndDialog
          key="cancel"
          run={run}
          onClose={close}
          title="Cancel this run?"
          description="Requests cancellation. Workflow code can clean up and decides how the run closes."
          act="Cancel run"
          send={(reason) => api.requestCancellation(run, reason)}
          force={() => setWhich("force")}
        />
      )}
      {(which === "force" || (which === "cancel" && run.kind === "activity")) && (
        <EndDialog
          key="force"
          run={run}
          onClose={close}
          title={which === "force" ? "Force cancel this run?" : "Cancel this activity?"}
          description={`Closes the run as cancelled immediately; workers stop its open activities. ${which === "force" ? "Workflow code gets no chance to clean up. " : ""}This cannot be undone.`}
          act={which === "force" ? "Force cancel" : "Cancel activity"}
          send={(reason) => api.cancel(run, reason)}
        />
      )}
      {which === "terminate" && (
        <EndDialog
          run={run}
          onClose={close}
          title="Terminate this run?"
          description="Stops immediately. Workflow code gets no chance to clean up. This cannot be undone."
          act="Terminate run"
          send={(reason) => api.terminate(run, reason)}
        />
      )}
    </div>
  );
}

/** Continues a failed run and opens the new one. The request ID makes a repeated click after a lost response safe. */
function RedriveDialog({ run, onClose }: { run: RunView; onClose: () => void }) {
  const [request] = useState(() => crypto.randomUUID());
  const go = useNavigate();
  const m = useMutation({
    mutationFn: () => api.redrive(run, request),
    onSuccess: (next) => {
      onClose();
      return go({ to: "/runs/$runId", params: { runId: next.run_id } });
    },
  });
  return (
    <Dialog
      open
      onClose={onClose}
      title="Redrive this run?"
      description="Continues as a new run with the results of the completed activities. Activities whose failure ended the run, and activities that were open, run again. If no activity failed, the last workflow task runs again: deploy the corrected code first."
    >
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Redrive run">
        <></>
      </Form>
    </Dialog>
  );
}

function useSend(run: RunView, send: () => Promise<unknown>, onClose: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: send,
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.run(run.run_id) });
      await client.invalidateQueries({ queryKey: keys.runs });
    },
  });
}

interface EndProps {
  run: RunView;
  onClose: () => void;
  title: string;
  description: string;
  act: string;
  send: (reason: string) => Promise<unknown>;
  force?: () => void; // offers forced cancellation if no worker supports cancellation requests
}

function EndDialog({ run, onClose, title, description, act, send, force }: EndProps) {
  const [reason, setReason] = useState("");
  const m = useSend(run, () => send(reason.trim()), onClose);
  return (
    <Dialog open onClose={onClose} title={title} description={description}>
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={act} danger>
        <label className="block">
          <span className="label">Reason (recorded in the history)</span>
          <input className="field mt-1" maxLength={1000} value={reason} onChange={(e) => setReason(e.target.value)} />
        </label>
        {force && m.error instanceof ApiError && m.error.reason === "cancellation_not_supported" && (
          <button type="button" className="btn mt-2" onClick={force}>
            Force cancel instead
          </button>
        )}
      </Form>
    </Dialog>
  );
}

/** Releases a quarantined workflow task after its code was fixed. */
function Repair({ run }: { run: RunView }) {
  const m = useSend(run, () => api.repair(run), () => {});
  if (run.pending?.workflow_task?.state !== "quarantined") return null;
  return (
    <>
      <Act needs="writer" why={m.isPending && "Repairing…"} atOnce onClick={() => m.mutate()}>
        Repair
      </Act>
      {m.error && (
        <p role="alert" className="text-bad">
          {m.error.message}
        </p>
      )}
    </>
  );
}
