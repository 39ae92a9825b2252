import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { createContext, useContext, useEffect, type ReactNode } from "react";
import { meQuery } from "../api/queries";
import type { Me } from "../api/types";

const unsaid = "default"; // the namespace of an address that says none

/** The namespace somebody begins in: "default" unless their token is bound to others. */
export function homeOf(me: Pick<Me, "namespaces"> | undefined): string {
  const bound = me?.namespaces ?? [];
  return bound.length === 0 || bound.includes(unsaid) ? unsaid : bound[0]!;
}

/** How an address says a namespace: not at all for "default". */
export const said = (namespace: string): { namespace: string | undefined } => ({ namespace: namespace === unsaid ? undefined : namespace });

const Current = createContext(unsaid);

/** The namespace the page is about. Whatever belongs to an entity has it of the entity. */
export const useNamespace = (): string => useContext(Current);

/** Takes the namespace from the address. One that says none is about where its reader begins, and says so from then on. */
export function NamespaceScope({ children }: { children: ReactNode }) {
  const { namespace } = useSearch({ from: "__root__" });
  const navigate = useNavigate();
  const home = homeOf(useQuery(meQuery).data);
  useEffect(() => {
    const search = (before: Record<string, unknown>) => ({ ...before, namespace: home });
    if (!namespace && home !== unsaid) void navigate({ to: ".", search: search as never, replace: true });
  }, [home, namespace, navigate]);
  return <Current.Provider value={namespace ?? home}>{children}</Current.Provider>;
}
