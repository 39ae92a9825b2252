import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import { keys, searchAttributesQuery, workersQuery } from "../api/queries";
import type { WorkerView } from "../api/types";
import { faults, wrong } from "../lib/faults";
import { readInput, readObject, readTries, readWhole } from "../lib/input";
import { Dialog } from "../ui/Dialog";
import { Field, type Control } from "../ui/Field";
import { Form } from "../ui/Form";

const limits = ["start_to_close_timeout", "heartbeat_timeout", "schedule_to_start_timeout", "schedule_to_close_timeout"] as const;
const fields = [
  "workflow_type", "activity_type", "workflow_id", "task_queue", "business_key", "input", "memo", "search_attributes", "priority", "start_delay_seconds",
  "session_id", "affinity", "retry_policy.max_attempts", "retry_policy.backoff_seconds", ...limits,
] as const;

type Name = (typeof fields)[number];

/** Starts a workflow, or an activity without one, and opens its run. */
export default function StartDialog({ namespace, onClose }: { namespace: string; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [alone, setAlone] = useState(false); // whether an activity is started instead of a workflow
  const typeField = alone ? "activity_type" : "workflow_type";
  const typesOf = (w: WorkerView) => (alone ? w.supported_activity_types : w.supported_workflow_types) ?? [];
  const [text, setText] = useState<Partial<Record<Name, string>>>({});
  const workers = useQuery(workersQuery(namespace)).data?.workers ?? [];
  const attributes = useQuery(searchAttributesQuery(namespace)).data?.custom_attributes ?? {};
  const type = text[typeField]?.trim() ?? "";
  // The default queue of a type is the only queue whose workers registered it, if there is exactly one.
  const queues = [...new Set(workers.filter((w) => typesOf(w).includes(type)).flatMap((w) => w.task_queues ?? [w.task_queue]))];
  const queue = text.task_queue ?? (queues.length === 1 ? queues[0]! : "");
  const m = useMutation({
    mutationFn: async () => {
      if (!type) throw wrong(typeField, "is required");
      const trimmed = (name: Name) => (text[name]?.trim() ? { [name]: text[name]!.trim() } : {});
      const whole = (name: Name, least: number) => readWhole(text[name] ?? "", name, least);
      const parts = {
        ...trimmed("workflow_id"), ...trimmed("business_key"), ...(queue.trim() && { task_queue: queue.trim() }),
        input: readInput(text.input ?? "", "input"),
        memo: readObject(text.memo ?? "", "memo"),
        search_attributes: readObject(text.search_attributes ?? "", "search_attributes"),
        priority: readWhole(text.priority ?? "", "priority", 0, 9),
        ...given({ start_delay_seconds: whole("start_delay_seconds", 0) }),
      };
      if (!alone) return api.start(namespace, { workflow_type: type, ...parts });
      return api.startActivity(namespace, {
        activity_type: type, ...parts, ...trimmed("session_id"), ...(text.session_id?.trim() && trimmed("affinity")),
        ...given({ retry_policy: readTries(text["retry_policy.max_attempts"] ?? "", text["retry_policy.backoff_seconds"] ?? "") }),
        ...given(Object.fromEntries(limits.map((name) => [name, whole(name, 1)]))),
      });
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
    <Dialog open wide onClose={onClose} title={alone ? "Start activity" : "Start workflow"} description={`Namespace ${namespace}`}>
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={m.isPending ? "Starting…" : "Start"}>
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Kind" className="sm:col-span-2">
            {(c) => (
              <select {...c} value={alone ? "activity" : "workflow"} onChange={(e) => setAlone(e.target.value === "activity")}>
                <option value="workflow">Workflow</option>
                <option value="activity">Activity without a workflow</option>
              </select>
            )}
          </Field>
          <Field label={alone ? "Activity type" : "Workflow type"} error={f.at(typeField)}>{line(typeField, "start-types")}</Field>
          <Field label="Task queue" error={f.at("task_queue")} hint="Empty: default">{line("task_queue", "start-queues")}</Field>
          <Field label="Workflow ID" mono className="sm:col-span-2" error={f.at("workflow_id")} hint="Generated if empty">{line("workflow_id")}</Field>
          <Field label="Input (JSON: array of arguments, or one value)" mono className="sm:col-span-2" error={f.at("input")}>
            {area("input", 4, '[{"order": 1234}]')}
          </Field>
          {alone && (
            <>
              <Field label="Session ID" error={f.at("session_id")} hint="Optional: run on the owner of this session">{line("session_id")}</Field>
              <Field label="If the session owner is unavailable" error={f.at("affinity")}>
                {(c) => (
                  <select {...c} disabled={!text.session_id?.trim()} value={text.affinity ?? ""} onChange={set("affinity")}>
                    <option value="">Wait for the owner</option>
                    <option value="soft">Use another worker after a delay</option>
                  </select>
                )}
              </Field>
              <Field label="Maximum attempts" error={f.at("retry_policy.max_attempts")} hint="Empty: 1; 0: unlimited">{line("retry_policy.max_attempts")}</Field>
              <Field label="Retry backoff (s)" error={f.at("retry_policy.backoff_seconds")} hint="Example: 1, 10, 60; the last value repeats">{line("retry_policy.backoff_seconds")}</Field>
              <Field label="Start-to-close timeout (s)" error={f.at("start_to_close_timeout")}>{line("start_to_close_timeout")}</Field>
              <Field label="Heartbeat timeout (s)" error={f.at("heartbeat_timeout")}>{line("heartbeat_timeout")}</Field>
              <Field label="Schedule-to-start timeout (s)" error={f.at("schedule_to_start_timeout")}>{line("schedule_to_start_timeout")}</Field>
              <Field label="Schedule-to-close timeout (s)" error={f.at("schedule_to_close_timeout")}>{line("schedule_to_close_timeout")}</Field>
            </>
          )}
          <Field label="Memo (JSON object)" mono error={f.at("memo")}>{area("memo", 2, '{"owner": "Ada"}')}</Field>
          <Field label="Search attributes (JSON object)" mono error={f.at("search_attributes")} hint={known && `Registered: ${known}`}>
            {area("search_attributes", 2, '{"Amount": 100}')}
          </Field>
          <Field label="Business key" error={f.at("business_key")}>{line("business_key")}</Field>
          <div className="grid grid-cols-2 gap-3">
            <Field label="Priority" error={f.at("priority")} hint="0 (highest) to 9 (lowest)">{line("priority")}</Field>
            <Field label="Start delay (s)" error={f.at("start_delay_seconds")}>{line("start_delay_seconds")}</Field>
          </div>
        </div>
        <datalist id="start-types">
          {[...new Set(workers.flatMap(typesOf))].sort().map((o) => (
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

/** An object without its undefined members. */
const given = <T extends object>(all: T) => Object.fromEntries(Object.entries(all).filter(([, v]) => v !== undefined)) as { [K in keyof T]?: NonNullable<T[K]> };
