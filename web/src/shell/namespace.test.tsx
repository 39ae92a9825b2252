// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, Outlet, retainSearchParams, RouterProvider } from "@tanstack/react-router";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "../api/queries";
import { findRun } from "../run/elsewhere";
import { homeOf, NamespaceScope, useNamespace } from "./namespace";
import { KnownNamespace, listOf, NamespaceSwitch } from "./NamespaceSwitch";

const patience = { timeout: 30_000 };

it("begins in default, or where the token is bound to", () => {
  expect([homeOf(undefined), homeOf({ namespaces: [] }), homeOf({ namespaces: ["b", "default"] }), homeOf({ namespaces: ["b", "a"] })]).toEqual([
    "default", "default", "default", "b",
  ]);
});

it("leads from what one namespace has to the list of its kind", () => {
  expect(["/", "/runs/r1", "/sessions/a%2Fb", "/workers", "/queues/q", "/schedules/s", "/namespaces", "/odd"].map(listOf)).toEqual([
    "/", "/", "/sessions", "/workers", "/queues", "/schedules", "/namespaces", "/",
  ]);
});

describe("in the page", () => {
  let root: Root;

  beforeEach(() => {
    vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
    vi.stubGlobal("scrollTo", () => {});
  });
  afterEach(async () => {
    await act(async () => root.unmount());
    document.body.replaceChildren();
    vi.unstubAllGlobals();
  });

  const Here = () => <p>about {useNamespace()}</p>;
  const text = () => document.body.textContent ?? "";

  async function open(path: string, bound: string[] = []) {
    const top = createRootRoute({
      component: () => (
        <NamespaceScope>
          <NamespaceSwitch />
          <KnownNamespace>
            <Outlet />
          </KnownNamespace>
        </NamespaceScope>
      ),
      validateSearch: (s: Record<string, unknown>): { namespace?: string } => (typeof s.namespace === "string" ? { namespace: s.namespace } : {}),
      search: { middlewares: [retainSearchParams(["namespace"])] },
    });
    const at = (path: string) => createRoute({ getParentRoute: () => top, path, component: Here });
    const router = createRouter({
      routeTree: top.addChildren([at("/"), at("/sessions"), at("/sessions/$sessionId")]),
      history: createMemoryHistory({ initialEntries: [path] }),
    });
    const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } });
    client.setQueryData(keys.me, { identity: "me", roles: ["viewer"], namespaces: bound });
    client.setQueryData(keys.namespaces, { namespaces: ["default", "team-b", "team-a"].filter((n) => bound.length === 0 || bound.includes(n)).map((name) => ({ name })) });
    root = createRoot(document.body.appendChild(document.createElement("div")));
    await act(async () => root.render(<QueryClientProvider client={client}><RouterProvider router={router as never} /></QueryClientProvider>));
    await act(async () => router.load());
    return router;
  }

  it("the switch leads to another namespace, and the address says which", async () => {
    const router = await open("/sessions/s1?namespace=team-a");
    expect(text()).toContain("about team-a");
    const select = document.querySelector("select")!;
    expect([select.value, [...select.options].map((o) => o.value)]).toEqual(["team-a", ["default", "team-a", "team-b"]]);
    const to = async (name: string) =>
      act(async () => {
        Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, "value")!.set!.call(select, name);
        select.dispatchEvent(new Event("change", { bubbles: true }));
      });
    await to("team-b");
    await vi.waitFor(() => expect(text()).toContain("about team-b"), patience);
    expect(router.state.location.href).toBe("/sessions?namespace=team-b");
    await to("default");
    await vi.waitFor(() => expect(text()).toContain("about default"), patience);
    expect(router.state.location.href).toBe("/sessions");
  });
  it("a reader whose token is bound elsewhere begins there, and the address says so", async () => {
    const router = await open("/sessions", ["team-b"]);
    expect(text()).toContain("about team-b");
    await vi.waitFor(() => expect(router.state.location.href).toBe("/sessions?namespace=team-b"), patience);
  });
  it("an unknown namespace shows an error with links to the others", async () => {
    await open("/?namespace=gone");
    expect(text()).toContain("Namespace gone not found");
    expect(text()).not.toContain("about gone");
    expect([...document.querySelectorAll("a")].map((a) => a.getAttribute("href"))).toEqual(["/", "/?namespace=team-a", "/?namespace=team-b"]);
  });
});

it("finds the namespace of a run by its id", async () => {
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) =>
    new Headers(init.headers).get("X-Namespace") === "team-b" ? Response.json({ run_id: "r" }) : Response.json({ reason: "run_not_found" }, { status: 404 }),
  );
  expect([await findRun("r", ["team-a", "team-b"]), await findRun("r", ["team-a"])]).toEqual(["team-b", null]);
  vi.unstubAllGlobals();
});
