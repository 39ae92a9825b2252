import type { Json } from "../api/types";
import { wrong } from "./faults";
import { isObject, parse } from "./json";

const envelope = (v: Json): boolean => isObject(v) && typeof v.codec === "string" && typeof v.blob === "string";

/** Parses typed arguments: an array is the list of arguments, any other value the only argument, an empty text no argument. */
export function parseArguments(text: string): Json[] {
  if (text.trim() === "") return [];
  const value = parse(text);
  return Array.isArray(value) ? value : [value];
}

/** The same for a field that may also contain an encoded value. An empty text is undefined. */
export function readInput(text: string, field: string): Json | undefined {
  if (text.trim() === "") return undefined;
  const value = read(text, field);
  return Array.isArray(value) || envelope(value) ? value : [value];
}

/** Parses a typed object; an empty text is undefined. */
export function readObject(text: string, field: string): { [key: string]: Json } | undefined {
  if (text.trim() === "") return undefined;
  const value = read(text, field);
  if (!isObject(value)) throw wrong(field, 'must be a JSON object, for example {"key": "value"}');
  return value;
}

function read(text: string, field: string): Json {
  try {
    return parse(text);
  } catch (e) {
    throw wrong(field, `is not valid JSON: ${(e as Error).message}`);
  }
}

/** Parses a typed integer from least to most; an empty text is undefined. */
export function readWhole(text: string, field: string, least: number, most = Number.MAX_SAFE_INTEGER): number | undefined {
  if (text.trim() === "") return undefined;
  const n = Number(text);
  if (!Number.isInteger(n) || n < least || n > most) {
    throw wrong(field, most === Number.MAX_SAFE_INTEGER ? `must be a whole number, ${least} or more` : `must be a whole number from ${least} to ${most}`);
  }
  return n;
}

/** The typed retry policy, or undefined if all its fields are empty. under is the prefix of the paths in the errors of the app: "" or "action.". */
export function readTries(most: string, pauses: string, under = ""): { max_attempts?: number; backoff_seconds?: number[] } | undefined {
  const attempts = readWhole(most, `${under}retry_policy.max_attempts`, 0);
  const list = pauses.split(/[\s,]+/).filter(Boolean).map((p) => readWhole(p, `${under}retry_policy.backoff_seconds`, 0)!);
  if (attempts === undefined && list.length > 0) throw wrong(`${under}retry_policy.max_attempts`, "is required with a retry backoff");
  return attempts === undefined ? undefined : { ...(attempts > 0 && { max_attempts: attempts }), ...(list.length > 0 && { backoff_seconds: list }) };
}
