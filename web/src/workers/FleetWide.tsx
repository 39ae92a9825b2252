import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { api } from "../api/client";
import { fleetSettingsQuery, keys } from "../api/queries";
import type { FleetSettings, FleetSettingsRequest } from "../api/types";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { atOnce, fleetWide, isolationLevels, logLevels } from "./facts";

/** The settings of all workers of the namespace and how many workers applied them. Hidden until a setting is made for the first time. */
export function FleetWide({ namespace }: { namespace: string }) {
  const { data } = useQuery(fleetSettingsQuery(namespace));
  if (!data || data.revision === 0) return null;
  const behind = data.worker_count - data.applied_worker_count;
  return (
    <p className="mb-3 text-[13px] text-soft" data-fleet-settings={data.revision}>
      Settings of all workers{data.by && <>, set by {data.by}</>}: {fleetWide(data)}. Applied by {data.applied_worker_count} of {data.worker_count} workers
      {behind > 0 && <>; pending: {data.pending.join(", ")}{behind > data.pending.length && " and others"}</>}.
    </p>
  );
}

/** Changes the settings of all workers at run time. */
export function SetFleetWide({ namespace }: { namespace: string }) {
  const { data } = useQuery(fleetSettingsQuery(namespace));
  const [open, setOpen] = useState(false);
  return (
    <>
      <Act needs="operator" why={!data && "The current settings are not loaded yet."} onClick={() => setOpen(true)}>
        Settings
      </Act>
      {open && data && <SettingsDialog namespace={namespace} now={data} onClose={() => setOpen(false)} />}
    </>
  );
}

const own = "default of each worker";

function SettingsDialog({ namespace, now, onClose }: { namespace: string; now: FleetSettings; onClose: () => void }) {
  const [saw] = useState(now); // the revision at opening, so that concurrent changes are not overwritten
  const [level, setLevel] = useState<string>(saw.log_level ?? "");
  const [slots, setSlots] = useState(saw.worker_concurrency ? String(saw.worker_concurrency) : "");
  const [floor, setFloor] = useState<string>(saw.isolation_min_level ?? "");
  const [fresh, setFresh] = useState(saw.fresh ?? false);
  const [rebalance, setRebalance] = useState(saw.rebalance !== "off");
  const [wrong, setWrong] = useState(false);
  const hint = useId();
  const client = useQueryClient();
  const m = useMutation({
    mutationFn: (body: FleetSettingsRequest) => api.setFleetSettings(namespace, body),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.workers });
    },
  });
  const submit = () => {
    const n = atOnce(slots);
    setWrong(n === null);
    if (n === null) return;
    m.mutate({
      revision: saw.revision,
      ...(n !== undefined && { worker_concurrency: n }),
      ...(level && { log_level: level as FleetSettingsRequest["log_level"] }),
      ...(fresh && { fresh }),
      ...(!rebalance && { rebalance: "off" }),
      ...(floor && { isolation_min_level: floor as FleetSettingsRequest["isolation_min_level"] }),
    });
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title={`Settings of all workers in ${namespace}`}
      description="Running workers apply changes immediately, new workers when they register. An empty setting leaves the default of each worker."
    >
      <Form error={m.error} at={wrong} pending={m.isPending} onSubmit={submit} onClose={onClose} act="Save">
        <label className="block">
          <span className="label">Log level</span>
          <select className="field mt-1" value={level} onChange={(e) => setLevel(e.target.value)}>
            <option value="">{own}</option>
            {logLevels.map((l) => (
              <option key={l}>{l}</option>
            ))}
          </select>
        </label>
        <label className="mt-3 block">
          <span className="label">Concurrent activities</span>
          <input
            className="field mt-1"
            inputMode="numeric"
            placeholder={own}
            value={slots}
            aria-invalid={wrong || undefined}
            aria-describedby={wrong ? hint : undefined}
            onChange={(e) => {
              setSlots(e.target.value);
              setWrong(false);
            }}
          />
          {wrong && (
            <span id={hint} className="mt-1 block text-xs text-bad">
              A whole number from 1 to 10,000, or empty.
            </span>
          )}
        </label>
        <label className="mt-3 block">
          <span className="label">Minimum isolation of executors</span>
          <select className="field mt-1" value={floor} onChange={(e) => setFloor(e.target.value)}>
            <option value="">{own}</option>
            {isolationLevels.map((l) => (
              <option key={l}>{l}</option>
            ))}
          </select>
        </label>
        <label className="mt-3 flex items-center gap-2">
          <input type="checkbox" checked={fresh} onChange={(e) => setFresh(e.target.checked)} />
          <span>New executor for each call of a handler outside sessions</span>
        </label>
        <label className="mt-3 flex items-center gap-2">
          <input type="checkbox" checked={rebalance} onChange={(e) => setRebalance(e.target.checked)} />
          <span>Idle sessions with a hand-over move to new workers that hold fewer sessions</span>
        </label>
      </Form>
    </Dialog>
  );
}
