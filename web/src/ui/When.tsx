import type { Time } from "../api/types";
import { useNow } from "../lib/clock";
import { useZone } from "../lib/prefs";
import { absolute, parseTime, precise, relative } from "../lib/time";

interface Props {
  value: Time | undefined;
  form?: "relative" | "absolute" | "both";
}

/** An instant, relative, absolute or both. The tooltip has it with microseconds and zone. */
export function When({ value, form = "relative" }: Props) {
  const zone = useZone();
  const at = parseTime(value);
  const now = useNow(at !== null && form !== "absolute");
  if (at === null || !value) return <span className="text-faint">–</span>;
  const date = <span className="whitespace-nowrap">{absolute(at, zone, now)}</span>;
  if (form === "absolute") {
    return (
      <time dateTime={value} title={precise(value, zone)}>
        {date}
      </time>
    );
  }
  return (
    <time dateTime={value} title={precise(value, zone)} className={form === "both" ? "flex flex-col leading-tight" : "whitespace-nowrap"}>
      <span className="whitespace-nowrap">{relative(at, now)}</span>
      {form === "both" && <span className="text-xs text-faint">{date}</span>}
    </time>
  );
}
