import { describe, expect, test } from "vitest";
import { parseArguments, readInput, readObject } from "./input";
import { preview, print } from "./format";
import { Exact, parse, stringify } from "./json";

const numbers = ["9007199254740993", "-1234567890123456789", "9223372036854775807", "7.0", "-0", "1e400", "0.1000000000000000055511151231257827"];

describe("numbers are exact", () => {
  test.each(numbers)("%s is read, shown and sent as it is written", (n) => {
    const text = `{"deep":[{"n":${n}}],"text":"${n}"}`;
    const value = parse(text);
    expect(stringify(value)).toBe(text);
    expect(print(value, 400)).toBe(`{ "deep": [{ "n": ${n} }], "text": "${n}" }`);
    expect(preview(value, 400)).toBe(text);
    expect(stringify({ input: parseArguments(n) })).toBe(`{"input":[${n}]}`);
    expect(stringify({ input: readInput(n, "input"), memo: readObject(`{"n":${n}}`, "memo") })).toBe(`{"input":[${n}],"memo":{"n":${n}}}`);
  });

  test("numbers that JavaScript has are its own", () => {
    expect(parse('{"a":[0,-1,1.5,1e-7,9007199254740991],"b":null}')).toEqual({ a: [0, -1, 1.5, 1e-7, 9007199254740991], b: null });
  });

  test("an exact number counts as the nearest one", () => {
    const n = parse("2500.0") as Exact;
    expect(n).toBeInstanceOf(Exact);
    expect(Number(n) / 1000).toBe(2.5);
  });

  test("digits within texts and names are text", () => {
    const text = '{"9007199254740993":"a \\" 9007199254740993","\\\\":[9007199254740993]}';
    expect(stringify(parse(text))).toBe(text);
  });

  test.each(["01", "9007199254740993 x", "[9007199254740993,]", "-", "+1", ""])("%s is still invalid", (text) => {
    expect(() => parse(text)).toThrow(SyntaxError);
  });

  test("what is undefined is left out of objects", () => {
    expect(stringify({ a: undefined, b: [undefined, 1], c: "é" })).toBe('{"b":[null,1],"c":"é"}');
  });
});
