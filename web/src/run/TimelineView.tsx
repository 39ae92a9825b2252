import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { useNow } from "../lib/clock";
import { useZone } from "../lib/prefs";
import { words } from "../lib/status";
import { chosen, clockTime, duration, parseTime } from "../lib/time";
import { Icon, type IconName } from "../ui/Icon";
import { Section } from "../ui/Page";
import { Tip } from "../ui/Tip";
import { WaitText } from "../ui/WaitText";
import { canFold, foldedLabel, makeScale, type Scale } from "./scale";
import type { Bar, Lane, Mark, Timeline } from "./timeline";

interface Props {
  timeline: Timeline;
  picked: string | null;
  onPick: (lane: string | null) => void;
}

const laneHeight = 34;
const columns = "grid grid-cols-[8.5rem_minmax(0,1fr)] sm:grid-cols-[14rem_minmax(0,1fr)_4.75rem]";

/** The run as lanes over time: activities, timers, signals, children and session owners. */
export function TimelineView({ timeline, picked, onPick }: Props) {
  const open = timeline.to === null;
  const now = useNow(open);
  const foldable = useMemo(() => canFold(timeline, now), [timeline, now]);
  const [fold, setFold] = useState(true);
  const folding = fold && foldable;
  const [width, track] = useWidth();
  const scale = useMemo(() => makeScale(timeline, now, folding, Math.max(2, width / 84)), [timeline, now, folding, width]);
  const repeated = useMemo(() => repeatedTitles(timeline), [timeline]);
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: timeline.lanes.length, getScrollElement: () => scroller.current, estimateSize: () => laneHeight, overscan: 12 });

  return (
    <Section
      title="Timeline"
      aside={
        <button
          type="button"
          className={`btn h-7 px-2.5 text-[13px] ${foldable ? "" : "invisible"}`}
          aria-pressed={folding}
          title="Gaps without events can be collapsed"
          onClick={() => setFold(!fold)}
        >
          <Icon name="fold" size={14} />
          {folding ? "Linear scale" : "Collapse gaps"}
        </button>
      }
    >
      <div className="card overflow-hidden" data-timeline>
        <div ref={scroller} className="relative max-h-[32rem] overflow-y-auto">
          <div className={`${columns} sticky top-0 z-10 border-b border-line bg-card`}>
            <div />
            <div ref={track} className="relative mr-3 h-7 overflow-hidden text-[11px] text-faint sm:mr-0">
              {scale.ticks.map((t) => (
                <span key={t.x} className="absolute top-1.5 pl-1 whitespace-nowrap" style={{ left: `${t.x * 100}%` }}>
                  {t.label}
                </span>
              ))}
              {scale.regions.filter((r) => r.folded).map((r) => (
                <span key={r.from} className="absolute top-1.5 truncate text-center text-soft" style={box(r.x0, r.x1)} title={`Collapsed gap of ${foldedLabel(r)}`}>
                  {(r.x1 - r.x0) * width > 64 ? `⋯ ${foldedLabel(r)} ⋯` : "⋯"}
                </span>
              ))}
            </div>
          </div>
          <div className="relative" style={{ height: rows.getTotalSize() }} role="list" aria-label="Timeline lanes">
            <Backdrop scale={scale} />
            {rows.getVirtualItems().map((v) => {
              const lane = timeline.lanes[v.index]!;
              return (
                <div key={lane.id} role="listitem" className="absolute inset-x-0" style={{ height: v.size, transform: `translateY(${v.start}px)` }}>
                  <Row lane={lane} scale={scale} now={now} repeated={repeated.has(lane.title)} picked={picked === lane.id} onPick={() => onPick(picked === lane.id ? null : lane.id)} />
                </div>
              );
            })}
          </div>
        </div>
        <Legend timeline={timeline} />
      </div>
    </Section>
  );
}

function repeatedTitles(t: Timeline): Set<string> {
  const seen = new Set<string>();
  return new Set(t.lanes.map((l) => l.title).filter((title) => seen.has(title) || !seen.add(title)));
}

const box = (x0: number, x1: number) => ({ left: `${x0 * 100}%`, width: `${Math.max(0, x1 - x0) * 100}%` });

function useWidth(): [number, React.RefObject<HTMLDivElement | null>] {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(700);
  useEffect(() => {
    const e = ref.current;
    if (!e || typeof ResizeObserver === "undefined") return;
    const watch = new ResizeObserver(() => setWidth(Math.round(e.clientWidth / 40) * 40));
    watch.observe(e);
    return () => watch.disconnect();
  }, []);
  return [width, ref];
}

/** Lines at the ticks of the axis and a shade over collapsed gaps. */
function Backdrop({ scale }: { scale: Scale }) {
  return (
    <div className={`${columns} pointer-events-none absolute inset-0`} aria-hidden>
      <div />
      <div className="relative mr-3 sm:mr-0">
        {scale.ticks.map((t) => (
          <span key={t.x} className="absolute inset-y-0 w-px bg-line" style={{ left: `${t.x * 100}%` }} />
        ))}
        {scale.regions.filter((r) => r.folded).map((r) => (
          <span key={r.from} className="hatch absolute inset-y-0 text-line" style={box(r.x0, r.x1)} />
        ))}
      </div>
    </div>
  );
}

const icons: Record<Lane["kind"], IconName> = { run: "play", session: "anchor", activity: "bolt", child: "play", timer: "hourglass", wait: "signal" };

interface RowProps {
  lane: Lane;
  scale: Scale;
  now: number;
  repeated: boolean; // other lanes have the same title
  picked: boolean;
  onPick: () => void;
}

function Row({ lane, scale, now, repeated, picked, onPick }: RowProps) {
  const to = lane.to ?? now;
  const stay = lane.kind === "session";
  return (
    <div
      className={`${columns} group h-full items-center ${picked ? "bg-accent-soft" : "hover:bg-sunken/70"} ${lane.kind === "run" ? "" : "border-t border-line/60"}`}
      data-lane={lane.kind}
      data-state={lane.state}
    >
      <div className={`flex h-full min-w-0 items-center gap-1 pr-2 ${lane.depth === 1 ? "pl-6 sm:pl-8" : "pl-3 sm:pl-4"}`}>
        <button
          type="button"
          data-nav
          onClick={onPick}
          aria-pressed={picked}
          aria-label={describe(lane, now, repeated)}
          title={titleOf(lane) === lane.title ? undefined : lane.title}
          className="flex h-7 min-w-0 flex-1 items-center gap-2 rounded-md text-left"
        >
          <span className={stay ? "text-stay" : stateInk(lane)}>
            <Icon name={icons[lane.kind]} size={14} />
          </span>
          <span className={`truncate ${lane.kind === "run" || stay ? "font-medium" : ""} ${stay ? "font-mono text-[12.5px]" : ""}`}>{titleOf(lane)}</span>{" "}
          {repeated && lane.kind === "activity" && <span className="shrink-0 text-xs text-faint">{lane.sequence}</span>}{" "}
          {lane.attempts > 1 && (
            <span className="shrink-0 rounded bg-idle-soft px-1 text-[11px] text-soft" title={`${lane.attempts} attempts`}>
              ×{lane.attempts}
            </span>
          )}
        </button>
        {stay && (
          <Link
            to="/sessions/$sessionId"
            params={{ sessionId: lane.title }}
            aria-label={`Open session ${lane.title}`}
            className="grid size-6 shrink-0 place-items-center rounded text-faint hover:bg-stay-soft hover:text-stay"
          >
            <Icon name="right" size={14} />
          </Link>
        )}
      </div>
      <div className="relative mr-3 h-full sm:mr-0">
        {stay && <span className="absolute inset-y-[3px] rounded-md bg-stay-soft/60" style={box(scale.at(lane.from), scale.at(to))} aria-hidden />}
        {lane.bars.map((b, i) => (
          <BarView key={`${b.kind}${i}`} bar={b} lane={lane} scale={scale} now={now} />
        ))}
        {lane.marks.map((m) => (
          <MarkView key={`${m.kind}${m.at}${m.label}`} mark={m} scale={scale} />
        ))}
      </div>
      <div className="hidden pr-4 text-right text-xs text-faint sm:block">{duration(Math.max(0, to - lane.from))}</div>
    </div>
  );
}

function titleOf(l: Lane): string {
  if (l.kind === "timer") return l.detail ? `timer ${chosen(Number(l.detail))}` : "timer";
  if (l.kind === "wait") return `${l.detail || "signal"} ${l.title}`;
  return l.kind === "activity" && l.detail ? `${l.title} (${l.detail})` : l.title;
}

// The accessible name begins with the visible text, so that voice control finds the row (WCAG 2.5.3).
function describe(l: Lane, now: number, repeated: boolean): string {
  const title = l.kind === "timer" || l.kind === "wait" ? titleOf(l) : `${l.kind} ${titleOf(l)}`;
  const seen = [title, repeated && l.kind === "activity" && l.sequence, l.attempts > 1 && `×${l.attempts}`].filter(Boolean);
  const parts = [seen.join(" "), words(l.state)];
  if (l.worker) parts.push(`on ${l.worker}`);
  if (l.epoch) parts.push(`epoch ${l.epoch}`);
  parts.push(duration(Math.max(0, (l.to ?? now) - l.from)));
  if (l.failure) parts.push(l.failure);
  for (const m of l.marks.slice(0, 5)) parts.push(m.label);
  return `${parts.join(", ")}. Show events`;
}

/** Whether the wait of the bar needs an operator. */
const attention = (b: Bar): boolean => b.to === null && Boolean(b.wait?.needs_attention);

function stateInk(l: Lane): string {
  if (l.bars.some(attention)) return "text-warn";
  switch (l.state) {
    case "failed":
    case "timed_out":
      return "text-bad";
    case "completed":
      return "text-good";
    case "running":
    case "waiting":
      return "text-run";
    default:
      return "text-faint";
  }
}

const outcomes: Record<NonNullable<Bar["outcome"]>, string> = {
  completed: "bg-good",
  failed: "bg-bad",
  timed_out: "bg-bad",
  cancelled: "bg-idle",
  lost: "bg-bad/50",
};

/** The classes of a bar: solid for attempts, hatched for waiting, tinted for session owners. */
function barLook(b: Bar): string {
  const open = b.to === null;
  switch (b.kind) {
    case "run":
      return `top-1/2 h-1 -translate-y-1/2 rounded-full ${open ? "breathe bg-run" : outcomes[b.outcome ?? "completed"]}`;
    case "attempt":
      return `top-1/2 h-4 -translate-y-1/2 rounded ${b.outcome ? outcomes[b.outcome] : "breathe bg-run"}`;
    case "child":
      return `top-1/2 h-2.5 -translate-y-1/2 rounded ${b.outcome ? outcomes[b.outcome] : "breathe bg-run"}`;
    case "queued":
      return `top-1/2 h-1.5 -translate-y-1/2 rounded-full hatch ${attention(b) ? "text-warn" : "text-idle"}`;
    case "backoff":
      return `top-1/2 h-0.5 -translate-y-1/2 rounded-full ${attention(b) ? "bg-warn" : "bg-idle"}`;
    case "timer":
      return `top-1/2 h-3 -translate-y-1/2 rounded border ${b.outcome === "cancelled" ? "border-idle text-idle" : b.outcome ? "border-good bg-good-soft text-good" : "breathe border-run bg-run-soft text-run"}`;
    case "wait":
      return `top-1/2 h-3 -translate-y-1/2 rounded border border-dashed ${b.outcome === "completed" ? "border-good bg-good-soft" : b.outcome ? "border-idle" : "breathe border-run bg-run-soft"}`;
    case "hold":
      return "inset-y-[6px] rounded bg-stay/20 border border-stay/45 text-stay";
  }
}

function BarView({ bar, lane, scale, now }: { bar: Bar; lane: Lane; scale: Scale; now: number }) {
  const x0 = scale.at(bar.from);
  const x1 = scale.at(bar.to ?? now);
  // A bar has a minimum width; at the right edge it grows to the left.
  const least = bar.kind === "attempt" || bar.kind === "hold" || bar.kind === "timer" || bar.kind === "wait" ? 5 : 2;
  return (
    <Tip
      content={<BarTip bar={bar} lane={lane} now={now} />}
      className={`absolute overflow-hidden ${barLook(bar)}`}
      style={{ left: `min(${x0 * 100}%, calc(100% - ${least}px))`, width: `max(${least}px, ${(x1 - x0) * 100}%)` }}
    >
      {bar.kind === "hold" && x1 - x0 > 0.1 && bar.worker && (
        <span className="flex h-full items-center truncate px-1.5 text-[11.5px] font-medium whitespace-nowrap text-ink">{bar.worker}</span>
      )}
    </Tip>
  );
}

const barNames: Record<Bar["kind"], string> = {
  run: "Run",
  queued: "Waiting for a worker",
  child: "Child workflow",
  attempt: "Attempt",
  backoff: "Retry backoff",
  timer: "Timer",
  wait: "Waiting",
  hold: "Held by",
};

function BarTip({ bar, lane, now }: { bar: Bar; lane: Lane; now: number }) {
  const zone = useZone();
  const fire = bar.kind === "timer" && bar.to === null ? parseTime(bar.note) : null;
  const title = bar.kind === "attempt" ? `${lane.title}, attempt ${bar.attempt ?? 1}` : bar.kind === "hold" ? `Held by ${bar.worker || "a worker"}` : barNames[bar.kind];
  return (
    <div className="grid gap-0.5">
      <b className="font-medium">
        {title}
        {bar.outcome && <span className="font-normal text-soft"> {words(bar.outcome)}</span>}
      </b>
      <span className="text-soft">
        {clockTime(bar.from, zone)} – {bar.to === null ? "now" : clockTime(bar.to, zone)} · {duration(Math.max(0, (bar.to ?? now) - bar.from))}
      </span>
      {bar.kind === "attempt" && bar.worker && <span className="text-soft">on {bar.worker}</span>}
      {bar.epoch ? <span className="text-xs text-faint">epoch {bar.epoch}</span> : null}
      {fire !== null && <span className="text-soft">fires in {duration(Math.max(0, fire - now))}</span>}
      {bar.wait && (
        <span className="text-soft">
          <WaitText wait={bar.wait} />
        </span>
      )}
      {bar.note && bar.kind !== "timer" && <span className={bar.kind === "attempt" ? "text-bad" : "text-soft"}>{bar.note}</span>}
    </div>
  );
}

const markLooks: Record<Mark["kind"], string> = {
  signal: "rotate-45 rounded-[2px] bg-run",
  update: "rotate-45 rounded-[2px] bg-accent",
  lost: "rounded-full bg-bad",
  recovered: "rounded-full bg-stay",
  cancel: "rotate-45 rounded-[2px] bg-bad",
  effect: "rounded-full bg-idle",
  version: "rounded-full bg-idle",
  repair: "rounded-full bg-accent",
};

function MarkView({ mark, scale }: { mark: Mark; scale: Scale }) {
  const zone = useZone();
  return (
    <Tip
      content={
        <div className="grid gap-0.5">
          <b className="font-medium">{mark.label}</b>
          <span className="text-soft">{clockTime(mark.at, zone)}</span>
        </div>
      }
      className={`absolute top-1/2 size-2.5 -translate-1/2 border border-card ${markLooks[mark.kind]}`}
      style={{ left: `${scale.at(mark.at) * 100}%` }}
    />
  );
}

/** Explains the kinds of bars and marks that the timeline has. */
function Legend({ timeline }: { timeline: Timeline }) {
  const bars = timeline.lanes.flatMap((l) => l.bars);
  const has = (fit: (b: Bar) => boolean) => bars.some(fit);
  const entries: [string, string, boolean][] = [
    ["h-3 w-5 rounded-sm bg-good", "completed", has((b) => b.kind === "attempt" && b.outcome === "completed")],
    ["h-3 w-5 rounded-sm bg-run", "running", has((b) => b.kind === "attempt" && b.to === null)],
    ["h-3 w-5 rounded-sm bg-bad", "failed", has((b) => b.kind === "attempt" && (b.outcome === "failed" || b.outcome === "timed_out"))],
    ["h-1.5 w-5 rounded-full hatch text-idle", "waiting for a worker", has((b) => b.kind === "queued")],
    ["h-0.5 w-5 bg-idle", "retry backoff", has((b) => b.kind === "backoff")],
    ["h-3 w-5 rounded-sm border border-stay/45 bg-stay/20", "session owner", has((b) => b.kind === "hold")],
    ["size-2 rounded-full bg-bad", "delivery lost", timeline.lanes.some((l) => l.marks.some((m) => m.kind === "lost"))],
    ["size-2 rotate-45 rounded-[2px] bg-run", "signal", timeline.lanes.some((l) => l.marks.some((m) => m.kind === "signal"))],
  ];
  return (
    <div className="flex min-h-8 flex-wrap items-center gap-x-4 gap-y-1 border-t border-line px-4 py-1.5 text-xs text-faint" aria-hidden>
      {entries
        .filter(([, , shown]) => shown)
        .map(([look, name]) => (
          <span key={name} className="flex items-center gap-1.5">
            <span className={look} />
            {name}
          </span>
        ))}
    </div>
  );
}
