import { useQueryClient } from "@tanstack/react-query";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useLayoutEffect, useRef, useState, type ReactNode } from "react";
import type { HistoryEvent } from "../api/types";
import type { RunKey } from "../api/client";
import { eventQuery } from "../api/queries";
import type { Following } from "../api/stream";
import { count } from "../lib/format";
import { useZone } from "../lib/prefs";
import { stackOf } from "../lib/stack";
import type { Tone } from "../lib/status";
import { clockTime, precise } from "../lib/time";
import { Coming } from "../ui/Coming";
import { Icon } from "../ui/Icon";
import { JsonView } from "../ui/JsonView";
import { Empty, Section } from "../ui/Page";
import { Stack } from "../ui/Stack";
import { TruncatedValue } from "../ui/TruncatedValue";
import { eventName, eventTone, readable, since, summary, unread } from "./summary";
import { eventTime } from "./timeline";
import { fileName, truncatedOf, wholeValue } from "./values";

interface Props {
  run: RunKey;
  events: HistoryEvent[];
  start: number;
  total: number;
  of: string | null; // the lane whose events are shown; null: all events
  onAll: () => void;
  complete: boolean;
  following: Following;
  action?: (e: HistoryEvent) => ReactNode; // below the payload of an open event
}

/** The history, one row per event, which opens to its payload. Only visible rows are in the DOM. */
export function EventList({ run, events, start, total, of, onAll, complete, following, action }: Props) {
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const list = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const measure = () => {
      if (list.current) setTop(list.current.getBoundingClientRect().top + window.scrollY);
    };
    measure();
    // A part above the list that grows moves the list, so the offset is measured again.
    const watch = typeof ResizeObserver === "undefined" ? undefined : new ResizeObserver(measure);
    watch?.observe(document.body);
    return () => watch?.disconnect();
  }, []);
  const rows = useWindowVirtualizer({
    count: events.length,
    estimateSize: () => 41,
    getItemKey: (i) => events[i]!.sequence,
    overscan: 16,
    scrollMargin: top,
  });
  const toggle = (seq: number) => {
    const next = new Set(open);
    if (!next.delete(seq)) next.add(seq);
    setOpen(next);
  };
  return (
    <Section
      title="Events"
      aside={
        <span className="flex min-h-7 items-center gap-2 text-[13px] text-soft">
          <Live state={following} />
          {of === null ? (
            count(total)
          ) : (
            <>
              {count(events.length)} of {count(total)} · {of}
              <button type="button" className="btn h-7 px-2.5 text-[13px]" onClick={onAll}>
                Show all
              </button>
            </>
          )}
        </span>
      }
    >
      {events.length === 0 ? (
        <Empty title="No events" />
      ) : (
        <div className="card overflow-hidden" data-events>
          <div ref={list} className="relative" style={{ height: rows.getTotalSize() }} role="list" aria-label="Event history">
            {rows.getVirtualItems().map((v) => {
              const e = events[v.index]!;
              return (
                <div
                  key={v.key}
                  ref={rows.measureElement}
                  data-index={v.index}
                  role="listitem"
                  className="absolute inset-x-0 top-0"
                  style={{ transform: `translateY(${v.start - top}px)` }}
                >
                  <Row run={run} event={e} start={start} open={open.has(e.sequence)} onToggle={() => toggle(e.sequence)} first={v.index === 0} action={action} />
                </div>
              );
            })}
          </div>
          {!complete && <p className="border-t border-line px-4 py-3 text-soft">Showing the first {count(events.length)} events of a longer history.</p>}
        </div>
      )}
    </Section>
  );
}

const liveLooks: Record<Exclude<Following, "off">, { text: string; dot: string; title: string }> = {
  live: { text: "Live", dot: "bg-good", title: "Events appear as they are committed" },
  connecting: { text: "Connecting", dot: "breathe bg-idle", title: "Opening the event stream" },
  reading: { text: "Polling", dot: "breathe bg-idle", title: "Event stream lost; until it reconnects, the history is reloaded when something changes" },
};

/** How the events of an open run are received. */
function Live({ state }: { state: Following }) {
  if (state === "off") return null;
  return <Coming {...liveLooks[state]} state={state} />;
}

const dots: Record<Tone, string> = {
  run: "bg-run",
  good: "bg-good",
  bad: "bg-bad",
  warn: "bg-warn",
  idle: "bg-line-strong",
  stay: "bg-stay",
};

interface RowProps {
  run: RunKey;
  event: HistoryEvent;
  start: number;
  open: boolean;
  first: boolean;
  onToggle: () => void;
  action: ((e: HistoryEvent) => ReactNode) | undefined;
}

function Row({ run, event: e, start, open, first, onToggle, action }: RowProps) {
  const zone = useZone();
  const client = useQueryClient();
  const stamp = e.recorded_at ?? e.timestamp ?? "";
  return (
    <div className={first ? "" : "border-t border-line"} data-event={e.event_type}>
      <button
        type="button"
        data-nav
        aria-expanded={open}
        onClick={onToggle}
        className="flex min-h-10 w-full items-center gap-3 px-3 py-1.5 text-left outline-none hover:bg-sunken focus-visible:outline-2 focus-visible:-outline-offset-2 focus-visible:outline-accent sm:px-4"
      >
        <span className={`text-faint transition-transform ${open ? "" : "-rotate-90"}`}>
          <Icon name="down" size={14} />
        </span>
        <span className="w-7 shrink-0 text-right text-xs text-faint">{e.sequence}</span>
        <span className={`size-2 shrink-0 rounded-full ${dots[eventTone(e.event_type)]}`} aria-hidden />
        <span className="min-w-0 flex-1 sm:flex sm:items-baseline sm:gap-3">
          <span className="block truncate font-medium sm:w-52 sm:shrink-0" title={e.event_type}>
            {eventName(e.event_type)}
          </span>
          <span className="block min-w-0 flex-1 truncate text-soft">{summary(e)}</span>
        </span>
        <time className="shrink-0 text-right text-xs text-faint" dateTime={stamp} title={precise(stamp, zone)}>
          <span className="hidden sm:inline">{clockTime(eventTime(e), zone)}</span>
          <span className="inline-block w-16 text-right">{since(e, start)}</span>
        </time>
      </button>
      {open && (
        <div className="px-3 pb-3 sm:pl-20">
          {unread(e).length > 0 && <p className="mb-1.5 text-[13px] text-warn">Shown as stored, because this app cannot decode it: {unread(e).join(", ")}.</p>}
          <JsonView value={readable(e)} what={`payload of event ${e.sequence}`} tall />
          {truncatedOf(e).map(([name, cut]) => (
            <section key={name} className="mt-3" aria-label={name}>
              <h3 className="label mb-1">{name}</h3>
              <TruncatedValue
                what={`${name} of event ${e.sequence}`}
                cut={cut}
                file={fileName(`${run.run_id}-${e.sequence}`, name, cut.encoded === true)}
                load={async () => wholeValue(await client.fetchQuery(eventQuery(run, e.sequence)), name)}
              />
            </section>
          ))}
          {stackOf(e.payload ?? undefined) && <Stack stack={stackOf(e.payload ?? undefined)} />}
          {action?.(e)}
        </div>
      )}
    </div>
  );
}
