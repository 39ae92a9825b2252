import type { Json } from "../api/types";
import { replaceSealed } from "./codec";
import { isObject, stringify } from "./json";

/** "1.4 GiB": binary units, as in the messages of the app. */
export function bytes(n: number): string {
  if (!Number.isFinite(n) || n < 0) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= (i === 0 ? 1024 : 1023.5) && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 99.5 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

/** "12,345". */
export const count = (n: number): string => n.toLocaleString("en-US");

/** An ID without its middle: "01K9…4QZ-3". */
export function shorten(id: string, most = 18): string {
  if (id.length <= most) return id;
  const head = Math.ceil((most - 1) / 2);
  return `${id.slice(0, head)}…${id.slice(id.length - (most - 1 - head))}`;
}

/** A value on one line, truncated to most characters. */
export function preview(value: Json | undefined, most = 80): string {
  if (value === undefined) return "";
  const text = stringify(replaceSealed(value, (s) => (s.key_id ? `encrypted with key ${s.key_id}` : `encoded with ${s["sojourn.codec"]}`)) ?? null);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Prints a value as JSON. Each part that fits on one line is printed on one line. */
export function print(value: Json, width = 60, indent = ""): string {
  const flat = oneLine(value);
  if (flat.length + indent.length <= width || !(Array.isArray(value) || isObject(value))) return flat;
  const deeper = `${indent}  `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((v) => deeper + print(v, width, deeper))
    : Object.entries(value).map(([k, v]) => `${deeper}${JSON.stringify(k)}: ${print(v, width, deeper)}`);
  return `${open}\n${parts.join(",\n")}\n${indent}${close}`;
}

function oneLine(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(oneLine).join(", ")}]`;
  if (!isObject(value)) return stringify(value);
  const parts = Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${oneLine(v)}`);
  return parts.length === 0 ? "{}" : `{ ${parts.join(", ")} }`;
}

export interface Piece {
  kind: "key" | "string" | "number" | "word" | "plain";
  text: string;
}

/** Splits printed JSON into tokens for syntax colours. Concatenated, they equal the input. */
export function pieces(json: string): Piece[] {
  const out: Piece[] = [];
  const pattern = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
  let at = 0;
  for (const m of json.matchAll(pattern)) {
    if (m.index > at) out.push({ kind: "plain", text: json.slice(at, m.index) });
    if (m[1] !== undefined) {
      out.push({ kind: m[2] === undefined ? "string" : "key", text: m[1] });
      if (m[2] !== undefined) out.push({ kind: "plain", text: m[2] });
    } else out.push({ kind: m[3] !== undefined ? "number" : "word", text: m[0] });
    at = m.index + m[0].length;
  }
  if (at < json.length) out.push({ kind: "plain", text: json.slice(at) });
  return out;
}

/** The members of an object except the named ones. */
export function without<T extends object, K extends string>(from: T, ...names: K[]): Omit<T, K> {
  return Object.fromEntries(Object.entries(from).filter(([n]) => !names.includes(n as K))) as Omit<T, K>;
}

/** The sum of counts that were made up to a limit: "1,204", or "10k+" if one of them or the sum exceeds it. */
export function counted(numbers: number[], most: number): string {
  const sum = numbers.reduce((a, b) => a + b, 0);
  return sum > most ? `${Math.floor(most / 1000)}k+` : count(sum);
}
