import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import { keys, workersQuery } from "../api/queries";
import type { Schedule } from "../api/types";
import { faults } from "../lib/faults";
import { useZone } from "../lib/prefs";
import { Dialog } from "../ui/Dialog";
import { Field, type Control } from "../ui/Field";
import { Form } from "../ui/Form";
import { draftOf, fields, overlaps, requestOf, type Draft } from "./draft";
import { Preview, useTimes } from "./Preview";

interface Props {
  namespace: string;
  of?: Schedule;
  onClose: () => void;
}

const zones = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];

/** Creates or edits a schedule and shows its upcoming times while it is being typed. */
export default function ScheduleDialog({ namespace, of, onClose }: Props) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const zone = useZone();
  const [d, setDraft] = useState(() => draftOf(of, zone === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone));
  const times = useTimes(d);
  const workers = useQuery(workersQuery(namespace)).data?.workers ?? [];
  const m = useMutation({
    mutationFn: async () => {
      const request = requestOf(d, of);
      if (!of) return (await api.createSchedule(namespace, request)).schedule_id;
      await api.updateSchedule(of, request);
      return of.schedule_id;
    },
    onSuccess: async (id) => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.schedules(namespace) });
      if (!of) void navigate({ to: "/schedules/$schedule", params: { schedule: id } });
    },
  });
  const f = faults(m.error, fields, { schedule_already_exists: "schedule_id" });
  const early = faults(times.error, fields); // errors of the spec, before the form is submitted
  const at = (field: string) => f.at(field) || early.at(field);
  const set = (name: keyof Draft) => (e: { target: { value: string } }) => setDraft({ ...d, [name]: e.target.value });
  const line = (name: keyof Draft, list?: string) => (c: Control) => (
    <input {...c} spellCheck={false} autoComplete="off" autoCapitalize="none" list={list} value={String(d[name])} onChange={set(name)} />
  );
  const area = (name: keyof Draft, rows: number, placeholder: string) => (c: Control) => (
    <textarea {...c} rows={rows} spellCheck={false} placeholder={placeholder} value={String(d[name])} onChange={set(name)} />
  );
  return (
    <Dialog open wide onClose={onClose} title={of ? `Edit ${of.schedule_id}` : "New schedule"} description={of ? "Changes apply to future runs." : `Namespace ${namespace}`}>
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={of ? "Save" : "Create schedule"}>
        <div className="grid gap-3 sm:grid-cols-2">
          {!of && (
            <Field label="Schedule ID" mono className="sm:col-span-2" error={at("schedule_id")} hint="Letters, digits and . _ : - ; generated if empty">
              {line("id")}
            </Field>
          )}
          <Part title="Timing" />
          <Field label="Cron expressions (one per line)" mono error={at("spec.cron_expressions") || at("spec")} hint="minute hour day month weekday, or @hourly, @daily, …">
            {area("cron", 2, "0 9 * * 1-5")}
          </Field>
          <Field label="Intervals (one per line)" mono error={at("spec.intervals")} hint="30m, 1h 30m, 1d + 6h (offset of 6 hours)">
            {area("intervals", 2, "30m")}
          </Field>
          <Field label="Time zone of cron expressions" mono error={at("spec.timezone")}>
            {line("zone", "time-zones")}
          </Field>
          <Field label="Jitter (s)" error={at("jitter_seconds")} hint="Maximum random delay of each run">
            {line("jitter")}
          </Field>
          <Preview times={times} />
          <Part title="Action" />
          <Field label="Kind" className="sm:col-span-2">
            {(c) => (
              <select {...c} value={d.alone ? "activity" : "workflow"} onChange={(e) => setDraft({ ...d, alone: e.target.value === "activity" })}>
                <option value="workflow">Workflow</option>
                <option value="activity">Activity without a workflow</option>
              </select>
            )}
          </Field>
          <Field label={d.alone ? "Activity type" : "Workflow type"} error={at(d.alone ? "action.activity_type" : "action.workflow_type")}>{line("type", "run-types")}</Field>
          <Field label="Task queue" error={at("action.task_queue")} hint="Empty: default">{line("queue", "task-queues")}</Field>
          <Field label="Input (JSON: array of arguments, or one value)" mono className="sm:col-span-2" error={at("action.input")}>
            {area("input", 3, '[{"customer": "all"}]')}
          </Field>
          {d.alone && (
            <>
              <Field label="Session ID" error={at("action.session_id")} hint="Optional: run on the owner of this session">{line("session")}</Field>
              <Field label="Start-to-close timeout (s)" error={at("action.start_to_close_timeout")}>{line("startToClose")}</Field>
              <Field label="Maximum attempts" error={at("action.retry_policy.max_attempts")} hint="Empty: 1; 0: unlimited">{line("attempts")}</Field>
              <Field label="Retry backoff (s)" error={at("action.retry_policy.backoff_seconds")} hint="Example: 1, 10, 60; the last value repeats">{line("backoff")}</Field>
            </>
          )}
          <Part title="Policies" />
          <Field label="Overlap policy" error={at("overlap_policy")}>
            {(c) => (
              <select {...c} value={d.overlap} onChange={set("overlap")}>
                {overlaps.map(([policy, says]) => (
                  <option key={policy} value={policy}>
                    {says}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label="Maximum number of runs" error={at("max_runs")} hint="Empty: unlimited">{line("maxRuns")}</Field>
          <Field label="Note" className="sm:col-span-2" error={at("note")}>{line("note")}</Field>
          <label className="flex items-center gap-2.5 sm:col-span-2">
            <input type="checkbox" className="size-4 accent-(--accent)" checked={d.paused} onChange={(e) => setDraft({ ...d, paused: e.target.checked })} />
            Paused: runs only when triggered manually
          </label>
          <details className="sm:col-span-2" open={Boolean(at("action.memo") || at("action.search_attributes") || at("action.workflow_id")) || undefined}>
            <summary className="text-[13px] text-soft">More options</summary>
            <div className="mt-2 grid gap-3 sm:grid-cols-2">
              <Field label="Workflow ID prefix" mono className="sm:col-span-2" error={at("action.workflow_id")} hint="The scheduled time is appended. Empty: the schedule ID">
                {line("workflowId")}
              </Field>
              <Field label="Memo (JSON object)" mono error={at("action.memo")}>{area("memo", 2, '{"owner": "billing"}')}</Field>
              <Field label="Search attributes (JSON object)" mono error={at("action.search_attributes")}>{area("attributes", 2, '{"Region": "eu"}')}</Field>
            </div>
          </details>
        </div>
        <Options id="time-zones" of={["UTC", ...zones]} />
        <Options id="run-types" of={workers.flatMap((w) => (d.alone ? w.supported_activity_types : w.supported_workflow_types) ?? [])} />
        <Options id="task-queues" of={workers.flatMap((w) => w.task_queues ?? [])} />
      </Form>
    </Dialog>
  );
}

const Part = ({ title }: { title: string }) => <h3 className="mt-1 text-[13px] font-semibold sm:col-span-2">{title}</h3>;

function Options({ id, of }: { id: string; of: string[] }) {
  return (
    <datalist id={id}>
      {[...new Set(of)].sort().map((o) => (
        <option key={o} value={o} />
      ))}
    </datalist>
  );
}
