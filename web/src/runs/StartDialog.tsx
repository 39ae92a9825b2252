import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import { keys, searchAttributesQuery, workersQuery } from "../api/queries";
import { faults, wrong } from "../lib/faults";
import { readInput, readObject, readWhole } from "../lib/input";
import { Dialog } from "../ui/Dialog";
import { Field, type Control } from "../ui/Field";
import { Form } from "../ui/Form";

const fields = [
  "workflow_type", "workflow_id", "task_queue", "business_key", "input", "memo", "search_attributes", "priority", "start_delay_seconds",
] as const;

type Name = (typeof fields)[number];

/** Starts a workflow, and goes to its run. */
export default function StartDialog({ namespace, onClose }: { namespace: string; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [text, setText] = useState<Partial<Record<Name, string>>>({});
  const workers = useQuery(workersQuery(namespace)).data?.workers ?? [];
  const attributes = useQuery(searchAttributesQuery(namespace)).data?.custom_attributes ?? {};
  const type = text.workflow_type?.trim() ?? "";
  // Where one queue alone has workers for the type, it is meant.
  const queues = [...new Set(workers.filter((w) => w.supported_workflow_types?.includes(type)).flatMap((w) => w.task_queues ?? [w.task_queue]))];
  const queue = text.task_queue ?? (queues.length === 1 ? queues[0]! : "");
  const m = useMutation({
    mutationFn: async () => {
      if (!type) throw wrong("workflow_type", "say what to start");
      const said = (name: Name) => (text[name]?.trim() ? { [name]: text[name]!.trim() } : {});
      const parts = {
        input: readInput(text.input ?? "", "input"),
        memo: readObject(text.memo ?? "", "memo"),
        search_attributes: readObject(text.search_attributes ?? "", "search_attributes"),
        priority: readWhole(text.priority ?? "", "priority", 0, 9),
        start_delay_seconds: readWhole(text.start_delay_seconds ?? "", "start_delay_seconds", 0),
      };
      return api.start(namespace, { workflow_type: type, ...said("workflow_id"), ...said("business_key"), ...(queue.trim() && { task_queue: queue.trim() }), ...parts });
    },
    onSuccess: async (run) => {
      onClose();
      void client.invalidateQueries({ queryKey: keys.runs });
      await navigate({ to: "/runs/$runId", params: { runId: run.run_id } });
    },
  });
  const f = faults(m.error, fields, { duplicate_not_allowed: "workflow_id" });
  const set = (name: Name) => (e: { target: { value: string } }) => setText({ ...text, [name]: e.target.value });
  const line = (name: Name, list?: string) => (c: Control) => (
    <input {...c} spellCheck={false} autoComplete="off" autoCapitalize="none" list={list} value={name === "task_queue" ? queue : (text[name] ?? "")} onChange={set(name)} />
  );
  const area = (name: Name, rows: number, placeholder: string) => (c: Control) => (
    <textarea {...c} rows={rows} spellCheck={false} placeholder={placeholder} value={text[name] ?? ""} onChange={set(name)} />
  );
  const known = Object.entries(attributes).map(([n, t]) => `${n} (${t})`).join(", ");
  return (
    <Dialog open wide onClose={onClose} title="Start a workflow" description={`In the namespace ${namespace}.`}>
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={m.isPending ? "Starting…" : "Start it"}>
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Workflow type" error={f.at("workflow_type")}>{line("workflow_type", "start-types")}</Field>
          <Field label="Task queue" error={f.at("task_queue")} hint="default when empty">{line("task_queue", "start-queues")}</Field>
          <Field label="Workflow id" mono className="sm:col-span-2" error={f.at("workflow_id")} hint="Used once. One is made when this is empty">{line("workflow_id")}</Field>
          <Field label="Input, as JSON: a list of arguments, or one value" mono className="sm:col-span-2" error={f.at("input")}>
            {area("input", 4, '[{"order": 1234}]')}
          </Field>
          <Field label="Memo, a JSON object" mono error={f.at("memo")}>{area("memo", 2, '{"who": "Ada"}')}</Field>
          <Field label="Search attributes, a JSON object" mono error={f.at("search_attributes")} hint={known && `Registered: ${known}`}>
            {area("search_attributes", 2, '{"Amount": 100}')}
          </Field>
          <Field label="Business key" error={f.at("business_key")}>{line("business_key")}</Field>
          <div className="grid grid-cols-2 gap-3">
            <Field label="Priority" error={f.at("priority")} hint="0 first, 9 last">{line("priority")}</Field>
            <Field label="Seconds before it begins" error={f.at("start_delay_seconds")}>{line("start_delay_seconds")}</Field>
          </div>
        </div>
        <datalist id="start-types">
          {[...new Set(workers.flatMap((w) => w.supported_workflow_types ?? []))].sort().map((o) => (
            <option key={o} value={o} />
          ))}
        </datalist>
        <datalist id="start-queues">
          {[...new Set(workers.flatMap((w) => w.task_queues ?? [w.task_queue]))].sort().map((o) => (
            <option key={o} value={o} />
          ))}
        </datalist>
      </Form>
    </Dialog>
  );
}
