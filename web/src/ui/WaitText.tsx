import type { Wait } from "../api/types";
import { useNow } from "../lib/clock";
import { useZone } from "../lib/prefs";
import { precise } from "../lib/time";
import { because, instant, sentence } from "../lib/wait";

/** The text of a wait. Its times are in the reader's zone and updated. With behind, the subject is omitted because it precedes the text. */
export function WaitText({ wait, behind = false }: { wait: Wait; behind?: boolean }) {
  return <>{(behind ? because(wait) : sentence(wait)).map((p, i) => (typeof p === "string" ? p : <Instant key={i} at={p.at} />))}</>;
}

function Instant({ at }: { at: string }) {
  const zone = useZone();
  const now = useNow();
  return (
    <time dateTime={at} title={precise(at, zone)}>
      {instant(at, zone, now)}
    </time>
  );
}
