import { expect, it } from "vitest";
import { refusal } from "./may";

it("lets a role do what those below it may, and says what is missing", () => {
  expect(refusal(["operator"], "writer")).toBe("");
  expect(refusal(["admin"], "admin")).toBe("");
  expect(refusal(["viewer"], "writer")).toBe("The role viewer may not do this; a writer may.");
  expect(refusal(["worker"], "operator")).toBe("The role worker may not do this; an operator may.");
  expect(refusal(["viewer", "operator"], "operator")).toBe("");
  expect(refusal([], "viewer")).toBe("The role none may not do this; a viewer may.");
});

it("says nothing while nobody knows who asks", () => expect(refusal(undefined, "admin")).toBe(""));
