import { describe, expect, it } from "vitest";
import type { HistoryEvent } from "../api/types";
import { parseArguments } from "../lib/input";
import { eventName, readable, since, summary, unread } from "./summary";

const event = (event_type: string, payload: HistoryEvent["payload"], decoded?: HistoryEvent["decoded"]): HistoryEvent => ({
  sequence: 1,
  event_type,
  recorded_at: "2026-11-21T12:00:01.500000Z",
  timestamp: null,
  payload,
  ...(decoded && { decoded }),
});

describe("an event for people", () => {
  it("shows the beginning or the size of a value that was not loaded whole", () => {
    const cut = { ...event("ActivityCompleted", { activity_type: "report", payload_codec: "avro" }), truncated: { result: { size_bytes: 1 << 20, preview: `["${"x".repeat(4000)}` } } };
    expect(summary(cut)).toMatch(/^report → \["x{70,80}…$/);
    expect(readable(cut)).toEqual({ activity_type: "report" });
    expect(summary({ ...cut, truncated: { result: { size_bytes: 1 << 20 } } })).toBe("report → 1.0 MiB");
    expect(summary({ ...event("SignalReceived", { signal_name: "go" }), truncated: { value: { size_bytes: 5000, preview: '["a' } } })).toBe('go("a…');
  });
  it("shows values decoded in the place of their blobs", () => {
    const e = event("ActivityCompleted", { sequence: 2, result: "wwHi", payload_codec: "avro" }, { result: { n: 1 } });
    expect(readable(e)).toEqual({ sequence: 2, result: { n: 1 } });
  });
  it("shows headers", () => {
    expect(readable(event("SignalReceived", { signal_name: "go", headers: { tenant: "acme" } }))).toEqual({ signal_name: "go", headers: { tenant: "acme" } });
  });
  it("shows the blob if the app did not decode it", () => {
    expect(readable(event("ActivityCompleted", { result: "wwHi", payload_codec: "avro" }))).toEqual({ result: "wwHi", payload_codec: "avro" });
  });
  it("has the codec of values that the app did not decode", () => {
    expect(unread(event("ActivityCompleted", { result: "wwHi", payload_codec: "zstd" }))).toEqual(["result (codec zstd)"]);
    expect(unread(event("ActivityCompleted", { result: "wwHi", payload_codec: "avro" }, { result: 1 }))).toEqual([]);
    expect(unread(event("TimerFired", { sequence: 1 }))).toEqual([]);
  });
  it("tells arguments that are cut as arguments", () => {
    expect(summary(event("ActivityScheduled", { activity_type: "index" }, { arguments: ["x".repeat(200)] }))).toMatch(/^index\("x+…$/);
    expect(summary(event("ChildRunCompleted", { child_workflow_type: "bill" }, { result: 3 }))).toBe("bill → 3");
    expect(summary(event("UpdateCompleted", { update_name: "add", failed: true, message: "too much" }))).toBe("add: too much");
  });
  it("has a summary in one line", () => {
    expect(summary(event("ActivityScheduled", { activity_type: "index", session_id: "s1" }, { arguments: ["a", 2] }))).toBe('index("a",2) in session s1');
    expect(summary(event("ActivityCompleted", { activity_type: "index", worker_id: "w1", code_version: "0123456789abcdef" }, { result: null }))).toBe(
      "index on w1, version 01234567 → null",
    );
    expect(summary(event("ActivityRetryScheduled", { activity_type: "index", worker_id: "w1", attempt_number: 2, message: "'k'", exception_type: "KeyError" }))).toBe(
      "index, attempt 2: KeyError: 'k', on w1",
    );
    expect(summary(event("ActivityCompleted", { activity_type: "index", worker_id: "w1", attempt_number: 2 }, { result: null }))).toBe("index on w1, attempt 2 → null");
    expect(summary(event("ActivityTimedOut", { activity_type: "index", timeout_kind: "start_to_close" }))).toBe("index: start to close");
    expect(summary(event("TimerScheduled", { delay_seconds: 90 }))).toBe("1.5 min");
    expect(summary(event("SignalReceived", { signal_name: "approve" }, { value: [true] }))).toBe("approve(true)");
    expect(summary(event("SomethingNew", null))).toBe("");
  });
  it("has a name in words, and its distance from the start", () => {
    expect(eventName("ActivityRetryScheduled")).toBe("Activity retry scheduled");
    expect(since(event("TimerFired", {}), Date.UTC(2026, 10, 21, 12))).toBe("+1.50 s");
  });
});

describe("arguments as they are typed", () => {
  it("are a list, one value, or none", () => {
    expect(parseArguments("[1, 2]")).toEqual([1, 2]);
    expect(parseArguments("true")).toEqual([true]);
    expect(parseArguments("  ")).toEqual([]);
    expect(() => parseArguments("{oops")).toThrow(SyntaxError);
  });
});
