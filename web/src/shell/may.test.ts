import { expect, it } from "vitest";
import { refusal } from "./may";

it("lets a role do what those below it may, and says what is missing", () => {
  expect(refusal(["operator"], "writer")).toBe("");
  expect(refusal(["admin"], "admin")).toBe("");
  expect(refusal(["viewer"], "writer")).toBe("Requires the role writer; you have viewer.");
  expect(refusal(["worker"], "operator")).toBe("Requires the role operator; you have worker.");
  expect(refusal(["viewer", "operator"], "operator")).toBe("");
  expect(refusal([], "viewer")).toBe("Requires the role viewer; you have no role.");
});

it("allows the action while the identity is loading", () => expect(refusal(undefined, "admin")).toBe(""));
