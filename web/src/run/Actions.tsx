import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { Json, RunView } from "../api/types";
import { isOpen } from "../lib/status";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";

type Which = "signal" | "cancel" | "terminate";

/** What a person may do to an open run; each asks once more before it is done. */
export function Actions({ run }: { run: RunView }) {
  const [which, setWhich] = useState<Which | null>(null);
  const close = () => setWhich(null);
  if (!isOpen(run)) return <div className="h-8" />;
  const may = run.actions;
  return (
    <div className="flex gap-2">
      <button type="button" className="btn" disabled={may?.can_signal === false} onClick={() => setWhich("signal")}>
        Signal
      </button>
      <button type="button" className="btn" disabled={may?.can_cancel === false} onClick={() => setWhich("cancel")}>
        Cancel
      </button>
      <button type="button" className="btn btn-danger" disabled={may?.can_terminate === false} onClick={() => setWhich("terminate")}>
        Terminate
      </button>
      {which === "signal" && <SignalDialog run={run} onClose={close} />}
      {which === "cancel" && (
        <EndDialog
          run={run}
          onClose={close}
          title="Cancel this run?"
          description="The run is closed as cancelled, and its open activities are told to stop. This cannot be undone."
          act="Cancel the run"
          send={(reason) => api.cancel(run, reason)}
        />
      )}
      {which === "terminate" && (
        <EndDialog
          run={run}
          onClose={close}
          title="Terminate this run?"
          description="The run ends at once, without a word to its code. This cannot be undone."
          act="Terminate the run"
          send={(reason) => api.terminate(run, reason)}
        />
      )}
    </div>
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
}

function EndDialog({ run, onClose, title, description, act, send }: EndProps) {
  const [reason, setReason] = useState("");
  const m = useSend(run, () => send(reason.trim()), onClose);
  return (
    <Dialog open onClose={onClose} title={title} description={description}>
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={act} danger>
        <label className="block">
          <span className="label">Reason, kept in the history</span>
          <input className="field mt-1" maxLength={1000} value={reason} onChange={(e) => setReason(e.target.value)} />
        </label>
      </Form>
    </Dialog>
  );
}

/** What was typed as arguments: an array as it is, one value alone as the only argument, nothing as none. */
export function parseArguments(text: string): Json[] {
  if (text.trim() === "") return [];
  const value = JSON.parse(text) as Json;
  return Array.isArray(value) ? value : [value];
}

function SignalDialog({ run, onClose }: { run: RunView; onClose: () => void }) {
  const open = (run.pending?.waits ?? []).map((w) => w.signal_name);
  const [name, setName] = useState(open[0] ?? "");
  const [input, setInput] = useState("");
  const [wrong, setWrong] = useState<Error | null>(null);
  const m = useSend(run, () => api.signal(run, name.trim(), parseArguments(input)), onClose);
  const submit = () => {
    try {
      parseArguments(input);
      if (!name.trim()) throw new Error("A signal needs a name.");
    } catch (e) {
      setWrong(e instanceof SyntaxError ? new Error(`The arguments are not JSON: ${e.message}`) : (e as Error));
      return;
    }
    setWrong(null);
    m.mutate();
  };
  return (
    <Dialog open onClose={onClose} title="Send a signal" description={open.length > 0 ? `The run waits for ${open.join(", ")}.` : "The run keeps it until its code asks."}>
      <Form error={wrong ?? m.error} pending={m.isPending} onSubmit={submit} onClose={onClose} act="Send">
        <label className="block">
          <span className="label">Name</span>
          <input className="field mt-1 font-mono" spellCheck={false} list="open-waits" value={name} onChange={(e) => setName(e.target.value)} />
        </label>
        <datalist id="open-waits">
          {open.map((o) => (
            <option key={o} value={o} />
          ))}
        </datalist>
        <label className="mt-3 block">
          <span className="label">Arguments, as JSON: a list, or one value</span>
          <textarea className="field mt-1 font-mono text-[13px]" rows={4} spellCheck={false} placeholder="true" value={input} onChange={(e) => setInput(e.target.value)} />
        </label>
      </Form>
    </Dialog>
  );
}
