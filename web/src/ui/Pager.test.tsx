// @vitest-environment jsdom
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider, useSearch } from "@tanstack/react-router";
import { act, useState } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Pager } from "./Pager";

let root: Root;
let arrive: () => Promise<void>;

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  vi.stubGlobal("scrollTo", () => {});
});
afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

/** A list whose pages are asked for at once, and come when the test says so. */
function List() {
  const { after } = useSearch({ strict: false }) as { after?: string };
  const [shown, setShown] = useState<string>();
  arrive = () => act(async () => setShown(after));
  return <Pager next={`${shown ?? ""}x`} after={after} before={shown !== after} />;
}

it("goes one page for any number of clicks while that page is read, and comes back by the pages it came by", async () => {
  const router = createRouter({ routeTree: createRootRoute({ component: List }), history: createMemoryHistory() });
  const at = () => router.state.location.searchStr;
  const click = async (name: string) => {
    const button = [...document.querySelectorAll("button")].find((b) => b.textContent?.trim() === name)!;
    await act(async () => button.click());
    await act(() => router.load());
  };
  root = createRoot(document.body.appendChild(document.createElement("div")));
  await act(() => router.load());
  await act(async () => root.render(<RouterProvider router={router} />));
  await click("Older");
  await click("Older");
  expect(at()).toBe("?after=x");
  await arrive();
  await click("Older");
  await arrive();
  expect(at()).toBe("?after=xx");
  await click("Newer");
  await arrive();
  expect(at()).toBe("?after=x");
  await click("Newer");
  expect(at()).toBe("");
});
