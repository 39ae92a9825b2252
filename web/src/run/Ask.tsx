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
    title: "Send a signal",
    says: "The run keeps it until its code asks.",
    act: "Send",
    send: async (run, name, input) => {
      await api.signal(run, name, input);
      return undefined;
    },
  },
  update: {
    title: "Send an update",
    says: "Its code may refuse it; what it answers is shown here.",
    act: "Send",
    send: async (run, name, input) => {
      const answer = await api.update(run, name, input);
      return answer.update_status === "completed" ? answer.result : `accepted, and not answered yet (update ${answer.update_id})`;
    },
  },
  query: {
    title: "Ask a query",
    says: "A worker that has its code answers, and nothing changes.",
    act: "Ask",
    send: async (run, name, input) => (await api.query(run, name, input)).result,
  },
};

/** Sends something with a name and arguments to a run. What comes back is shown; a signal brings nothing back. */
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
      if (!name.trim()) throw new Error(`${kind === "signal" ? "A" : kind === "update" ? "An" : "A"} ${kind} needs a name.`);
    } catch (e) {
      setWrong(e instanceof SyntaxError ? new Error(`The arguments are not JSON: ${e.message}`) : (e as Error));
      return;
    }
    setWrong(null);
    m.mutate();
  };
  return (
    <Dialog open onClose={onClose} title={title} description={waits.length > 0 ? `The run waits for ${waits.join(", ")}.` : says}>
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
          <span className="label">Arguments, as JSON: a list, or one value</span>
          <textarea className="field mt-1 font-mono text-[13px]" rows={3} spellCheck={false} placeholder="true" value={input} onChange={(e) => setInput(e.target.value)} />
        </label>
        {m.data !== undefined && !m.isPending && (
          <div className="mt-3" role="status">
            <span className="label">Answer</span>
            <div className="mt-1" data-answer>
              <JsonView value={m.data} what="answer" />
            </div>
          </div>
        )}
      </Form>
    </Dialog>
  );
}
