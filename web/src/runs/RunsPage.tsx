import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useCallback, useEffect, useRef, useState } from "react";
import type { ApiError } from "../api/client";
import { countsQuery, findQuery, forIds, runsQuery, workersQuery } from "../api/queries";
import type { RunView } from "../api/types";
import { runStatuses } from "../api/statuses";
import { useChosenInView } from "../lib/chosen";
import { useNow } from "../lib/clock";
import { rejected } from "../lib/faults";
import { count, counted, without } from "../lib/format";
import { failureText } from "../lib/stack";
import { isOpen, runStatus, stuck, words } from "../lib/status";
import { useStill } from "../lib/still";
import { useZone } from "../lib/prefs";
import { duration, parseTime, precise, span } from "../lib/time";
import { useNamespace } from "../shell/namespace";
import { Act } from "../ui/Act";
import { Icon } from "../ui/Icon";
import { Empty, Failed, Heading, useTitle, Waiting } from "../ui/Page";
import { Pager } from "../ui/Pager";
import { Status } from "../ui/Status";
import { WaitText } from "../ui/WaitText";
import { When } from "../ui/When";
import { FoundById, pageOf } from "./FoundById";
import { Samples } from "./Samples";

const StartDialog = lazy(() => import("./StartDialog"));

export function RunsPage() {
  useTitle("Runs");
  const { namespace: _, ...search } = useSearch({ from: "/" });
  const namespace = useNamespace();
  const runs = useQuery(runsQuery(namespace, search));
  const rows = runs.data?.workflows ?? [];
  const filtered = Boolean(search.status || search.type || search.kind || search.q);
  const invalid = rejected(runs.error, "query");
  const doubts = search.q && !invalid ? (runs.data?.warnings ?? []) : [];
  const [starting, setStarting] = useState(false);
  return (
    <>
      <Heading title="Runs">
        <div className="flex flex-wrap gap-2 max-sm:contents">
          <Filters types={rows.filter((r) => r.kind === (search.kind ?? "workflow")).map((r) => r.workflow_type)} wrong={Boolean(invalid)} doubted={doubts.length > 0} />
          <Act needs="writer" primary onClick={() => setStarting(true)}>
            Start workflow
          </Act>
        </div>
      </Heading>
      {doubts.length > 0 && (
        <div id="filter-warning" role="status" className="mb-2 text-[13px] text-warn sm:text-right" data-filter-warning>
          <ul>
            {doubts.map((w) => (
              <li key={w.subject}>{w.message}.</li>
            ))}
          </ul>
        </div>
      )}
      {!filtered && !search.after && <Samples rows={rows} />}
      {!search.after && <FoundById text={search.q} />}
      <StatusTabs current={search.status} />
      <div className="mt-3" aria-busy={runs.isFetching}>
        {invalid ? (
          <InvalidFilter filter={search.q ?? ""} error={invalid} />
        ) : runs.isPending ? (
          <Waiting rows={10} height={57} />
        ) : runs.isError && !runs.data ? (
          <Failed error={runs.error} retry={() => void runs.refetch()} what="list of runs" />
        ) : rows.length === 0 ? (
          filtered ? (
            <Empty title={runs.data.searched_to ? `No matching runs found yet in ${namespace}` : `No matching runs in ${namespace}`}>
              <Link to="/" className="btn mt-4">
                Show all runs
              </Link>
            </Empty>
          ) : (
            <Empty title={`No runs in ${namespace} yet`}>
              Start a workflow or an activity here, with the client library, the API, or <code className="font-mono text-[13px]">sojourn workflow start</code> and <code className="font-mono text-[13px]">sojourn activity run</code>.
            </Empty>
          )
        ) : (
          <Table key={JSON.stringify(search)} rows={rows} />
        )}
      </div>
      {runs.data?.searched_to && (
        <p role="status" className="mt-3 text-[13px] text-soft" data-searched-to>
          Searched runs started in the last <SearchedFor to={runs.data.searched_to} />. Select Older to search further back, or add a condition on StartTime.
        </p>
      )}
      <Pager next={runs.data?.next_page_token ?? null} before={runs.isPlaceholderData} after={search.after} />
      <Suspense>{starting && <StartDialog namespace={namespace} onClose={() => setStarting(false)} />}</Suspense>
    </>
  );
}

/** The time between now and the start of the oldest run that a search read. */
function SearchedFor({ to }: { to: string }) {
  const zone = useZone();
  const now = useNow();
  const at = parseTime(to) ?? now;
  return (
    <time dateTime={to} title={precise(to, zone)}>
      {span(now - at)}
    </time>
  );
}

/** A filter that the app rejected: the error and its place. */
function InvalidFilter({ filter, error }: { filter: string; error: ApiError }) {
  const at = error.position === undefined ? -1 : error.position - 1;
  const letters = [...filter];
  return (
    <Empty title="Invalid filter">
      <p id="filter-error" role="alert" className="text-bad">
        {error.fields.query?.join("; ")}
      </p>
      {at >= 0 && (
        <code className="mt-3 block rounded-lg bg-sunken px-3 py-2 font-mono text-[13px] break-words whitespace-pre-wrap text-ink" data-filter-at={at}>
          {letters.slice(0, at).join("")}
          <mark className="rounded-sm bg-bad-soft px-0.5 text-bad underline decoration-wavy underline-offset-4">{letters[at] ?? "\u00a0"}</mark>
          {letters.slice(at + 1).join("")}
        </code>
      )}
      <p className="mt-4">Example:</p>
      <code className="mt-1 block font-mono text-[13px]">WorkflowType = 'order' AND Amount &gt; 100 AND StartTime &gt; '2026-01-01'</code>
    </Empty>
  );
}

function Table({ rows: now }: { rows: RunView[] }) {
  const { rows, fresh, height, hold } = useStill(now, (r) => r.run_id);
  return (
    <div className="card overflow-hidden" {...hold}>
      <table className="w-full table-fixed text-left">
        <thead>
          <tr className="border-b border-line text-xs text-faint [&>th]:px-3 [&>th]:py-2 [&>th]:font-normal sm:[&>th]:px-4">
            <th className="w-30 sm:w-36">Status</th>
            <th>
              Workflow
              {fresh > 0 && <span className="ml-2 text-accent" data-fresh>{count(fresh)} new · list paused while hovered</span>}
            </th>
            <th className="hidden w-36 lg:table-cell">Task queue</th>
            <th className="hidden w-28 text-right sm:table-cell">Duration</th>
            <th className="hidden w-40 sm:table-cell">Started</th>
          </tr>
        </thead>
        <tbody className="divide-y divide-line">
          {rows.map((r) => (
            <Row key={r.run_id} run={r} height={height(r.run_id)} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ run: r, height }: { run: RunView; height: number | undefined }) {
  const wait = isOpen(r) ? r.wait : null;
  const failure = failureText(r.error_type, r.error ?? "");
  return (
    <tr data-row={r.run_id} style={{ height }} className="relative h-[57px] hover:bg-sunken [&>td]:px-3 [&>td]:py-2 sm:[&>td]:px-4">
      <td>
        <Status status={runStatus(r)} />
      </td>
      <td className="min-w-0">
        <div className="overflow-hidden" style={{ maxHeight: height && height - 16 }}>
        <Link
          to="/runs/$runId"
          params={{ runId: r.run_id }}
          data-nav
          data-run={r.run_id}
          className="block truncate font-medium outline-none after:absolute after:inset-0 focus-visible:after:rounded-lg focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-accent"
        >
          {r.workflow_type}
          {r.kind === "activity" && <Alone />}
          {r.run_number > 1 && <span className="ml-2 text-xs font-normal text-faint">run {r.run_number}</span>}
        </Link>
        <span className="flex justify-between gap-2 text-xs text-faint">
          <code className="truncate font-mono" title={r.workflow_id}>
            {r.workflow_id}
          </code>
          <span className="shrink-0 sm:hidden">
            <When value={r.started_at} />
          </span>
        </span>
        {wait && (
          <span className={`line-clamp-3 text-xs sm:line-clamp-2 break-words ${stuck(r) ? "text-warn" : "text-soft"}`} title={wait.message} data-waits={stuck(r) ? "stuck" : "open"}>
            <WaitText wait={wait} />
          </span>
        )}
        {!isOpen(r) && failure && (
          <span className="line-clamp-2 text-xs break-words text-bad" title={failure} data-error>
            {failure}
          </span>
        )}
        </div>
      </td>
      <td className="hidden truncate text-soft lg:table-cell">{r.task_queue}</td>
      <td className="hidden text-right text-soft sm:table-cell">
        <Length run={r} />
      </td>
      <td className="max-sm:hidden">
        <When value={r.started_at} form="both" />
      </td>
    </tr>
  );
}

/** The mark of a run that consists of one activity. */
export const Alone = () => <span className="ml-2 rounded-md border border-line px-1.5 py-px text-xs font-normal whitespace-nowrap text-soft" data-kind="activity">activity</span>;

/** The duration of a run: from its start to its close or to the present. */
export function Length({ run: r }: { run: RunView }) {
  const now = useNow(isOpen(r));
  const from = parseTime(r.started_at);
  const to = parseTime(r.closed_at) ?? (isOpen(r) ? now : null);
  if (from === null || to === null) return <>–</>;
  return <span className="whitespace-nowrap">{duration(Math.max(0, to - from))}</span>;
}

function StatusTabs({ current }: { current: string | undefined }) {
  const search = useSearch({ from: "/" });
  const { data } = useQuery(countsQuery(useNamespace()));
  const row = useChosenInView(`${current} ${Boolean(data)}`); // the tabs get wider when their counts are loaded
  const sum = (of: readonly string[]) => data && counted(of.map((s) => data.runs[s] ?? 0), data.counted_up_to);
  const tab = (status: string | undefined, n: string | undefined) => {
    const on = current === status;
    return (
      <Link
        key={status ?? "all"}
        to="/"
        search={{ ...without(search, "after", "status"), ...(status && { status }) }}
        activeOptions={{ exact: true }} // or "all" is the current one, too
        aria-current={on ? "true" : undefined}
        className={`flex h-8 shrink-0 items-center gap-2 rounded-full border px-3 text-[13px] ${
          on ? "border-accent bg-accent-soft font-medium text-accent" : "border-line text-soft hover:bg-card hover:text-ink"
        }`}
      >
        {status ? words(status) : "all"}
        <span className={`min-w-4 text-right text-xs ${on ? "" : "text-faint"}`}>{n ?? ""}</span>
      </Link>
    );
  };
  return (
    <nav ref={row} aria-label="Status" className="-mx-1 flex gap-1.5 overflow-x-auto px-1 py-1">
      {tab(undefined, sum(runStatuses))}
      {tab("stuck", data && counted([data.stuck], data.counted_up_to))}
      {runStatuses.map((s) => tab(s, sum([s])))}
    </nav>
  );
}

function Filters({ types, wrong, doubted }: { types: string[]; wrong: boolean; doubted: boolean }) {
  const search = useSearch({ from: "/" });
  const workers = useQuery(workersQuery(useNamespace()));
  const navigate = useNavigate({ from: "/" });
  const alone = search.kind === "activity";
  const registered = (workers.data?.workers ?? []).flatMap((w) => (alone ? w.supported_activity_types : w.supported_workflow_types) ?? []);
  const known = [...new Set([...registered, ...types])].sort();
  return (
    <div className="flex flex-wrap gap-2 max-sm:order-last max-sm:w-full">
      <select
        aria-label="Kind"
        className="field w-32 flex-1 sm:flex-none"
        value={search.kind ?? ""}
        onChange={(e) => void navigate({ search: { ...without(search, "after", "kind", "type"), ...(e.target.value && { kind: e.target.value }) } })}
      >
        <option value="">Any kind</option>
        <option value="workflow">Workflows</option>
        <option value="activity">Activities</option>
      </select>
      <FilterField name="type" label={alone ? "Activity type" : "Workflow type"} placeholder="Any type" value={search.type} options={known} className="w-36 flex-1 sm:w-44 sm:flex-none" />
      <FilterField name="q" label="Search IDs of any kind, or enter a filter" placeholder="Search IDs, or filter: Amount > 100" value={search.q} wrong={wrong} doubted={doubted} className="basis-full sm:w-80 sm:basis-auto" />
    </div>
  );
}

interface FieldProps {
  name: "type" | "q";
  label: string;
  placeholder: string;
  value: string | undefined;
  options?: string[];
  wrong?: boolean;
  doubted?: boolean;
  className: string;
}

/** A filter that is applied shortly after the last key press, and at Enter. One visit to the field is one entry in the history of the browser. */
function FilterField({ name, label, placeholder, value, options, wrong = false, doubted = false, className }: FieldProps) {
  const navigate = useNavigate({ from: "/" });
  const search = useSearch({ from: "/" });
  const [draft, setDraft] = useState(value ?? "");
  const typed = useRef(false);
  const router = useRouter();
  const queries = useQueryClient();
  const namespace = useNamespace();
  /** Opens the page of the only object with the ID. Of a business key there may be several runs, so the list stays. */
  const openOnly = async (text: string) => {
    if (name !== "q" || !forIds(text)) return;
    const { matches } = await queries.fetchQuery(findQuery(namespace, text)).catch(() => ({ matches: [] }));
    const [only] = matches;
    if (only && matches.length === 1 && only.kind !== "business_key") await router.navigate(pageOf(only));
  };
  const here = useRef(router.latestLocation.pathname);
  const stepped = useRef(false); // whether this visit to the field has its entry in the history of the browser
  const apply = useCallback(
    (text: string) => {
      typed.current = false;
      const to = text.trim();
      const leaving = router.latestLocation.pathname !== here.current; // the user has followed a link, whose page is being loaded
      if (leaving || to === (value ?? "")) return;
      void navigate({ search: { ...without(search, "after", name), ...(to && { [name]: to }) }, replace: stepped.current });
      stepped.current = true;
    },
    [name, navigate, router, search, value],
  );
  useEffect(() => {
    if (!typed.current) setDraft(value ?? "");
  }, [value]);
  useEffect(() => {
    if (!typed.current) return;
    const t = setTimeout(() => apply(draft), 250);
    return () => clearTimeout(t);
  }, [apply, draft]);
  return (
    <div className={`relative ${className}`}>
      {name === "q" && (
        <span className="pointer-events-none absolute top-1/2 left-2.5 -translate-y-1/2 text-faint">
          <Icon name="search" size={15} />
        </span>
      )}
      <input
        type="search"
        aria-label={label}
        placeholder={placeholder}
        value={draft}
        list={options ? `known-${name}` : undefined}
        spellCheck={false}
        autoComplete="off"
        aria-invalid={wrong || undefined}
        aria-describedby={wrong ? "filter-error" : doubted ? "filter-warning" : undefined}
        {...(name === "q" && { "data-search": true })}
        onFocus={() => (stepped.current = false)}
        onKeyDown={(e) => {
          if (e.key !== "Enter") return;
          apply(draft);
          void openOnly(draft.trim());
        }}
        onChange={(e) => {
          typed.current = true;
          setDraft(e.target.value);
        }}
        className={`field ${name === "q" ? "pl-8" : ""} ${wrong ? "border-bad" : ""}`}
      />
      {options && (
        <datalist id={`known-${name}`}>
          {options.map((o) => (
            <option key={o} value={o} />
          ))}
        </datalist>
      )}
    </div>
  );
}
