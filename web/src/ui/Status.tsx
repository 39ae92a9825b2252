import { tone, words, type Tone } from "../lib/status";

const looks: Record<Tone, string> = {
  run: "bg-run-soft text-run",
  good: "bg-good-soft text-good",
  bad: "bg-bad-soft text-bad",
  warn: "bg-warn-soft text-warn",
  idle: "bg-idle-soft text-soft",
  stay: "bg-stay-soft text-stay",
};

/** A status with a colour and a shape, so that it is readable without colours: a ring is open, a dot succeeded, a bar ended otherwise. */
function Shape({ status }: { status: string }) {
  const t = tone(status);
  if (status === "running") {
    return <span className="breathe size-2 rounded-full border-2 border-current" aria-hidden />;
  }
  if (t === "bad") return <span className="size-2 rotate-45 rounded-[1px] bg-current" aria-hidden />;
  if (t === "idle") return <span className="h-0.5 w-2 rounded-full bg-current" aria-hidden />;
  return <span className="size-2 rounded-full bg-current" aria-hidden />;
}

export function Status({ status, large = false }: { status: string; large?: boolean }) {
  const size = large ? "h-7 px-3 text-[13px]" : "h-6 px-2 text-xs";
  return (
    <span data-status={status} className={`inline-flex items-center gap-1.5 rounded-full font-medium whitespace-nowrap ${size} ${looks[tone(status)]}`}>
      <Shape status={status} />
      {words(status)}
    </span>
  );
}
