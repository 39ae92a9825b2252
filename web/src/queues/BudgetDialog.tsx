import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { Budget, QueueState } from "../api/types";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { parseBudget } from "./facts";

type Field = "workflow_tasks.max_active_leases" | "workflow_tasks.max_dispatches_per_minute" | "activity_tasks.max_active_leases" | "activity_tasks.max_dispatches_per_minute";

const fields: { field: Field; name: string }[] = [
  { field: "workflow_tasks.max_active_leases", name: "Concurrent workflow tasks" },
  { field: "workflow_tasks.max_dispatches_per_minute", name: "Workflow tasks started per minute" },
  { field: "activity_tasks.max_active_leases", name: "Concurrent activities" },
  { field: "activity_tasks.max_dispatches_per_minute", name: "Activities started per minute" },
];

/** Edits the limits of a queue; an empty field means no limit. */
export function BudgetDialog({ queue: q, onClose }: { queue: QueueState; onClose: () => void }) {
  const client = useQueryClient();
  const [text, setText] = useState<Record<Field, string>>(() => {
    const start = {} as Record<Field, string>;
    for (const { field } of fields) {
      const [kind, bound] = field.split(".") as ["workflow_tasks" | "activity_tasks", keyof Budget];
      start[field] = String(q.limits?.[kind]?.[bound] ?? "");
    }
    return start;
  });
  const m = useMutation({
    mutationFn: () => {
      const of = (kind: "workflow_tasks" | "activity_tasks"): Budget => ({
        max_active_leases: parseBudget(text[`${kind}.max_active_leases`]),
        max_dispatches_per_minute: parseBudget(text[`${kind}.max_dispatches_per_minute`]),
      });
      return api.limitQueue(q, { workflow_tasks: of("workflow_tasks"), activity_tasks: of("activity_tasks") });
    },
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.queues(q.namespace) });
    },
  });
  return (
    <Dialog open onClose={onClose} title={`Limits of ${q.name}`} description="Maximum across all workers. Empty: unlimited.">
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Save">
        <div className="grid grid-cols-2 items-end gap-3">
          {fields.map(({ field, name }) => (
            <label key={field} className="block">
              <span className="label">{name}</span>
              <input className="field mt-1" inputMode="numeric" value={text[field]} onChange={(e) => setText({ ...text, [field]: e.target.value })} />
            </label>
          ))}
        </div>
      </Form>
    </Dialog>
  );
}
