// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { Keys, step, typing } from "./keyboard";

describe("keys", () => {
  it("goes somewhere by g and a letter, within a moment", () => {
    const k = new Keys();
    expect([k.press("g", 0), k.press("w", 400)]).toEqual([undefined, "workers"]);
    expect([k.press("g", 1000), k.press("w", 9000)]).toEqual([undefined, undefined]);
    expect([k.press("g", 10_000), k.press("j", 10_100)]).toEqual([undefined, "next"]);
  });
  it("does nothing for other keys", () => {
    const k = new Keys();
    expect([k.press("r", 0), k.press("Enter", 1), k.press("x", 2)]).toEqual([undefined, undefined, undefined]);
  });
  it("leaves fields to their typing", () => {
    expect(typing(document.createElement("input"))).toBe(true);
    expect(typing(document.createElement("textarea"))).toBe(true);
    expect(typing(document.createElement("button"))).toBe(false);
    expect(typing(null)).toBe(false);
  });
});

describe("step", () => {
  beforeEach(() => {
    document.body.innerHTML = `<a href="#1" data-nav id="a">a</a><a href="#x">x</a><a href="#2" data-nav id="b">b</a>`;
    // jsdom lays nothing out, so nothing has an offset parent there.
    Object.defineProperty(HTMLElement.prototype, "offsetParent", { configurable: true, get: () => document.body });
  });
  it("moves the focus along the rows and stops at the ends", () => {
    const at = () => document.activeElement?.id;
    step(1);
    expect(at()).toBe("a");
    step(1);
    expect(at()).toBe("b");
    step(1);
    expect(at()).toBe("b");
    step(-1);
    expect(at()).toBe("a");
    step(-1);
    expect(at()).toBe("a");
  });
});
