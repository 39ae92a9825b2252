import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { sessionPastQuery } from "../api/queries";
import type { SessionEvent, SessionView } from "../api/types";

/** The identity of an entry. The renewals of an ownership are one entry, which is updated. */
export const identity = (e: SessionEvent): string => (e.what === "renewed" ? `renewed ${e.epoch}` : [e.at, e.what, e.epoch, e.worker_id, e.by].join(" "));

/** Merges overlapping parts of a timeline, oldest entry first. If two parts have an entry, the later part's version is used. */
export function joined(parts: SessionEvent[][]): SessionEvent[] {
  const all = new Map<string, SessionEvent>();
  for (const e of parts.flat()) {
    const id = identity(e);
    all.delete(id);
    all.set(id, e);
  }
  return [...all.values()];
}

/** The timeline of a session: the newest entries, and older ones as far as they were requested. */
export function useTimeline(s: SessionView) {
  // The newest entries change while the page is open, so the ones that were shown at the first request for older entries are kept.
  const [from, setFrom] = useState<{ token: string; seen: SessionEvent[] } | null>(null);
  const past = useInfiniteQuery(sessionPastQuery(s, from?.token));
  const newest = s.timeline;
  const timeline = useMemo(
    () => (from ? joined([...(past.data?.pages ?? []).map((p) => p.timeline ?? []).reverse(), from.seen, newest ?? []]) : (newest ?? [])),
    [from, past.data, newest],
  );
  return {
    timeline,
    more: from ? past.hasNextPage || past.isPending : Boolean(s.timeline_page_token),
    pending: from !== null && past.isFetching,
    error: past.error,
    older: () => {
      if (from) void (past.isError ? past.refetch() : past.fetchNextPage());
      else if (s.timeline_page_token) setFrom({ token: s.timeline_page_token, seen: newest ?? [] });
    },
  };
}
