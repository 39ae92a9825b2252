export type Json = null | boolean | number | string | Exact | Json[] | { [key: string]: Json };

/**
 * A number with its source text, if a JavaScript number would lose it: 9007199254740993 would become …992, and 7.0, which the codec of the app does not
 * accept as an integer, would become 7. It computes as the nearest number and is printed and sent as it was received.
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

/** Parses JSON. Numbers that JavaScript cannot represent exactly become Exact. Other texts cost one search more than JSON.parse. */
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

/** JSON.stringify that writes Exact numbers with their source text. */
export function stringify(value: unknown): string {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(stringify).join(",")}]`;
  const members = Object.entries(value).filter(([, v]) => v !== undefined);
  return `{${members.map(([k, v]) => `${JSON.stringify(k)}:${stringify(v)}`).join(",")}}`;
}

/** A value as a number, or null if it is not a number. */
export const numberOf = (v: Json | undefined): number | null => (typeof v === "number" || v instanceof Exact ? Number(v) : null);

/** Whether a value is an object, but not an array or an Exact number. */
export const isObject = (v: Json | undefined): v is { [key: string]: Json } =>
  v !== null && typeof v === "object" && !Array.isArray(v) && !(v instanceof Exact);
