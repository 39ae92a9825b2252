// Formats instants and durations.

const units: [name: string, short: string, ms: number][] = [
  ["day", "d", 86_400_000],
  ["hour", "h", 3_600_000],
  ["minute", "m", 60_000],
  ["second", "s", 1000],
];

/** Milliseconds since 1970 with microseconds as a fraction, or null if the text is not a time. */
export function parseTime(text: string | null | undefined): number | null {
  if (!text) return null;
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return null;
  const micros = /\.\d{3}(\d{1,3})/.exec(text)?.[1];
  return micros ? ms + Number(micros.padEnd(3, "0")) / 1000 : ms;
}

/** "840 µs", "12 ms", "3.4 s", "2m 5s", "1h 3m", "4d 2h": two units or three digits. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms === 0) return "0 s";
  if (ms < 0.9995) return `${Math.max(1, Math.round(ms * 1000))} µs`;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9995) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86_400)}d ${Math.floor((s % 86_400) / 3600)}h`;
}

/** The same in whole units of at least a second: "12 seconds", "1 minute", "3 hours". */
export function span(ms: number): string {
  const [name, , unit] = units.find(([, , u]) => ms >= u) ?? units.at(-1)!;
  const n = Math.max(1, Math.floor(ms / unit));
  return `${n} ${name}${n === 1 ? "" : "s"}`;
}

/** "now", "12s ago", "3m ago", "in 2h", "5d ago". */
export function relative(at: number, now: number): string {
  const away = Math.abs(at - now);
  if (away < 1000) return "now";
  for (const [, short, ms] of units) {
    if (away >= ms) {
      const n = Math.floor(away / ms);
      return at < now ? `${n}${short} ago` : `in ${n}${short}`;
    }
  }
  return "now";
}

export type Zone = "local" | "utc";

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: Zone, key: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const name = `${zone} ${key}`;
  let f = formats.get(name);
  if (!f) {
    f = new Intl.DateTimeFormat("en-GB", zone === "utc" ? { ...options, timeZone: "UTC" } : options);
    formats.set(name, f);
  }
  return f;
}

/** "21 Nov 2026, 14:03:22"; the year is left out within the year of now. */
export function absolute(at: number, zone: Zone, now = Date.now()): string {
  const year = new Date(at).getUTCFullYear() !== new Date(now).getUTCFullYear();
  return format(zone, year ? "long" : "short", {
    day: "2-digit",
    month: "short",
    ...(year && { year: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  }).format(at);
}

/** "21 Nov 2026, 14:03:22.123456 UTC": an instant in full. */
export function precise(text: string, zone: Zone): string {
  const at = parseTime(text);
  if (at === null) return text;
  const micros = (/\.(\d{1,6})/.exec(text)?.[1] ?? "").padEnd(6, "0");
  const day = format(zone, "precise", {
    day: "2-digit",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  }).format(at);
  return `${day}.${micros} ${zoneName(zone, at)}`;
}

/** "14:03:22.123", for lists whose day is known. */
export function clockTime(at: number, zone: Zone): string {
  return format(zone, "clock", {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hourCycle: "h23",
  }).format(at);
}

/** "14:03:22", for an instant of today. */
export function wallTime(at: number, zone: Zone): string {
  return format(zone, "wall", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(at);
}

/** "UTC", or the name of the browser's current time zone, such as "GMT+1". */
export function zoneName(zone: Zone, at = Date.now()): string {
  if (zone === "utc") return "UTC";
  const parts = format(zone, "zone", { timeZoneName: "short" }).formatToParts(at);
  return parts.find((p) => p.type === "timeZoneName")?.value ?? "local";
}

/** A round step in milliseconds for an axis with about count marks over a span. */
export function tickStep(span: number, count: number): number {
  const rough = span / Math.max(1, count);
  const nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
    1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000];
  const found = nice.find((n) => n >= rough);
  if (found) return found;
  const days = rough / 86_400_000;
  const power = 10 ** Math.floor(Math.log10(days));
  return 86_400_000 * power * ([1, 2, 5, 10].find((n) => n * power >= days) ?? 10);
}

/** The label of a mark of an axis that starts at 0, with the precision of the step: "0", "250 ms", "2.015 s", "1:15", "2 min", "3 h", "4 d". */
export function tickLabel(ms: number, step: number): string {
  if (ms === 0) return "0";
  const trim = (n: number) => String(Math.round(n * 100) / 100);
  const exact = (n: number) => n.toFixed(step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3);
  if (step < 1000 && ms < 1000) return `${trim(ms)} ms`;
  if (step < 60_000 && ms < 60_000) return `${exact(ms / 1000)} s`;
  if (step < 60_000) {
    const seconds = exact((ms % 60_000) / 1000);
    return `${Math.floor(ms / 60_000)}:${/^\d(\.|$)/.test(seconds) ? "0" : ""}${seconds}`;
  }
  if (step < 3_600_000 && ms < 3_600_000) return `${trim(ms / 60_000)} min`;
  if (step < 86_400_000 && ms < 172_800_000) return `${trim(ms / 3_600_000)} h`;
  return `${trim(ms / 86_400_000)} d`;
}

/** A configured duration, such as a timer's: "250 ms", "2 s", "1.5 min", "36 h". */
export function chosen(ms: number): string {
  const units: [number, string][] = [
    [86_400_000 * 2, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
  ];
  for (const [from, unit] of units) {
    if (ms >= from) return `${Math.round((ms / (unit === "d" ? 86_400_000 : from)) * 100) / 100} ${unit}`;
  }
  return `${Math.round(ms * 100) / 100} ms`;
}
