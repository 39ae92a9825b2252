import { isObject, parse, stringify, type Json } from "./json";

/** A payload that a codec of the workers has encoded, as a codec endpoint receives it. */
export interface Sealed {
  "sojourn.codec": string;
  key_id: string;
  data: string; // base64
}

/** Reads an encoded payload. Any other value is undefined. */
export function sealedOf(v: Json | undefined): Sealed | undefined {
  if (!isObject(v) || Object.keys(v).length !== 3) return undefined;
  const { "sojourn.codec": codec, key_id: key, data } = v;
  if (typeof codec !== "string" || codec === "" || typeof key !== "string") return undefined;
  if (!isObject(data) || data.$type !== "bytes" || typeof data.base64 !== "string") return undefined;
  return { "sojourn.codec": codec, key_id: key, data: data.base64 };
}

/** The encoded payloads in a value, in the order in which replaceSealed replaces them. */
export function sealedIn(v: Json | undefined): Sealed[] {
  const found: Sealed[] = [];
  replaceSealed(v, (s) => {
    found.push(s);
    return undefined;
  });
  return found;
}

/** Replaces the encoded payloads in a value. An encoded list of arguments is an array with the payload as its only element. */
export function replaceSealed(v: Json | undefined, by: (s: Sealed) => Json | undefined): Json | undefined {
  const sealed = sealedOf(v);
  if (sealed) return by(sealed) ?? v;
  if (Array.isArray(v)) {
    const items = v.map((item) => replaceSealed(item, by) as Json);
    return v.length === 1 && sealedOf(v[0]) && Array.isArray(items[0]) ? items[0] : items;
  }
  if (isObject(v)) return Object.fromEntries(Object.entries(v).map(([name, item]) => [name, replaceSealed(item, by) as Json]));
  return v;
}

/** The endpoint did not accept the access token of the viewer. */
export class Refused extends Error {}

export interface Decoded {
  value?: Json;
  error?: string;
}

/** Decodes payloads by a codec endpoint. The request contains the payloads and the viewer's access token for the endpoint, and nothing of Sojourn. */
export async function decodeBy(endpoint: string, token: string, payloads: Sealed[], signal: AbortSignal): Promise<Decoded[]> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const res = await fetch(endpoint, {
    method: "POST",
    mode: "cors",
    credentials: "omit",
    redirect: "error",
    referrerPolicy: "no-referrer",
    cache: "no-store",
    headers,
    body: stringify({ payloads: payloads as unknown as Json[] }),
    signal: AbortSignal.any([signal, AbortSignal.timeout(30_000)]),
  });
  const text = await res.text();
  if (res.status === 401 || res.status === 403) throw new Refused(text.trim() || "The codec endpoint rejected the access token.");
  if (!res.ok) throw new Error(`The codec endpoint responded ${res.status}: ${text.trim().slice(0, 200)}`);
  const answer = parse(text);
  const values = isObject(answer) && Array.isArray(answer.values) ? answer.values : [];
  if (values.length !== payloads.length) throw new Error("The response of the codec endpoint has another number of values.");
  return values.map((one) => {
    if (isObject(one) && typeof one.error === "string") return { error: one.error };
    return isObject(one) && one.value !== undefined ? { value: one.value } : { error: "no value" };
  });
}
