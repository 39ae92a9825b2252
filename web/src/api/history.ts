import type { HistoryEvent, HistoryPage } from "./types";

/** A history as far as it was read. */
export interface History {
  events: HistoryEvent[];
  pages: { token: string | null; events: HistoryEvent[]; next: string | null }[];
  complete: boolean;
}

/** Where a page of a history begins: at the token of the page before, or after an event. */
export type From = { next_page_token?: string | null; after?: number };

/** The most pages one reading takes, so that an endless history does not fill the browser. */
export const pageLimit = 40;

/** Reads the events since before; events that were read are not requested again. A first page with more behind it is handed to early at once. */
export async function readHistory(
  fetchPage: (from: From) => Promise<HistoryPage>,
  before?: History,
  early?: (h: History) => void,
): Promise<History> {
  const pages = [...(before?.pages ?? [])];
  const end = pages.at(-1);
  const known = end && end.next === null ? end.events.at(-1)?.sequence : undefined;
  let token = end?.next ?? null;
  if (before && token !== null && pages.length >= pageLimit) return before;
  if (end && token === null && known === undefined) token = pages.pop()!.token; // an empty page
  if (end && known !== undefined) {
    const page = await fetchPage({ after: known });
    const fresh = page.events ?? [];
    const next = page.next_page_token ?? null;
    if (fresh.length === 0 && next === null) return before!; // the same value again: nothing renders anew
    pages[pages.length - 1] = { ...end, events: [...end.events, ...fresh], next };
    token = next;
  }
  for (let first = known === undefined; (first || token !== null) && pages.length < pageLimit; first = false) {
    const page = await fetchPage({ next_page_token: token });
    const next = page.next_page_token ?? null;
    pages.push({ token, events: page.events ?? [], next });
    token = next;
    if (!before && pages.length === 1 && next !== null) early?.({ pages: [...pages], events: page.events ?? [], complete: false });
  }
  return { pages, events: pages.flatMap((p) => p.events), complete: token === null };
}
