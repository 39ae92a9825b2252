// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { live } from "../api/live";
import { Gate } from "./Gate";

let root: Root;
let signedIn: boolean;
const calls: string[] = [];

beforeEach(() => {
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  document.body.innerHTML = `<div id="root"></div>`;
  signedIn = false;
  calls.length = 0;
  vi.spyOn(live, "start").mockReturnValue(() => {});
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    calls.push(`${init.method} ${url} ${init.body ?? ""}`.trim());
    if (url === "/api/sojourn/login") {
      signedIn = init.body === '{"token":"sjn_good"}';
      return new Response(signedIn ? "{}" : '{"reason":"unauthorized","message":"unknown token"}', { status: signedIn ? 200 : 401 });
    }
    return new Response(JSON.stringify(signedIn ? { identity: "me", roles: ["admin"] } : { reason: "unauthorized" }), { status: signedIn ? 200 : 401 });
  });
  root = createRoot(document.getElementById("root")!);
});

afterEach(() => {
  act(() => root.unmount());
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const settled = (fit: () => boolean) => act(async () => void (await vi.waitFor(() => expect(fit()).toBe(true), { timeout: 30_000 })));
const shown = (text: string) => document.body.textContent?.includes(text) ?? false;

async function type(token: string): Promise<void> {
  const field = document.querySelector("input")!;
  await act(async () => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(field, token);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await act(async () => document.querySelector("form")!.requestSubmit());
}

const open = () =>
  act(async () =>
    root.render(
      <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
        <Gate>
          <p>the dashboard</p>
        </Gate>
      </QueryClientProvider>,
    ),
  );

it("opens after a sign-in in another tab and keeps the typed token until then", async () => {
  await open();
  await settled(() => shown("Sign in"));
  await type("sjn_bad");
  await settled(() => shown("rejected this token"));
  const asked = calls.length;
  await act(async () => void document.dispatchEvent(new Event("visibilitychange")));
  await settled(() => calls.length === asked + 1);
  expect(document.querySelector("input")!.value).toBe("sjn_bad");
  signedIn = true;
  await act(async () => void document.dispatchEvent(new Event("visibilitychange")));
  await settled(() => shown("the dashboard"));
  expect(calls.slice(asked).some((c) => c.includes("login"))).toBe(false);
});

it("asks strangers for a token, says no to a wrong one, and opens for the right one", async () => {
  await open();
  await settled(() => shown("Sign in"));
  expect(live.start).not.toHaveBeenCalled();
  await type("sjn_bad");
  await settled(() => shown("rejected this token"));
  await type("sjn_good");
  await settled(() => shown("the dashboard"));
  expect(live.start).toHaveBeenCalledTimes(1);
  expect(calls).toContain('POST /api/sojourn/login {"token":"sjn_good"}');
});
