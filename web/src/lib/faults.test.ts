import { describe, expect, it } from "vitest";
import { ApiError } from "../api/request";
import { faults, rejected, wrong } from "./faults";
import { readInput, readObject, readWhole } from "./input";

const refused = (fields: Record<string, string[]>, reason = "validation_failed") => new ApiError(422, reason, "no", undefined, fields);

describe("what is wrong", () => {
  it("stands at its field, with the line of a list", () => {
    const f = faults(refused({ "spec.cron_expressions.1": ["is odd"], "action.workflow_type": ["is missing"] }), ["spec", "spec.cron_expressions", "action.workflow_type"]);
    expect([f.at("spec.cron_expressions"), f.at("spec"), f.at("action.workflow_type"), f.rest]).toEqual(["line 2: is odd", "", "is missing", null]);
  });
  it("is shown below all fields if it belongs to none", () => {
    const stray = refused({ codec: ["is unknown"], name: ["is taken"] });
    expect([faults(stray, ["name"]).at("name"), faults(stray, ["name"]).rest]).toEqual(["is taken", stray]);
    const other = new TypeError("odd");
    expect(faults(other, ["name"]).rest).toBe(other);
    expect(faults(null, ["name"]).rest).toBeNull();
  });
  it("within typed JSON has its place there", () => {
    const deep = refused({ "input.1.amounts.0": ["is too large"], "memo.a": ["is odd"], input: ["is no list"] });
    expect([faults(deep, ["input", "memo"]).at("input"), faults(deep, ["input", "memo"]).at("memo")]).toEqual([
      "at 1.amounts.0: is too large; is no list", "at a: is odd",
    ]);
  });
  it("goes to a field by its reason", () => {
    const taken = new ApiError(409, "namespace_already_exists", "namespace a already exists");
    const f = faults(taken, ["name"], { namespace_already_exists: "name" });
    expect([f.at("name"), f.rest]).toEqual(["namespace a already exists", null]);
  });
});

describe("what was typed", () => {
  it("as input is a list of arguments, one of them, or encoded already", () => {
    expect([readInput(" ", "input"), readInput("[1]", "input"), readInput('{"a":1}', "input"), readInput('{"codec":"avro","blob":"AA"}', "input")]).toEqual([
      undefined, [1], [{ a: 1 }], { codec: "avro", blob: "AA" },
    ]);
    expect(() => readInput("{", "input")).toThrow(/input: is not valid JSON/);
  });
  it("as an object is nothing else", () => {
    expect([readObject("", "memo"), readObject('{"a":1}', "memo")]).toEqual([undefined, { a: 1 }]);
    for (const other of ["[]", "1", "null"]) expect(() => readObject(other, "memo")).toThrow("must be a JSON object");
  });
  it("as a number is whole and within its bounds", () => {
    expect([readWhole("", "n", 1), readWhole(" 7 ", "n", 1), readWhole("0", "n", 0, 9)]).toEqual([undefined, 7, 0]);
    for (const other of ["0", "1.5", "x", "366"]) expect(() => readWhole(other, "n", 1, 365)).toThrow("from 1 to 365");
  });
  it("that is wrong is refused as the app would", () => expect(wrong("memo", "is odd")).toMatchObject({ status: 422, fields: { memo: ["is odd"] } }));
});

it("recognizes a rejected member by the reason and the member, whatever the message", () => {
  const filter = refused({ query: ["a value is expected"] });
  expect(rejected(filter, "query")).toBe(filter);
  expect([rejected(filter, "page_size"), rejected(refused({ query: ["no"] }, "unknown"), "query"), rejected(new Error("query: no"), "query"), rejected(null, "query")]).toEqual([
    undefined, undefined, undefined, undefined,
  ]);
});
