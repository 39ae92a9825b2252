// Requests to the app and their errors.

import { basePath } from "../lib/base";
import { parse, stringify } from "../lib/json";

/** An error of the API: reason is for programs, message for people. Status 0 means that there was no response. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly position?: number, // of the invalid character in a filter, from 1
    readonly fields: Record<string, string[]> = {}, // errors by the path of the rejected member
  ) {
    super(message);
    this.name = "ApiError";
  }
}

const onUnauthorized = new Set<() => void>();

/** Calls fn for every response with status 401; returns a function that unsubscribes. */
export function whenUnauthorized(fn: () => void): () => void {
  onUnauthorized.add(fn);
  return () => onUnauthorized.delete(fn);
}

let skew = 0;

/** The time of the server in milliseconds. Lease countdowns use it instead of the local clock. */
export function serverNow(): number {
  return Date.now() + skew;
}

/** Updates the offset of the local clock. A Date header has whole seconds, so offsets below two seconds count as none. */
export function learnSkew(date: string | null, now = Date.now()): void {
  const at = date ? Date.parse(date) : NaN;
  if (Number.isNaN(at)) return;
  const off = at + 500 - now;
  skew = Math.abs(off) < 2000 ? 0 : off;
}

let answered = Date.now(); // time of the last response of the app
let away: number | null = null; // time since which the app is not responding
const onAway = new Set<() => void>();

/** Records whether the app responded. A gateway error without a JSON body comes from a proxy and is not a response of the app. */
function noteAnswer(ok: boolean): void {
  if (ok) answered = Date.now();
  const now = ok ? null : (away ?? answered);
  if (now === away) return;
  away = now;
  for (const fn of onAway) fn();
}

/** The time of the last response in milliseconds since 1970 while the app is not responding, otherwise null. */
export const awaySince = (): number | null => away;

/** Calls fn whenever awaySince changes; returns a function that unsubscribes. */
export function whenAway(fn: () => void): () => void {
  onAway.add(fn);
  return () => onAway.delete(fn);
}

export interface Options {
  method?: string;
  body?: unknown;
  namespace?: string;
  signal?: AbortSignal;
  patience?: number; // timeout in milliseconds; reads have readPatience
}

/** Timeout of reads in milliseconds. A paused app or a broken connection never ends a request. */
export const readPatience = 30_000;

/** Checks that the app responds, for pages without other requests. */
export async function probe(patience = 5000): Promise<void> {
  await request("/api/sojourn/me", { patience }).catch(() => {});
}

/** Sends a request to the app. Without a namespace it concerns none, or "default". */
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
    throw new ApiError(0, "unreachable", "The app is not responding.");
  }
  learnSkew(res.headers.get("Date"));
  let answer: unknown = null;
  try {
    answer = text === "" ? null : parse(text);
  } catch {
    if (res.ok) throw new ApiError(res.status, "malformed_json", `The response to ${path} is not JSON.`);
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
