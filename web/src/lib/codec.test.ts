import { afterEach, expect, it, vi } from "vitest";
import { decodeBy, Refused, replaceSealed, sealedIn, sealedOf } from "./codec";

const sealed = (data: string) => ({ "sojourn.codec": "sojourn.aes-256-gcm", key_id: "k1", data: { $type: "bytes", base64: data } });

afterEach(() => vi.unstubAllGlobals());

it("recognizes encoded payloads only", () => {
  expect(sealedOf(sealed("AA=="))).toEqual({ "sojourn.codec": "sojourn.aes-256-gcm", key_id: "k1", data: "AA==" });
  for (const other of [null, 1, "x", [], {}, { ...sealed("AA=="), more: 1 }, { ...sealed("AA=="), data: "AA==" }, { ...sealed("AA=="), "sojourn.codec": "" }])
    expect(sealedOf(other)).toBeUndefined();
});

it("replaces payloads at every depth, and an encoded list of arguments as a whole", () => {
  const value = { arguments: [sealed("QQ==")], result: sealed("Qg=="), list: [sealed("Qw=="), 1], none: null };
  expect(sealedIn(value).map((s) => s.data)).toEqual(["QQ==", "Qg==", "Qw=="]);
  const values: Record<string, never[] | string> = { "QQ==": [], "Qg==": "b" };
  expect(replaceSealed(value, (s) => values[s.data])).toEqual({ arguments: [], result: "b", list: [sealed("Qw=="), 1], none: null });
});

it("sends payloads and the endpoint's own token, and no cookie", async () => {
  const fetched = vi.fn((_url: string, _init: RequestInit) => Promise.resolve(new Response('{"values":[{"value":[9007199254740993]},{"error":"no key"}]}')));
  vi.stubGlobal("fetch", fetched);
  const list = sealedIn([sealed("QQ=="), sealed("Qg==")]);
  const got = await decodeBy("https://codec.example/decode", "mine", list, new AbortController().signal);
  expect(got.map((d) => String(d.value ?? d.error))).toEqual(["9007199254740993", "no key"]);
  const [url, init] = fetched.mock.calls[0]!;
  expect(url).toBe("https://codec.example/decode");
  expect([init.credentials, init.redirect, init.referrerPolicy, init.mode]).toEqual(["omit", "error", "no-referrer", "cors"]);
  expect(init.headers).toEqual({ "Content-Type": "application/json", Authorization: "Bearer mine" });
  expect(JSON.parse(String(init.body))).toEqual({ payloads: list });
});

it("distinguishes a rejected token from other failures", async () => {
  const answer = (status: number, text: string) => vi.stubGlobal("fetch", () => Promise.resolve(new Response(text, { status })));
  const decode = () => decodeBy("https://codec.example/decode", "", [sealedOf(sealed("QQ=="))!], new AbortController().signal);
  answer(401, "sign in");
  await expect(decode()).rejects.toThrow(Refused);
  answer(500, "broken");
  await expect(decode()).rejects.toThrow("500: broken");
  answer(200, '{"values":[]}');
  await expect(decode()).rejects.toThrow("another number");
});
