/** A run in the list of the runs of a workflow ID. */
interface ListedRun {
  run_id: string;
  run_number: number;
  chain_run_id?: string | null;
}

/** chainsOf splits the runs of a workflow ID, oldest first: those of the run's chain, and the last run of each other chain. */
export function chainsOf<R extends ListedRun>(run: ListedRun, runs: R[]): { own: R[]; others: R[] } {
  const own = runs.filter((r) => (r.chain_run_id ?? "") === (run.chain_run_id ?? ""));
  const last = new Map<string, R>();
  for (const r of runs) if (!own.includes(r)) last.set(r.chain_run_id ?? "", r);
  return { own, others: [...last.values()] };
}
