import { useQuery } from "@tanstack/react-query";
import { namespacesQuery, searchAttributesQuery } from "../api/queries";
import type { NamespaceView } from "../api/types";
import { Empty, Fact, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { When } from "../ui/When";

/** The namespaces, each with how long it keeps closed runs and what its runs can be filtered by. */
export function NamespacesPage() {
  useTitle("Namespaces");
  const list = useQuery(namespacesQuery);
  const spaces = list.data?.namespaces ?? [];
  return (
    <>
      <Heading title="Namespaces" />
      {list.isPending ? (
        <Waiting rows={3} />
      ) : list.isError && !list.data ? (
        <Failed error={list.error} retry={() => void list.refetch()} what="list of namespaces" />
      ) : spaces.length === 0 ? (
        <Empty title="No namespace is open to you">Your token is bound to namespaces that are not there.</Empty>
      ) : (
        <div className="grid gap-4">
          {spaces.map((n) => (
            <Space key={n.name} space={n} />
          ))}
        </div>
      )}
    </>
  );
}

function Space({ space: n }: { space: NamespaceView }) {
  const attributes = useQuery(searchAttributesQuery(n.name));
  return (
    <article className="card p-4" data-namespace={n.name}>
      <div className="flex items-center justify-between gap-3">
        <h2 className="min-w-0 font-mono text-[15px] font-medium break-all">{n.name}</h2>
        <Status status={n.status} />
      </div>
      {n.description && <p className="mt-1 text-soft">{n.description}</p>}
      <dl className="mt-3 grid grid-cols-2 gap-x-6 gap-y-3 sm:grid-cols-3">
        <Fact name="Keeps closed runs">{n.retention_days > 0 ? `${n.retention_days} days` : "for ever"}</Fact>
        <Fact name="Created">
          <When value={n.created_at} />
        </Fact>
      </dl>
      <h3 className="label mt-4">Search attributes</h3>
      {attributes.isError ? (
        <p role="alert" className="text-bad">
          {attributes.error.message}
        </p>
      ) : (
        <>
          <Types of={attributes.data?.custom_attributes} none="None of its own: register one to have its type checked." />
          <details className="mt-2 text-[13px]">
            <summary className="text-soft">Those every run has</summary>
            <Types of={attributes.data?.system_attributes} none="None" />
          </details>
        </>
      )}
    </article>
  );
}

function Types({ of, none }: { of: Record<string, string> | undefined; none: string }) {
  const list = Object.entries(of ?? {}).sort(([a], [b]) => a.localeCompare(b));
  if (list.length === 0) return <p className="mt-1 min-h-7 text-soft">{of ? none : ""}</p>;
  return (
    <ul className="mt-1.5 flex flex-wrap gap-1.5">
      {list.map(([name, type]) => (
        <li key={name} className="rounded-md border border-line px-2 py-0.5 text-[13px]">
          <code className="font-mono">{name}</code> <span className="text-faint">{type}</span>
        </li>
      ))}
    </ul>
  );
}
