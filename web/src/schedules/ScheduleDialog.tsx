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

/** Makes a schedule, or changes the one given; shows when it would fire while it is typed. */
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
  const early = faults(times.error, fields); // what is wrong with the times is seen before anything is sent
  const at = (field: string) => f.at(field) || early.at(field);
  const set = (name: keyof Draft) => (e: { target: { value: string } }) => setDraft({ ...d, [name]: e.target.value });
  const line = (name: keyof Draft, list?: string) => (c: Control) => (
    <input {...c} spellCheck={false} autoComplete="off" autoCapitalize="none" list={list} value={String(d[name])} onChange={set(name)} />
  );
  const area = (name: keyof Draft, rows: number, placeholder: string) => (c: Control) => (
    <textarea {...c} rows={rows} spellCheck={false} placeholder={placeholder} value={String(d[name])} onChange={set(name)} />
  );
  return (
    <Dialog open wide onClose={onClose} title={of ? `Change ${of.schedule_id}` : "New schedule"} description={of ? "From now on it fires at these times." : `In the namespace ${namespace}.`}>
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={of ? "Change the schedule" : "Create the schedule"}>
        <div className="grid gap-3 sm:grid-cols-2">
          {!of && (
            <Field label="Schedule id" mono className="sm:col-span-2" error={at("schedule_id")} hint="Letters, digits and . _ : - ; one is made when this is empty">
              {line("id")}
            </Field>
          )}
          <Part title="When" />
          <Field label="Cron expressions, one a line" mono error={at("spec.cron_expressions") || at("spec")} hint="minute, hour, day, month, weekday; or @hourly and the like">
            {area("cron", 2, "0 9 * * 1-5")}
          </Field>
          <Field label="Intervals, one a line" mono error={at("spec.intervals")} hint="30m, 1h 30m, 1d + 6h (moved by six hours)">
            {area("intervals", 2, "30m")}
          </Field>
          <Field label="Time zone of the expressions" mono error={at("spec.timezone")}>
            {line("zone", "time-zones")}
          </Field>
          <Field label="At most so many seconds late, to spread load" error={at("jitter_seconds")}>
            {line("jitter")}
          </Field>
          <Preview times={times} />
          <Part title="What it starts" />
          <Field label="What to start" className="sm:col-span-2">
            {(c) => (
              <select {...c} value={d.alone ? "activity" : "workflow"} onChange={(e) => setDraft({ ...d, alone: e.target.value === "activity" })}>
                <option value="workflow">A workflow</option>
                <option value="activity">An activity by itself, without a workflow</option>
              </select>
            )}
          </Field>
          <Field label={d.alone ? "Activity type" : "Workflow type"} error={at(d.alone ? "action.activity_type" : "action.workflow_type")}>{line("type", "run-types")}</Field>
          <Field label="Task queue" error={at("action.task_queue")} hint="default when empty">{line("queue", "task-queues")}</Field>
          <Field label="Input, as JSON: a list of arguments, or one value" mono className="sm:col-span-2" error={at("action.input")}>
            {area("input", 3, '[{"customer": "all"}]')}
          </Field>
          {d.alone && (
            <>
              <Field label="Session" error={at("action.session_id")} hint="Where it runs; empty: anywhere">{line("session")}</Field>
              <Field label="Seconds one attempt may take" error={at("action.start_to_close_timeout")}>{line("startToClose")}</Field>
              <Field label="Attempts" error={at("action.retry_policy.max_attempts")} hint="1 when empty; 0: until it succeeds">{line("attempts")}</Field>
              <Field label="Seconds between attempts" error={at("action.retry_policy.backoff_seconds")} hint="As 1, 10, 60: the last one stays">{line("backoff")}</Field>
            </>
          )}
          <Part title="How" />
          <Field label="While the last one is open" error={at("overlap_policy")}>
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
          <Field label="Ends after so many firings" error={at("max_runs")} hint="never when empty">{line("maxRuns")}</Field>
          <Field label="Note, for people" className="sm:col-span-2" error={at("note")}>{line("note")}</Field>
          <label className="flex items-center gap-2.5 sm:col-span-2">
            <input type="checkbox" className="size-4 accent-(--accent)" checked={d.paused} onChange={(e) => setDraft({ ...d, paused: e.target.checked })} />
            Paused: it fires only when triggered
          </label>
          <details className="sm:col-span-2" open={Boolean(at("action.memo") || at("action.search_attributes") || at("action.workflow_id")) || undefined}>
            <summary className="text-[13px] text-soft">More about the runs</summary>
            <div className="mt-2 grid gap-3 sm:grid-cols-2">
              <Field label="Their workflow ids begin with" mono className="sm:col-span-2" error={at("action.workflow_id")} hint="The time of the firing follows. The schedule's id when empty">
                {line("workflowId")}
              </Field>
              <Field label="Memo, a JSON object" mono error={at("action.memo")}>{area("memo", 2, '{"who": "billing"}')}</Field>
              <Field label="Search attributes, a JSON object" mono error={at("action.search_attributes")}>{area("attributes", 2, '{"Region": "eu"}')}</Field>
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
