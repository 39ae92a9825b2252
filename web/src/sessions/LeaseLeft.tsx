import type { SessionView } from "../api/types";
import { useNow } from "../lib/clock";
import { duration, parseTime } from "../lib/time";
import { isHeld } from "./verbs";

interface Props {
  session: SessionView;
  align?: "start" | "end";
}

/** The remaining time of the owner's lease, as a countdown above a bar. */
export function LeaseLeft({ session: s, align = "end" }: Props) {
  return <Left until={isHeld(s) ? parseTime(s.lease_expires_at) : null} of={s.lease_seconds} over="expired" align={align} />;
}

/** The remaining time to live of a session, which does not depend on its owner. */
export function TtlLeft({ session: s }: { session: SessionView }) {
  return <Left until={parseTime(s.ttl_expires_at)} of={s.ttl_seconds ?? 0} over="expired" align="start" />;
}

function Left({ until, of, over, align }: { until: number | null; of: number; over: string; align: "start" | "end" }) {
  const now = useNow(until !== null);
  if (until === null) return <span className="text-faint">–</span>;
  const left = Math.max(0, until - now);
  const share = of > 0 ? Math.min(1, left / (of * 1000)) : 0;
  return (
    <span role="timer" className={`inline-flex w-16 flex-col gap-1 sm:w-20 ${align === "end" ? "items-end" : "items-start"}`}>
      <span className="whitespace-nowrap">{left === 0 ? over : duration(Math.ceil(left / 1000) * 1000)}</span>
      <span className="block h-1 w-full overflow-hidden rounded-full bg-idle-soft" aria-hidden>
        <span className="block h-full rounded-full bg-stay" style={{ width: `${share * 100}%` }} />
      </span>
    </span>
  );
}
