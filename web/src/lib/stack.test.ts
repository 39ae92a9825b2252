import { expect, it } from "vitest";
import type { HistoryEvent } from "../api/types";
import { failureText, lastStack, place, stackOf } from "./stack";

it("says where code failed, in every language", () => {
  expect(place("shop/orders.Place(0x1)\n\t/src/shop/orders.go:42 +0x1d\nmain.main()\n\t/src/main.go:7")).toBe("orders.go:42");
  expect(place("Error: no\n    at charge (file:///job/cards.mjs:12:9)\n    at node:internal/x:3")).toBe("cards.mjs:12");
  expect(place('Traceback (most recent call last):\n  File "/a/run.py", line 3, in <module>\n  File "/a/cards.py", line 19, in charge\nValueError: no')).toBe("cards.py:19");
  expect(place("nothing of the kind")).toBe("");
  expect(place("panic\n\truntime/panic.go:787 +0x1\nmine()\n\tmine/a.go:9")).toBe("a.go:9");
  expect(place("Error: no\n    at f (/job/node_modules/pg/lib/client.js:1:1)\n    at main (/job/orders.ts:4:2)")).toBe("orders.ts:4");
  expect(place("file:///job/late.mjs?hash=64c5:7\nTypeError: x\n    at f (file:///job/late.mjs?hash=64c5:7:3)")).toBe("late.mjs:7");
  expect(place('  File "/job/orders.py", line 3, in main\n  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode')).toBe("orders.py:3");
});

it("finds the stack of what failed last", () => {
  expect(stackOf({ message: "no" })).toBe("");
  const event = (sequence: number, payload: HistoryEvent["payload"]) => ({ sequence, event_type: "ActivityFailed", recorded_at: null, timestamp: null, payload });
  expect(lastStack([event(1, { activity_type: "a", stack_trace: "one" }), event(2, { activity_type: "b", stack_trace: "two\n" }), event(3, null)])).toEqual({ of: "b", stack: "two" });
  expect(lastStack([event(1, { message: "x" })])).toBeNull();
});

it("names the type of a failure where that says something", () => {
  expect(failureText("KeyError", "'card'")).toBe("KeyError: 'card'");
  expect(failureText("Error", "no credit")).toBe("no credit");
  expect(failureText("ActivityTimeout", "activity timed out: start_to_close")).toBe("activity timed out: start_to_close");
  expect(failureText("poison", "poison pill")).toBe("poison pill");
  expect(failureText("AssertionError", "")).toBe("AssertionError");
  expect(failureText(undefined, "no")).toBe("no");
});
