import type { SessionView } from "../api/types";
import { useNow } from "../lib/clock";
import { duration, parseTime } from "../lib/time";

/** The time a holder's lease has left, counting down, over the share of the lease it is. */
export function LeaseLeft({ session: s, align = "end" }: { session: SessionView; align?: "start" | "end" }) {
  const owned = s.status === "active" && Boolean(s.holder ?? s.lease_owner);
  const now = useNow(owned);
  const until = parseTime(s.lease_expires_at);
  if (!owned || until === null) return <span className="text-faint">–</span>;
  const left = Math.max(0, until - now);
  const share = s.lease_seconds > 0 ? Math.min(1, left / (s.lease_seconds * 1000)) : 0;
  const look = share < 0.15 ? "bg-bad" : share < 0.35 ? "bg-warn" : "bg-stay";
  return (
    <span className={`inline-flex w-16 flex-col gap-1 sm:w-20 ${align === "end" ? "items-end" : "items-start"}`}>
      <span className="whitespace-nowrap">{left === 0 ? "expired" : duration(Math.ceil(left / 1000) * 1000)}</span>
      <span className="block h-1 w-full overflow-hidden rounded-full bg-idle-soft" aria-hidden>
        <span className={`block h-full rounded-full ${look}`} style={{ width: `${share * 100}%` }} />
      </span>
    </span>
  );
}
