import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { ScheduleReceipt, Schedule } from "../api/types";
import { faults, wrong } from "../lib/faults";
import { count } from "../lib/format";
import { useZone } from "../lib/prefs";
import { words } from "../lib/status";
import { zoneName, type Zone } from "../lib/time";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import { Form } from "../ui/Form";
import { When } from "../ui/When";
import { overlaps } from "./draft";

/** The value of a datetime-local field, which has no zone, as an RFC 3339 time. */
export function instant(text: string, zone: Zone, field: string): string {
  const at = new Date(zone === "utc" ? `${text}Z` : text);
  if (!text || Number.isNaN(at.getTime())) throw wrong(field, "is required");
  return at.toISOString();
}

/** Runs a schedule for past times and shows the outcome of each. */
export default function BackfillDialog({ schedule: s, onClose }: { schedule: Schedule; onClose: () => void }) {
  const client = useQueryClient();
  const zone = useZone();
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  const [overlap, setOverlap] = useState("");
  const m = useMutation({
    mutationFn: async () => api.backfillSchedule(s, instant(from, zone, "start_time"), instant(to, zone, "end_time"), overlap),
    onSettled: () => client.invalidateQueries({ queryKey: keys.schedules(s.namespace) }),
  });
  const f = faults(m.error, ["start_time", "end_time", "overlap_policy"]);
  return (
    <Dialog open onClose={onClose} title="Backfill" description={`Runs ${s.schedule_id} now for every scheduled time in this range, both ends included.`}>
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={m.isPending ? "Starting…" : "Start backfill"}>
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label={`From (${zoneName(zone)})`} error={f.at("start_time")}>
            {(c) => <input {...c} type="datetime-local" step={1} value={from} onChange={(e) => setFrom(e.target.value)} />}
          </Field>
          <Field label={`To (${zoneName(zone)})`} error={f.at("end_time")}>
            {(c) => <input {...c} type="datetime-local" step={1} value={to} onChange={(e) => setTo(e.target.value)} />}
          </Field>
          <Field label="Overlap policy" className="sm:col-span-2" error={f.at("overlap_policy")}>
            {(c) => (
              <select {...c} value={overlap} onChange={(e) => setOverlap(e.target.value)}>
                <option value="">Policy of the schedule: {overlaps.find(([p]) => p === s.overlap_policy)?.[1] ?? words(s.overlap_policy)}</option>
                {overlaps.map(([policy, says]) => (
                  <option key={policy} value={policy}>
                    {says}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </div>
        {m.data && !m.isPending && <Came of={m.data} />}
      </Form>
    </Dialog>
  );
}

function Came({ of }: { of: ScheduleReceipt }) {
  const results = of.results ?? [];
  const tally = new Map<string, number>();
  for (const r of results) tally.set(r.outcome, (tally.get(r.outcome) ?? 0) + 1);
  return (
    <div role="status" className="mt-3 rounded-lg bg-sunken px-3 py-2" data-backfilled={of.fires_attempted}>
      <p className="font-medium">
        {of.fires_attempted === 0 ? "No scheduled time in this range." : [...tally].map(([what, n]) => `${count(n)} ${words(what)}`).join(", ")}
      </p>
      <ol className="mt-1 max-h-44 overflow-y-auto" tabIndex={0} aria-label="Results">
        {results.map((r) => (
          <li key={r.fire_time} className="flex flex-wrap justify-between gap-x-3 text-[13px]">
            <When value={r.fire_time} form="absolute" />
            <span className="text-soft">
              {words(r.outcome)}
              {r.reason && `: ${words(r.reason)}`}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}
