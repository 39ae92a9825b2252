import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { namespacesQuery, searchAttributesQuery } from "../api/queries";
import type { NamespaceView } from "../api/types";
import { bytes, count } from "../lib/format";
import { inNamespace, useNamespace } from "../shell/namespace";
import { Act } from "../ui/Act";
import { Empty, Fact, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Status } from "../ui/Status";
import { When } from "../ui/When";

const NamespaceDialog = lazy(() => import("./NamespaceDialog"));
const AttributeDialog = lazy(() => import("./AttributeDialog"));

const quotaNames: Record<string, string> = {
  open_runs: "Open runs",
  starts_per_second: "Starts per second",
  stored_bytes: "Stored data",
  schedules: "Schedules",
};

/** The namespaces with their retention, quotas and search attributes. */
export function NamespacesPage() {
  useTitle("Namespaces");
  const list = useQuery(namespacesQuery);
  const [making, setMaking] = useState(false);
  const spaces = list.data?.namespaces ?? [];
  return (
    <>
      <Heading title="Namespaces">
        <Act needs="admin" primary onClick={() => setMaking(true)}>
          New namespace
        </Act>
      </Heading>
      <Suspense>{making && <NamespaceDialog onClose={() => setMaking(false)} />}</Suspense>
      {list.isPending ? (
        <Waiting rows={3} />
      ) : list.isError && !list.data ? (
        <Failed error={list.error} retry={() => void list.refetch()} what="list of namespaces" />
      ) : spaces.length === 0 ? (
        <Empty title="No namespaces">Your token is restricted to namespaces that do not exist.</Empty>
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
  const current = useNamespace();
  const [form, setForm] = useState<"change" | "attribute" | null>(null);
  const attributes = useQuery(searchAttributesQuery(n.name));
  return (
    <article className="card p-4" data-namespace={n.name}>
      <div className="flex items-center justify-between gap-3">
        <div className="flex min-w-0 flex-wrap items-center gap-x-3 gap-y-1">
          <h2 className="min-w-0 font-mono text-[15px] font-medium break-all">{n.name}</h2>
          <Status status={n.status} />
          {n.name === current && <span className="text-[13px] text-faint">current</span>}
        </div>
        <div className="flex flex-wrap justify-end gap-2">
          {n.name !== current && (
            <Link to="/" search={inNamespace(n.name)} className="btn" aria-label={`Show runs of ${n.name}`}>
              Show runs
            </Link>
          )}
          <Act needs="admin" onClick={() => setForm("change")}>
            Edit
          </Act>
        </div>
      </div>
      <Suspense>
        {form === "change" && <NamespaceDialog of={n} onClose={() => setForm(null)} />}
        {form === "attribute" && <AttributeDialog namespace={n.name} onClose={() => setForm(null)} />}
      </Suspense>
      {n.description && <p className="mt-1 text-soft">{n.description}</p>}
      <dl className="mt-3 grid grid-cols-2 gap-x-6 gap-y-3 sm:grid-cols-3">
        <Fact name="Retention">{n.retention_days > 0 ? `${n.retention_days} days` : "unlimited"}</Fact>
        <Fact name="Created">
          <When value={n.created_at} />
        </Fact>
      </dl>
      <h3 className="label mt-4">Quotas</h3>
      <dl className="mt-1.5 grid grid-cols-2 gap-x-6 gap-y-3 sm:grid-cols-4" data-quotas>
        {n.quotas.map((q) => (
          <Fact key={q.quota} name={quotaNames[q.quota] ?? q.quota}>
            <QuotaUse of={q} />
          </Fact>
        ))}
      </dl>
      <div className="mt-4 flex min-h-8 items-center justify-between gap-3">
        <h3 className="label">Search attributes</h3>
        <Act needs="operator" onClick={() => setForm("attribute")}>
          Register
        </Act>
      </div>
      {attributes.isError ? (
        <p role="alert" className="text-bad">
          {attributes.error.message}
        </p>
      ) : (
        <>
          <Types of={attributes.data?.custom_attributes} none="No custom attributes. Register one to have its type checked." />
          <details className="mt-2 text-[13px]">
            <summary className="text-soft">System attributes</summary>
            <Types of={attributes.data?.system_attributes} none="None" />
          </details>
        </>
      )}
    </article>
  );
}

/** Usage and limit of a quota; highlighted when the quota is used up and new work is rejected. */
function QuotaUse({ of: q }: { of: NamespaceView["quotas"][number] }) {
  const amount = q.quota === "stored_bytes" ? bytes : count;
  return (
    <>
      <span className={q.used >= q.limit ? "text-warn" : undefined}>
        {amount(q.used)} of {amount(q.limit)}
      </span>
      {q.from === "namespace" && <span className="block text-[13px] text-faint">custom</span>}
      {(q.held ?? 0) > 0 && <span className="block text-[13px] text-warn">{count(q.held ?? 0)} child workflows waiting</span>}
    </>
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
