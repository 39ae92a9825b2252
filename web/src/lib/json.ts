export type Json = null | boolean | number | string | Exact | Json[] | { [key: string]: Json };

/**
 * A number as it is written, where a number of JavaScript would be another: 9007199254740993 would be …992, and 7.0, which is no integer to the app's
 * codec, would be 7. It counts as the nearest number, and is printed and sent as it came.
 */
export class Exact {
  constructor(readonly source: string) {}
  valueOf(): number {
    return Number(this.source);
  }
  toString(): string {
    return this.source;
  }
  toJSON(): number {
    return Number(this.source); // use stringify for the exact number
  }
}

const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Random prefix of strings that hold the source text of a number during JSON.parse. */
const mark = `${crypto.getRandomValues(new Uint32Array(4)).join("-")} `;

const changes = (token: string): boolean => String(Number(token)) !== token;

/** Reads JSON; numbers that JavaScript cannot hold as they are written are Exact. A text without such numbers costs one look more than JSON.parse. */
export function parse(text: string): Json {
  let found = false;
  const marked = text.replace(tokens, (token) => {
    if (token.startsWith('"') || !changes(token)) return token;
    found = true;
    return `"${mark}${token}"`;
  });
  if (!found) return JSON.parse(text) as Json;
  JSON.parse(text); // a syntax error has the position in the original text
  return JSON.parse(marked, (_, v: unknown) => (typeof v === "string" && v.startsWith(mark) ? new Exact(v.slice(mark.length)) : v)) as Json;
}

/** Writes JSON as JSON.stringify does, and exact numbers as they came. */
export function stringify(value: unknown): string {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(stringify).join(",")}]`;
  const members = Object.entries(value).filter(([, v]) => v !== undefined);
  return `{${members.map(([k, v]) => `${JSON.stringify(k)}:${stringify(v)}`).join(",")}}`;
}

/** A value as a number, null when it is none. */
export const numberOf = (v: Json | undefined): number | null => (typeof v === "number" || v instanceof Exact ? Number(v) : null);

/** Whether a value is an object with members, and no list or number. */
export const isObject = (v: Json | undefined): v is { [key: string]: Json } =>
  v !== null && typeof v === "object" && !Array.isArray(v) && !(v instanceof Exact);
