import { queryOptions, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import { api, ApiError } from "../api/client";
import { namespacesQuery } from "../api/queries";
import { said, useNamespace } from "../shell/namespace";

const asked = 50; // namespaces, at most

/** Finds the namespace a run is in among those given, or null: the id of a run is its own everywhere. */
export async function findRun(id: string, namespaces: string[]): Promise<string | null> {
  const found = await Promise.all(namespaces.slice(0, asked).map((n) => api.run(n, id).then(() => n, () => null)));
  return found.find((n) => n !== null) ?? null;
}

/** Where a link names a run without its namespace, goes to the namespace the run is in. Gives whether it is still being looked for. */
export function useElsewhere(id: string, error: unknown): boolean {
  const namespace = useNamespace();
  const navigate = useNavigate();
  const missing = error instanceof ApiError && error.status === 404;
  const list = useQuery({ ...namespacesQuery, enabled: missing });
  const others = (list.data?.namespaces ?? []).map((n) => n.name).filter((n) => n !== namespace);
  const found = useQuery(queryOptions({ queryKey: ["elsewhere", id, others], queryFn: () => findRun(id, others), enabled: missing && others.length > 0 }));
  const there = missing ? found.data : null;
  useEffect(() => {
    if (there) void navigate({ to: "/runs/$runId", params: { runId: id }, search: said(there), replace: true });
  }, [id, navigate, there]);
  return missing && (list.isLoading || found.isLoading || Boolean(there));
}
