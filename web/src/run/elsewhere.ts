import { queryOptions, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import { api, ApiError } from "../api/client";
import { namespacesQuery } from "../api/queries";
import { inNamespace, useNamespace } from "../shell/namespace";

const mostAsked = 50; // namespaces

/** Finds the namespace of a run among the given ones, or null. Run IDs are unique across namespaces. */
export async function findRun(id: string, namespaces: string[]): Promise<string | null> {
  const found = await Promise.all(namespaces.slice(0, mostAsked).map((n) => api.run(n, id).then(() => n, () => null)));
  return found.find((n) => n !== null) ?? null;
}

/** Redirects a link without a namespace to the namespace of its run. Returns whether the search is in progress. */
export function useElsewhere(id: string, error: unknown): boolean {
  const namespace = useNamespace();
  const navigate = useNavigate();
  const missing = error instanceof ApiError && error.status === 404;
  const list = useQuery({ ...namespacesQuery, enabled: missing });
  const others = (list.data?.namespaces ?? []).map((n) => n.name).filter((n) => n !== namespace);
  const found = useQuery(queryOptions({ queryKey: ["elsewhere", id, others], queryFn: () => findRun(id, others), enabled: missing && others.length > 0 }));
  const there = missing ? found.data : null;
  useEffect(() => {
    if (there) void navigate({ to: "/runs/$runId", params: { runId: id }, search: inNamespace(there), replace: true });
  }, [id, navigate, there]);
  return missing && (list.isLoading || found.isLoading || Boolean(there));
}
