import { describe, expect, it } from "vitest";
import { bytes, pieces, preview, print, shorten, without } from "./format";

describe("print", () => {
  it("keeps on one line what fits there", () => {
    expect(print(["a", 1, null, true])).toBe('["a", 1, null, true]');
    expect(print({})).toBe("{}");
    expect(print("text")).toBe('"text"');
  });
  it("breaks what does not, and loses nothing", () => {
    const value = { list: Array.from({ length: 40 }, (_, i) => i), inner: { text: "x".repeat(90), empty: [] } };
    const text = print(value);
    expect(text.split("\n").length).toBeGreaterThan(3);
    expect(JSON.parse(text)).toEqual(value);
  });
});

describe("pieces", () => {
  it("joined are the input again", () => {
    const text = print({ 'a "quoted" key': [-1.5e3, "true", true, null], "b:c": "x\\y" });
    expect(pieces(text).map((p) => p.text).join("")).toBe(text);
  });
  it("tells keys, texts, numbers and words apart", () => {
    const kinds = pieces('{ "a": "b", "c": 2, "d": null }').filter((p) => p.kind !== "plain");
    expect(kinds.map((p) => [p.kind, p.text])).toEqual([
      ["key", '"a"'], ["string", '"b"'], ["key", '"c"'], ["number", "2"], ["key", '"d"'], ["word", "null"],
    ]);
  });
});

it("shortens in the middle", () => {
  expect(shorten("short")).toBe("short");
  expect(shorten("01KAJ7Q2M4W8Y6001T5R9HXZBD-1", 13)).toBe("01KAJ7…XZBD-1");
});

it("previews a value on one line of bounded length", () => {
  expect(preview({ a: "x".repeat(200) }, 20)).toHaveLength(20);
  expect(preview(undefined)).toBe("");
});

it("prints bytes in binary units", () => {
  expect([bytes(0), bytes(1023), bytes(1536), bytes(1_048_000), bytes(25_769_803_776), bytes(-1)]).toEqual(["0 B", "1023 B", "1.5 KiB", "1023 KiB", "24.0 GiB", "–"]);
});

it("leaves members out", () => {
  expect(without({ a: 1, b: 2, c: 3 }, "a", "c")).toEqual({ b: 2 });
});
