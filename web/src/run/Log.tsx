import { useQuery } from "@tanstack/react-query";
import { memo, useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { logsQuery } from "../api/queries";
import type { LogLine, RunView } from "../api/types";
import { count } from "../lib/format";
import { useZone } from "../lib/prefs";
import { clockTime, parseTime, precise } from "../lib/time";
import { Coming } from "../ui/Coming";
import { CopyButton } from "../ui/Copy";
import { Failed, Section, Waiting } from "../ui/Page";
import type { Lane } from "./timeline";

/** Log lines and output of one activity by attempt, updated while it runs. */
export function Log({ run, lane }: { run: RunView; lane: Lane }) {
  const [chosen, setChosen] = useState<number>();
  const logs = useQuery(logsQuery(run.namespace, `${run.run_id}-${lane.sequence}`, chosen));
  const { refetch } = logs;
  // The lines change when the task starts, ends or is retried.
  useEffect(() => void refetch(), [refetch, lane.state, lane.attempts]);
  const attempts = logs.data?.attempts ?? [];
  const shown = logs.data?.activity_attempt_id;
  const picker = useId();
  return (
    <Section
      title={`Log of ${lane.title}`}
      aside={
        <span className="flex min-h-7 items-center gap-2 text-[13px] text-soft">
          {logs.data?.running && <Coming text="Live" dot="bg-good" title="Lines appear while the activity runs" />}
          {attempts.length > 1 && (
            <>
              <label htmlFor={picker}>Attempt</label>
              <select
                id={picker}
                className="field h-7 w-auto py-0 text-[13px]"
                value={chosen ?? "last"}
                onChange={(e) => setChosen(e.target.value === "last" ? undefined : Number(e.target.value))}
              >
                <option value="last">latest</option>
                {attempts.map((a) => (
                  <option key={a.activity_attempt_id} value={a.attempt}>
                    {a.attempt}
                  </option>
                ))}
              </select>
            </>
          )}
        </span>
      }
    >
      {logs.isPending ? (
        <Waiting rows={2} height={32} />
      ) : !logs.data ? (
        <Failed error={logs.error} retry={() => void refetch()} what="log" />
      ) : logs.data.lines.length === 0 ? (
        <p className="card px-4 py-3 text-soft">{logs.data.open ? "No log lines yet" : "No log lines: none were written, or they have expired"}</p>
      ) : (
        <Lines key={shown} lines={logs.data.lines} what={lane.title} />
      )}
    </Section>
  );
}

/** The lines. The view follows the last line unless the reader scrolled up. */
function Lines({ lines, what }: { lines: LogLine[]; what: string }) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  const scrolled = () => {
    const b = box.current;
    if (b) atEnd.current = b.scrollHeight - b.scrollTop - b.clientHeight < 24;
  };
  return (
    <div className="card relative overflow-hidden" data-log>
      <div ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-live="off" aria-label={`Log lines of ${what}`} className="max-h-96 overflow-auto py-2 font-mono text-[12.5px] leading-5">
        {lines.map((l, i) => (
          <Line key={i} line={l} />
        ))}
      </div>
      <span className="absolute top-1.5 right-3 rounded-md bg-card">
        <CopyButton text={lines.map(plain).join("\n")} what="log" />
      </span>
    </div>
  );
}

const missing = (l: LogLine): string => `… ${count(l.left_out ?? 0)} ${l.left_out === 1 ? "line" : "lines"} dropped`;
const plain = (l: LogLine): string => (l.left_out ? missing(l) : [l.at, l.level, l.text].filter(Boolean).join(" "));

const inks: Record<string, string> = { debug: "text-faint", warn: "text-warn", error: "text-bad" };

const Line = memo(function Line({ line }: { line: LogLine }) {
  const zone = useZone();
  if (line.left_out) return <p className="px-4 text-faint italic">{missing(line)}</p>;
  const at = parseTime(line.at);
  const ink = inks[line.level ?? ""] ?? "";
  return (
    <p className="flex flex-wrap gap-x-3 px-4 hover:bg-sunken sm:flex-nowrap">
      <time className="shrink-0 text-faint" dateTime={line.at ?? undefined} title={line.at ? precise(line.at, zone) : undefined}>
        {at === null ? "" : clockTime(at, zone)}
      </time>
      <span className={`w-12 shrink-0 ${ink || "text-faint"}`}>{line.source === "log" || !line.source ? line.level : line.source}</span>
      <span className={`min-w-0 flex-1 basis-full break-words whitespace-pre-wrap sm:basis-0 ${ink}`}>{line.text}</span>
    </p>
  );
});
