import { expect, it } from "vitest";
import type { HistoryEvent } from "../api/types";
import { lastStack, place, stackOf } from "./stack";

it("says where code failed, in every language", () => {
  expect(place("shop/orders.Place(0x1)\n\t/src/shop/orders.go:42 +0x1d\nmain.main()\n\t/src/main.go:7")).toBe("orders.go:42");
  expect(place("Error: no\n    at charge (file:///job/cards.mjs:12:9)\n    at node:internal/x:3")).toBe("cards.mjs:12");
  expect(place('Traceback (most recent call last):\n  File "/a/run.py", line 3, in <module>\n  File "/a/cards.py", line 19, in charge\nValueError: no')).toBe("cards.py:19");
  expect(place("nothing of the kind")).toBe("");
});

it("finds the stack of what failed last", () => {
  expect(stackOf({ message: "no" })).toBe("");
  const event = (sequence: number, payload: HistoryEvent["payload"]) => ({ sequence, event_type: "ActivityFailed", recorded_at: null, timestamp: null, payload });
  expect(lastStack([event(1, { activity_type: "a", stack_trace: "one" }), event(2, { activity_type: "b", stack_trace: "two\n" }), event(3, null)])).toEqual({ of: "b", stack: "two" });
  expect(lastStack([event(1, { message: "x" })])).toBeNull();
});
