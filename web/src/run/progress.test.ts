import { expect, it } from "vitest";
import { progress } from "./progress";

it("formats the progress of an activity", () => {
  expect(progress({ current: 1500, total: 6000, unit: "pages", message: "reading" })).toEqual({ text: "1,500 of 6,000 pages · reading", share: 0.25 });
  expect(progress({ current: 7 })).toEqual({ text: "7", share: null });
  expect(progress({ current: 9, total: 3 })?.share).toBe(1);
  expect(progress({ message: "almost", details: { at: 3 } })).toEqual({ text: 'almost · {"at":3}', share: null });
  expect(progress({ rows: 12 })).toEqual({ text: '{"rows":12}', share: null });
  expect(progress("half")).toEqual({ text: '"half"', share: null });
  for (const nothing of [undefined, null, {}]) expect(progress(nothing)).toBeNull();
});
