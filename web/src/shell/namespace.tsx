import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { createContext, useContext, useEffect, type ReactNode } from "react";
import { meQuery } from "../api/queries";
import type { Me } from "../api/types";

const implied = "default"; // the namespace of a URL without one

/** The initial namespace: "default", unless the token is restricted to others. */
export function homeOf(me: Pick<Me, "namespaces"> | undefined): string {
  const bound = me?.namespaces ?? [];
  return bound.length === 0 || bound.includes(implied) ? implied : bound[0]!;
}

/** A namespace as a search parameter; "default" is left out. */
export const inNamespace = (namespace: string): { namespace: string | undefined } => ({ namespace: namespace === implied ? undefined : namespace });

const Current = createContext(implied);

/** The namespace of the page. Data of a run, session or schedule use the namespace of that object instead. */
export const useNamespace = (): string => useContext(Current);

/** Reads the namespace from the URL. A URL without one gets the initial namespace of the user. */
export function NamespaceScope({ children }: { children: ReactNode }) {
  const { namespace } = useSearch({ from: "__root__" });
  const navigate = useNavigate();
  const home = homeOf(useQuery(meQuery).data);
  useEffect(() => {
    const search = (before: Record<string, unknown>) => ({ ...before, namespace: home });
    if (!namespace && home !== implied) void navigate({ to: ".", search: search as never, replace: true });
  }, [home, namespace, navigate]);
  return <Current.Provider value={namespace ?? home}>{children}</Current.Provider>;
}
