// One request to the app, and what may come of it.

import { basePath } from "../lib/base";
import { parse, stringify } from "../lib/json";

/** A refusal by the API: reason is for programs, message for people. status 0 means that no answer came. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly position?: number, // of the character of a filter that is wrong, from 1
    readonly fields: Record<string, string[]> = {}, // what is wrong with what was sent, by the path of its member
  ) {
    super(message);
    this.name = "ApiError";
  }
}

const onUnauthorized = new Set<() => void>();

/** Calls fn whenever a request is answered 401; returns the way to stop. */
export function whenUnauthorized(fn: () => void): () => void {
  onUnauthorized.add(fn);
  return () => onUnauthorized.delete(fn);
}

let skew = 0;

/** The server's time now, in milliseconds: leases count down by its clock, not by this machine's. */
export function serverNow(): number {
  return Date.now() + skew;
}

/** Learns how far this machine's clock is off. A Date header has whole seconds, so less than two are taken for none. */
export function learnSkew(date: string | null, now = Date.now()): void {
  const at = date ? Date.parse(date) : NaN;
  if (Number.isNaN(at)) return;
  const off = at + 500 - now;
  skew = Math.abs(off) < 2000 ? 0 : off;
}

let answered = Date.now(); // when an answer of the app came last
let away: number | null = null; // since then it does not answer
const onAway = new Set<() => void>();

/** Notes whether the app answered. An error of what stands before it, which is none of its own, is no answer. */
function noteAnswer(ok: boolean): void {
  if (ok) answered = Date.now();
  const now = ok ? null : (away ?? answered);
  if (now === away) return;
  away = now;
  for (const fn of onAway) fn();
}

/** When the app answered last, in milliseconds since 1970, while it does not; null while it does. */
export const awaySince = (): number | null => away;

/** Calls fn whenever awaySince changes; returns the way to stop. */
export function whenAway(fn: () => void): () => void {
  onAway.add(fn);
  return () => onAway.delete(fn);
}

export interface Options {
  method?: string;
  body?: unknown;
  namespace?: string;
  signal?: AbortSignal;
  patience?: number; // milliseconds after which no answer is expected any more; what is only read has readPatience
}

/** How long what is read may be on its way: an app that stands still, or a line that was cut, never says that there will be no answer. */
export const readPatience = 30_000;

/** Asks whether the app answers, for a page that would ask it nothing else. */
export async function probe(patience = 5000): Promise<void> {
  await request("/api/sojourn/me", { patience }).catch(() => {});
}

/** Asks the app. The namespace is the one the request is about; without it, it is about none or about "default". */
export async function request<T>(path: string, { method = "GET", body, namespace, signal, patience = method === "GET" ? readPatience : undefined }: Options = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json", "X-Durable-Workflow-Control-Plane-Version": "2" };
  if (namespace) headers["X-Namespace"] = namespace;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const ends = [signal, patience === undefined ? undefined : AbortSignal.timeout(patience)].filter((s) => s !== undefined);
  let res: Response;
  let text: string;
  try {
    res = await fetch(basePath + path, {
      method,
      headers,
      credentials: "same-origin",
      body: body === undefined ? null : stringify(body),
      signal: ends.length > 0 ? AbortSignal.any(ends) : null,
    });
    text = await res.text();
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    noteAnswer(false);
    throw new ApiError(0, "unreachable", "The app does not answer.");
  }
  learnSkew(res.headers.get("Date"));
  let answer: unknown = null;
  try {
    answer = text === "" ? null : parse(text);
  } catch {
    if (res.ok) throw new ApiError(res.status, "malformed_json", `The answer to ${path} is not JSON.`);
  }
  noteAnswer(res.ok || answer !== null || ![502, 503, 504].includes(res.status));
  if (!res.ok) {
    const refusal = (answer ?? {}) as { reason?: string; message?: string; error?: string; position?: number; errors?: Record<string, string[]> };
    if (res.status === 401) for (const fn of onUnauthorized) fn();
    const message = refusal.message ?? refusal.error ?? `${res.status} ${res.statusText}`;
    throw new ApiError(res.status, refusal.reason ?? "unknown", message, refusal.position, refusal.errors);
  }
  return answer as T;
}

/** A query string of the members that have a value, or "". */
export function query(members: Record<string, string | number | boolean | undefined | null>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (value !== undefined && value !== null && value !== "") q.set(name, String(value));
  }
  const text = q.toString();
  return text && `?${text}`;
}
