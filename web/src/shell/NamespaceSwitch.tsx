import { useQuery } from "@tanstack/react-query";
import { Link, useLocation, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { namespacesQuery } from "../api/queries";
import { Icon } from "../ui/Icon";
import { Empty, useTitle } from "../ui/Page";
import { said, useNamespace } from "./namespace";

/** The list of a page's kind: what one namespace has of it stays behind, and so do filters and page tokens. */
export const listOf = (path: string): string => `/${/^\/(sessions|workers|queues|schedules|namespaces)(\/|$)/.exec(path)?.[1] ?? ""}`;

/** Shows which namespace the page is about, and leads to the others the caller may see. */
export function NamespaceSwitch() {
  const namespace = useNamespace();
  const { pathname } = useLocation();
  const navigate = useNavigate();
  const names = (useQuery(namespacesQuery).data?.namespaces ?? []).map((n) => n.name).sort();
  if (names.length === 0 || (names.length === 1 && names[0] === namespace && namespace === "default")) return null;
  return (
    <div className="relative flex min-w-0 items-center" title="Namespace (n)">
      <select
        aria-label="Namespace"
        data-namespace-switch
        value={namespace}
        onChange={(e) => void navigate({ to: listOf(pathname), search: said(e.target.value) })}
        className="h-8 max-w-28 min-w-0 min-[420px]:max-w-40 appearance-none truncate rounded-md border border-line bg-card pr-7 pl-2.5 text-[13px] font-medium hover:border-line-strong lg:max-w-32 xl:max-w-52"
      >
        {!names.includes(namespace) && <option value={namespace}>{namespace}</option>}
        {names.map((n) => (
          <option key={n} value={n}>
            {n}
          </option>
        ))}
      </select>
      <span className="pointer-events-none absolute right-2 text-faint">
        <Icon name="down" size={14} />
      </span>
    </div>
  );
}

/** Puts the cursor on the switch, and opens it where the browser lets us. */
export function openSwitch(): void {
  const at = document.querySelector<HTMLSelectElement>("[data-namespace-switch]");
  at?.focus();
  try {
    at?.showPicker?.();
  } catch {
    // It has the focus; the arrow keys do the rest.
  }
}

/** The pages, unless the address names a namespace that is not there for whoever looks. */
export function KnownNamespace({ children }: { children: ReactNode }) {
  const namespace = useNamespace();
  const list = useQuery(namespacesQuery).data?.namespaces;
  return list && !list.some((n) => n.name === namespace) ? <Unknown namespace={namespace} others={list.map((n) => n.name).sort()} /> : children;
}

function Unknown({ namespace, others }: { namespace: string; others: string[] }) {
  useTitle("No such namespace");
  return (
    <Empty title={`There is no namespace ${namespace} for you`}>
      <p>It does not exist, or your token is not bound to it.</p>
      {others.length > 0 && (
        <p className="mt-4 flex flex-wrap justify-center gap-2">
          {others.slice(0, 12).map((n) => (
            <Link key={n} to="/" search={said(n)} className="btn">
              {n}
            </Link>
          ))}
        </p>
      )}
    </Empty>
  );
}
