// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "../api/queries";
import type { RunView } from "../api/types";
import { Actions } from "./Actions";

const run = (o: Partial<RunView> = {}) =>
  ({ workflow_id: "order", run_id: "r1", namespace: "default", kind: "workflow", status: "waiting", status_bucket: "running", is_terminal: false, pending: null, ...o }) as RunView;

let root: Root;
let supported = true;
const sent: string[] = [];

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  sent.length = 0;
  supported = true;
  vi.stubGlobal("fetch", async (path: string) => {
    sent.push(path);
    if (path.endsWith("/request-cancellation") && !supported) return Response.json({ reason: "cancellation_not_supported", message: "no worker supports it" }, { status: 409 });
    return Response.json({ outcome: "done" });
  });
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

async function show(r: RunView): Promise<void> {
  root = createRoot(document.body.appendChild(document.createElement("div")));
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  client.setQueryData(keys.me, { identity: "me", roles: ["writer"] });
  await act(async () => root.render(<QueryClientProvider client={client}><Actions run={r} /></QueryClientProvider>));
}

const named = (name: string) => [...document.querySelectorAll("button")].find((b) => b.textContent?.trim() === name);

async function press(name: string): Promise<void> {
  const button = named(name);
  expect(button, `the button ${name}`).toBeDefined();
  await act(async () => button!.click());
  await act(async () => new Promise((r) => setTimeout(r)));
}

describe("ending a run", () => {
  it("asks the code to end", async () => {
    await show(run());
    await press("Cancel");
    await press("Cancel run");
    expect(sent).toEqual(["/api/workflows/order/request-cancellation"]);
  });

  it("offers the immediate form where no worker supports a request", async () => {
    supported = false;
    await show(run());
    await press("Cancel");
    expect(named("Force cancel instead")).toBeUndefined();
    await press("Cancel run");
    await press("Force cancel instead");
    await act(async () => document.querySelector("form")!.requestSubmit());
    await act(async () => new Promise((r) => setTimeout(r)));
    expect(sent).toEqual(["/api/workflows/order/request-cancellation", "/api/workflows/order/cancel"]);
  });

  it("cancels an activity run immediately", async () => {
    await show(run({ kind: "activity" }));
    expect(named("Force cancel")).toBeUndefined();
    await press("Cancel");
    await press("Cancel activity");
    expect(sent).toEqual(["/api/workflows/order/cancel"]);
  });
});
