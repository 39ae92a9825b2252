import { expect, it } from "vitest";
import { fold } from "./JsonView";

const lines = (n: number) => Array.from({ length: n }, (_, i) => `${i}`).join("\n");

it("folds a text that has many more lines, and none that has a few more", () => {
  expect(fold(lines(40), 12)).toBe(lines(12));
  expect(fold(lines(14), 12)).toBe(lines(14));
  expect(fold("", 12)).toBe("");
});
