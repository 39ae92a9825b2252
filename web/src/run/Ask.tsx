import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { Json, RunView } from "../api/types";
import { parseArguments } from "../lib/input";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { JsonView } from "../ui/JsonView";

type Kind = "signal" | "update" | "query";

const kinds: Record<Kind, { title: string; says: string; act: string; send: (run: RunView, name: string, input: Json[]) => Promise<Json | undefined> }> = {
  signal: {
    title: "Send signal",
    says: "The signal is stored until workflow code reads it.",
    act: "Send",
    send: async (run, name, input) => {
      await api.signal(run, name, input);
      return undefined;
    },
  },
  update: {
    title: "Send update",
    says: "Workflow code may reject the update. Its result is shown here.",
    act: "Send",
    send: async (run, name, input) => {
      const answer = await api.update(run, name, input);
      return answer.update_status === "completed" ? answer.result : `accepted, result pending (update ${answer.update_id})`;
    },
  },
  query: {
    title: "Query workflow",
    says: "Read-only. A worker with the workflow code answers.",
    act: "Run query",
    send: async (run, name, input) => (await api.query(run, name, input)).result,
  },
};

/** Sends a signal, an update or a query to a run and shows the result. A signal has none. */
export function Ask({ kind, run, onClose, named }: { kind: Kind; run: RunView; onClose: () => void; named?: string }) {
  const client = useQueryClient();
  const waits = kind === "signal" ? (run.pending?.waits ?? []).map((w) => w.signal_name).filter(Boolean) : [];
  const [name, setName] = useState(named ?? waits[0] ?? "");
  const [input, setInput] = useState("");
  const [wrong, setWrong] = useState<Error | null>(null);
  const { title, says, act, send } = kinds[kind];
  const m = useMutation({
    mutationFn: () => send(run, name.trim(), parseArguments(input)),
    onSuccess: async (answer) => {
      if (answer === undefined) onClose();
      if (kind === "query") return;
      await client.invalidateQueries({ queryKey: keys.run(run.run_id) });
      await client.invalidateQueries({ queryKey: keys.runs });
    },
  });
  const submit = () => {
    try {
      parseArguments(input);
      if (!name.trim()) throw new Error("Name is required.");
    } catch (e) {
      setWrong(e instanceof SyntaxError ? new Error(`Arguments are not valid JSON: ${e.message}`) : (e as Error));
      return;
    }
    setWrong(null);
    m.mutate();
  };
  return (
    <Dialog open onClose={onClose} title={title} description={waits.length > 0 ? `The run waits for signal ${waits.join(", ")}.` : says}>
      <Form error={wrong ?? m.error} pending={m.isPending} onSubmit={submit} onClose={onClose} act={m.isPending ? "Waiting…" : act}>
        <label className="block">
          <span className="label">Name</span>
          <input className="field mt-1 font-mono" spellCheck={false} autoComplete="off" list="open-waits" value={name} onChange={(e) => setName(e.target.value)} />
        </label>
        <datalist id="open-waits">
          {waits.map((o) => (
            <option key={o} value={o} />
          ))}
        </datalist>
        <label className="mt-3 block">
          <span className="label">Arguments (JSON: array, or one value)</span>
          <textarea className="field mt-1 font-mono text-[13px]" rows={3} spellCheck={false} placeholder="true" value={input} onChange={(e) => setInput(e.target.value)} />
        </label>
        {m.data !== undefined && !m.isPending && (
          <div className="mt-3" role="status">
            <span className="label">Result</span>
            <div className="mt-1" data-answer>
              <JsonView value={m.data} what="result" />
            </div>
          </div>
        )}
      </Form>
    </Dialog>
  );
}
