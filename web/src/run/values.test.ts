import { expect, it } from "vitest";
import type { HistoryEvent } from "../api/types";
import { fileName, truncatedOf, wholeValue } from "./values";

const event: HistoryEvent = {
  sequence: 7,
  event_type: "ActivityFailed",
  recorded_at: null,
  timestamp: null,
  payload: { message: "m", exception: { type: "T", message: "long", details: "wwHi" }, lost_deliveries: [{ delivery: 1 }, { delivery: 2, last_heartbeat_details: [5] }], result: "zstd text" },
  decoded: { details: { a: 1 } },
};

it("finds the whole value that a name in truncated stands for", () => {
  expect(wholeValue(event, "details")).toEqual({ a: 1 });
  expect(wholeValue(event, "exception.message")).toBe("long");
  expect(wholeValue(event, "message")).toBe("m");
  expect(wholeValue(event, "last_heartbeat_details")).toEqual([5]);
  expect(wholeValue(event, "result")).toBe("zstd text");
  expect(wholeValue(event, "output")).toBeUndefined();
  expect(wholeValue({ ...event, decoded: undefined } as unknown as HistoryEvent, "details")).toBe("wwHi");
});

it("lists truncated values by name, and names files safely", () => {
  expect(truncatedOf({})).toEqual([]);
  expect(truncatedOf({ truncated: { b: { size_bytes: 2 }, a: { size_bytes: 1 } } }).map(([name]) => name)).toEqual(["a", "b"]);
  expect(fileName("01K9-7", "exception.message", false)).toBe("01K9-7-exception.message.json");
  expect(fileName("a/b c", "result", true)).toBe("a-b-c-result.txt");
});
