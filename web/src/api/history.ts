import type { HistoryEvent, HistoryPage } from "./types";

/** A history as far as it was read. Full pages never change, so reading on starts at the last page's own token. */
export interface History {
  events: HistoryEvent[];
  pages: { token: string | null; events: HistoryEvent[]; next: string | null }[];
  complete: boolean;
}

/** The most pages one reading takes, so that an endless history does not fill the browser. */
export const pageLimit = 40;

/** Reads what is new since before; pages that were full are not asked for again. A first page with more behind it is handed to early at once. */
export async function readHistory(
  fetchPage: (token: string | null) => Promise<HistoryPage>,
  before?: History,
  early?: (h: History) => void,
): Promise<History> {
  const pages = (before?.pages ?? []).filter((p) => p.next !== null);
  let token = pages.at(-1)?.next ?? null;
  let next: string | null = token;
  for (let first = true; (first || token !== null) && pages.length < pageLimit; first = false) {
    const page = await fetchPage(token);
    next = page.next_page_token ?? null;
    pages.push({ token, events: page.events ?? [], next });
    token = next;
    if (!before && pages.length === 1 && next !== null) early?.({ pages: [...pages], events: page.events ?? [], complete: false });
  }
  const last = before?.pages.at(-1);
  const now = pages.at(-1);
  const same = before && last && now && before.pages.length === pages.length && last.events.length === now.events.length;
  if (same && before.complete === (next === null)) return before; // the same value again: nothing renders anew
  return { pages, events: pages.flatMap((p) => p.events), complete: next === null };
}
