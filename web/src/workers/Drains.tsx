import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { api } from "../api/client";
import { drainsQuery, keys } from "../api/queries";
import type { FleetDrain, FleetRequest, FleetVerb, WorkerView } from "../api/types";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { When } from "../ui/When";
import { deadline, progress, severals } from "./drains";
import { Reason } from "./Reason";
import { drainedAs } from "./why";

/** Drains of groups, builds and releases with their progress. A drain of one worker is shown with the worker. */
export function Drains({ namespace }: { namespace: string }) {
  const { data } = useQuery(drainsQuery(namespace));
  const all = (data?.drains ?? []).filter((d) => !d.worker_id);
  if (all.length === 0) return null;
  return (
    <ul aria-label="Drains" className="card mb-3 divide-y divide-line">
      {all.map((d) => (
        <One key={drainedAs(d)} drain={d} />
      ))}
    </ul>
  );
}

function One({ drain: d }: { drain: FleetDrain }) {
  const [asked, setAsked] = useState(false);
  const name = drainedAs(d);
  return (
    <li className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2 px-4 py-2.5 text-[13px]" data-drain={name} data-state={d.state}>
      <span className="min-w-0 wrap-anywhere">
        <span className="font-medium">{d.evict ? "Eviction" : "Drain"} of {name}</span>
        {d.by && <>, requested {d.by === "local" ? "without sign-in" : `by ${d.by}`}</>}
        {d.reason && <>: {d.reason}</>}. <span className="text-soft">{progress(d)}</span>
        {d.deadline_at && (
          <span className="text-soft">
            {" "}
            Remaining workers are evicted <When value={d.deadline_at} />.
          </span>
        )}
      </span>
      <Act needs="operator" onClick={() => setAsked(true)}>
        Resume
      </Act>
      {asked && <Resume drain={d} onClose={() => setAsked(false)} />}
    </li>
  );
}

/** Sends a request to the fleet and reloads the workers. */
function useVerb(namespace: string, onClose: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ verb, body }: { verb: FleetVerb; body: FleetRequest }) => api.operateFleet(namespace, verb, body),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.workers });
    },
  });
}

function Resume({ drain: d, onClose }: { drain: FleetDrain; onClose: () => void }) {
  const m = useVerb(d.namespace, onClose);
  const body: FleetRequest = d.group ? { group: d.group } : d.build_id ? { build_id: d.build_id } : { release: d.release ?? "" };
  return (
    <Dialog open onClose={onClose} title={`Resume ${drainedAs(d)}?`} description="Its workers get tasks again. Released sessions stay released.">
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate({ verb: "resume", body })} onClose={onClose} act="Resume workers">
        {null}
      </Form>
    </Dialog>
  );
}

/** Drains or evicts all workers of a group, a build or a release. */
export function DrainSeveral({ namespace, workers }: { namespace: string; workers: readonly WorkerView[] }) {
  const [open, setOpen] = useState(false);
  const none = severals(workers).length === 0 && "No worker has a group, a build ID or a release.";
  return (
    <>
      <Act needs="operator" why={none} onClick={() => setOpen(true)}>
        Drain workers…
      </Act>
      {open && <SeveralDialog namespace={namespace} workers={workers} onClose={() => setOpen(false)} />}
    </>
  );
}

function SeveralDialog({ namespace, workers, onClose }: { namespace: string; workers: readonly WorkerView[]; onClose: () => void }) {
  const all = severals(workers);
  const [id, setId] = useState(all[0]?.id ?? "");
  const [leave, setLeave] = useState(false);
  const [minutes, setMinutes] = useState("");
  const [reason, setReason] = useState("");
  const [wrong, setWrong] = useState(false);
  const hint = useId();
  const m = useVerb(namespace, onClose);
  const chosen = all.find((s) => s.id === id) ?? all[0];
  const submit = () => {
    const seconds = leave ? undefined : deadline(minutes);
    setWrong(seconds === null);
    if (seconds === null || !chosen) return;
    const body = { ...chosen.target, ...(seconds && { deadline_seconds: seconds }), ...(reason.trim() && { reason: reason.trim() }) };
    m.mutate({ verb: leave ? "evict" : "drain", body });
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title="Drain workers"
      description="The workers get no new tasks; running tasks finish. Workers that register later are included until the drain is resumed."
    >
      <Form error={m.error} at={wrong} pending={m.isPending} onSubmit={submit} onClose={onClose} act={leave ? "Evict workers" : "Drain workers"} danger={leave}>
        <label className="block">
          <span className="label">Workers of</span>
          <select className="field mt-1" value={chosen?.id ?? ""} onChange={(e) => setId(e.target.value)}>
            {all.map((s) => (
              <option key={s.id} value={s.id}>
                {s.name}, {s.workers === 1 ? "1 worker" : `${s.workers} workers`}
              </option>
            ))}
          </select>
        </label>
        <label className="mt-3 block">
          <span className="label">Mode</span>
          <select className="field mt-1" value={leave ? "leave" : "stay"} onChange={(e) => setLeave(e.target.value === "leave")}>
            <option value="stay">Drain: processes keep running</option>
            <option value="leave">Evict: processes exit</option>
          </select>
        </label>
        {!leave && (
          <label className="mt-3 block">
            <span className="label">Evict after (minutes)</span>
            <input
              className="field mt-1"
              inputMode="decimal"
              placeholder="never"
              value={minutes}
              aria-invalid={wrong || undefined}
              aria-describedby={wrong ? hint : undefined}
              onChange={(e) => setMinutes(e.target.value)}
            />
            {wrong && (
              <span id={hint} className="mt-1 block text-bad">
                A number of minutes above 0, at most a year, or empty.
              </span>
            )}
          </label>
        )}
        <Reason value={reason} onChange={setReason} />
      </Form>
    </Dialog>
  );
}
