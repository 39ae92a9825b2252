import { useQuery } from "@tanstack/react-query";
import { Link, type LinkProps } from "@tanstack/react-router";
import { findQuery } from "../api/queries";
import type { Found } from "../api/types";
import { useNamespace } from "../shell/namespace";
import { Status } from "../ui/Status";
import { When } from "../ui/When";

const kinds: Record<Found["kind"], string> = {
  workflow: "Workflow ID",
  run: "Run ID",
  business_key: "Business key, newest run",
  session: "Session",
  worker: "Worker",
  schedule: "Schedule",
  step: "Activity or other step",
};

/** The page of an object that was found. */
export function pageOf(f: Found): Pick<LinkProps, "to" | "params"> {
  if (f.run_id) return { to: "/runs/$runId", params: { runId: f.run_id } };
  if (f.kind === "session") return { to: "/sessions/$sessionId", params: { sessionId: f.id } };
  if (f.kind === "schedule") return { to: "/schedules/$schedule", params: { schedule: f.id } };
  return { to: "/workers" };
}

/** The objects of any kind with the ID that is searched for, or else some whose IDs begin with it. */
export function FoundById({ text }: { text: string | undefined }) {
  const { data } = useQuery(findQuery(useNamespace(), text));
  const exact = Boolean(data?.matches.length);
  const found = (exact ? data?.matches : data?.prefixes) ?? [];
  if (found.length === 0) return null;
  const title = exact ? "Exact matches" : "IDs that begin with this text";
  return (
    <section aria-label={title} className="card mb-4 overflow-hidden" data-found={exact ? "exact" : "prefix"}>
      <h2 className="border-b border-line px-3 py-2 text-xs text-faint sm:px-4">{title}</h2>
      <ul className="divide-y divide-line">
        {found.map((f) => (
          <li key={`${f.kind} ${f.id}`} className="flex flex-wrap items-center gap-x-4 gap-y-1 px-3 py-2 sm:px-4">
            <span className="w-40 text-xs text-soft max-sm:w-full">{kinds[f.kind]}</span>
            <Link {...pageOf(f)} className="quiet min-w-0 flex-1 font-mono text-[13px] break-all" data-found-kind={f.kind}>
              {f.id}
            </Link>
            {f.workflow_id && f.workflow_id !== f.id && <code className="min-w-0 font-mono text-xs break-all text-soft">{f.workflow_id}</code>}
            {f.workflow_type && <span className="text-[13px]">{f.workflow_type}</span>}
            {f.status && <Status status={f.status} />}
            {f.at && (
              <span className="text-xs text-soft">
                <When value={f.at} />
              </span>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
