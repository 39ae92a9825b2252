import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { timesQuery } from "../api/queries";
import type { ScheduleSpec } from "../api/types";
import { When } from "../ui/When";
import { specOf, type Draft } from "./draft";

const restMs = 350; // between the last key press and the request

export interface Times {
  spec: ScheduleSpec | undefined;
  times: string[] | undefined;
  error: Error | null;
}

/** The next times of the spec that is being typed, requested after a pause in typing. */
export function useTimes(d: Pick<Draft, "cron" | "intervals" | "zone">): Times {
  const typed = JSON.stringify(specOf(d));
  const [asked, setAsked] = useState(typed);
  useEffect(() => {
    const t = setTimeout(() => setAsked(typed), restMs);
    return () => clearTimeout(t);
  }, [typed]);
  const spec = asked === undefined ? undefined : (JSON.parse(asked) as ScheduleSpec);
  const q = useQuery(timesQuery(spec));
  return { spec, times: q.error ? undefined : q.data?.times.filter((t) => t !== null), error: spec ? q.error : null };
}

/** Shows the upcoming times of a spec. */
export function Preview({ times: { spec, times, error } }: { times: Times }) {
  return (
    <div className="rounded-lg bg-sunken px-3 py-2 sm:col-span-2" role="status" data-next-fires>
      <span className="label">Upcoming times</span>
      {!spec || error ? (
        <p className="text-soft">{error ? "invalid cron expression or interval" : "only when triggered manually"}</p>
      ) : !times ? (
        <p className="text-faint">…</p>
      ) : times.length === 0 ? (
        <p className="text-warn">never</p>
      ) : (
        <ol className="grid gap-x-6 sm:grid-cols-2">
          {times.map((t) => (
            <li key={t} className="flex justify-between gap-3 text-[13px]">
              <When value={t} form="absolute" />
              <span className="text-faint">
                <When value={t} />
              </span>
            </li>
          ))}
        </ol>
      )}
    </div>
  );
}
