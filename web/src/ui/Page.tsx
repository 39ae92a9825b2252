import { Link, type LinkProps } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";
import { ApiError } from "../api/client";

/** Sets the title of the browser tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Sojourn` : "Sojourn";
  }, [title]);
}

export function Heading({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="mb-4 flex min-h-9 flex-wrap items-center justify-between gap-x-4 gap-y-2">
      <h1 className="text-xl font-semibold tracking-tight">{title}</h1>
      {children}
    </div>
  );
}

/** A named part of a page. */
export function Section({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section aria-label={title} className="mt-6">
      <div className="mb-2 flex min-h-8 flex-wrap items-center justify-between gap-3">
        <h2 className="text-[15px] font-semibold">{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

/** The message for an empty list, with the way to create an entry. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="card grid place-items-center px-6 py-14 text-center">
      <p className="font-medium">{title}</p>
      {children && <div className="mt-1 max-w-prose text-soft">{children}</div>}
    </div>
  );
}

/** A failed request, with a button to try again or, for something that does not exist, a link to the list. */
export function Failed({ error, retry, what, all }: { error: unknown; retry?: () => void; what: string; all?: LinkProps["to"] }) {
  const known = error instanceof ApiError;
  const gone = known && error.status === 404;
  return (
    <div role="alert" className="card grid place-items-center px-6 py-12 text-center">
      <p className="font-medium">{gone ? `${what.charAt(0).toUpperCase()}${what.slice(1)} not found` : `Could not load the ${what}`}</p>
      <p className="mt-1 max-w-prose break-words text-soft">{error instanceof Error ? error.message : String(error)}</p>
      {known && error.reason !== "unknown" && <code className="mt-1 font-mono text-xs text-faint">{error.reason}</code>}
      {retry && !gone && (
        <button type="button" className="btn mt-4" onClick={retry}>
          Try again
        </button>
      )}
      {gone && all && (
        <Link to={all} className="btn mt-4">
          All {what}s
        </Link>
      )}
    </div>
  );
}

/** Grey rows with the height of the rows that are being loaded. */
export function Waiting({ rows = 6, height = 52 }: { rows?: number; height?: number }) {
  return (
    <div className="card divide-y divide-line overflow-hidden" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} className="flex items-center gap-4 px-4" style={{ height }}>
          <span className="breathe h-3 w-20 rounded bg-idle-soft" />
          <span className="breathe h-3 w-1/3 rounded bg-idle-soft" />
          <span className="breathe ml-auto h-3 w-16 rounded bg-idle-soft" />
        </div>
      ))}
    </div>
  );
}

/** A small label above its value. */
export function Fact({ name, children, wide = false }: { name: string; children: ReactNode; wide?: boolean }) {
  return (
    <div className={`min-w-0 ${wide ? "col-span-2" : ""}`}>
      <dt className="label">{name}</dt>
      <dd className="mt-0.5 min-w-0 break-words">{children}</dd>
    </div>
  );
}
