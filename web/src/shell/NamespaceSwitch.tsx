import { useQuery } from "@tanstack/react-query";
import { Link, useLocation, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { namespacesQuery } from "../api/queries";
import { Icon } from "../ui/Icon";
import { Empty, useTitle } from "../ui/Page";
import { inNamespace, useNamespace } from "./namespace";

/** The list page that belongs to a path. It is opened after a change of namespace, without filters and page tokens. */
export const listOf = (path: string): string => `/${/^\/(sessions|workers|queues|schedules|namespaces)(\/|$)/.exec(path)?.[1] ?? ""}`;

/** Shows the namespace of the page and offers the others that the caller has access to. */
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
        onChange={(e) => void navigate({ to: listOf(pathname), search: inNamespace(e.target.value) })}
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

/** Focuses the namespace switch and opens it if the browser allows that. */
export function openSwitch(): void {
  const at = document.querySelector<HTMLSelectElement>("[data-namespace-switch]");
  at?.focus();
  try {
    at?.showPicker?.();
  } catch {
    // The switch has the focus, so the arrow keys work.
  }
}

/** The pages, or an error if the namespace in the URL does not exist or the caller has no access to it. */
export function KnownNamespace({ children }: { children: ReactNode }) {
  const namespace = useNamespace();
  const list = useQuery(namespacesQuery).data?.namespaces;
  return list && !list.some((n) => n.name === namespace) ? <Unknown namespace={namespace} others={list.map((n) => n.name).sort()} /> : children;
}

function Unknown({ namespace, others }: { namespace: string; others: string[] }) {
  useTitle("Namespace not found");
  return (
    <Empty title={`Namespace ${namespace} not found`}>
      <p>It does not exist, or your token is restricted to other namespaces.</p>
      {others.length > 0 && (
        <p className="mt-4 flex flex-wrap justify-center gap-2">
          {others.slice(0, 12).map((n) => (
            <Link key={n} to="/" search={inNamespace(n)} className="btn">
              {n}
            </Link>
          ))}
        </p>
      )}
    </Empty>
  );
}
