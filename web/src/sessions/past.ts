import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { sessionPastQuery } from "../api/queries";
import type { SessionEvent, SessionView } from "../api/types";

/** What tells one entry from the others. The renewals of a holding are one entry, which grows. */
export const identity = (e: SessionEvent): string => (e.what === "renewed" ? `renewed ${e.epoch}` : [e.at, e.what, e.epoch, e.worker_id, e.by].join(" "));

/** Parts of a timeline that may overlap, as one, oldest entry first; of an entry that is in two of them the later part's is taken. */
export function joined(parts: SessionEvent[][]): SessionEvent[] {
  const all = new Map<string, SessionEvent>();
  for (const e of parts.flat()) {
    const id = identity(e);
    all.delete(id);
    all.set(id, e);
  }
  return [...all.values()];
}

/** A session's timeline: its newest entries, and what is before them as far back as somebody asked. */
export function useTimeline(s: SessionView) {
  // The newest entries move on while the page is open, so those that were shown when the way back began are kept.
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
