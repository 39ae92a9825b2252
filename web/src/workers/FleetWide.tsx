import { useQuery } from "@tanstack/react-query";
import { fleetSettingsQuery } from "../api/queries";
import { fleetWide } from "./facts";

/** What an operator set for all workers of the namespace, and how far it came. Nothing is said where nothing was ever set. */
export function FleetWide({ namespace }: { namespace: string }) {
  const { data } = useQuery(fleetSettingsQuery(namespace));
  if (!data || data.revision === 0) return null;
  const behind = data.worker_count - data.applied_worker_count;
  return (
    <p className="mb-3 text-[13px] text-soft" data-fleet-settings={data.revision}>
      Set for all workers: {fleetWide(data)}. {data.applied_worker_count} of {data.worker_count} run with it
      {behind > 0 && <span className="text-warn">, not yet {data.pending.join(", ")}{behind > data.pending.length && " and others"}</span>}.
    </p>
  );
}
