// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "../api/queries";
import type { SessionView } from "../api/types";
import { Actions } from "./Actions";

const session = (o: Partial<SessionView> = {}) =>
  ({
    session_id: "a/b", namespace: "team-a", status: "active", lease_owner: "w1", holder: null, queue: "", requirements: [], closed_at: null,
    active_activity_count: 1, ready_activity_count: 2, ...o,
  }) as SessionView;

const workers = [
  { worker_id: "w1", status: "active", task_queue: "default", held_sessions: 1, max_concurrent_worker_sessions: 5 },
  { worker_id: "w2", status: "active", task_queue: "default", held_sessions: 0, max_concurrent_worker_sessions: 5 },
];

const patience = { timeout: 30_000 };

let root: Root;
let answer: (path: string) => Response;
const sent: { path: string; body: unknown; namespace: string | null }[] = [];

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  sent.length = 0;
  answer = () => Response.json({ outcome: "migrated", session: {} });
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    if (path === "/api/workers") return Response.json({ workers });
    sent.push({ path, body: JSON.parse(String(init.body)), namespace: new Headers(init.headers).get("X-Namespace") });
    return answer(path);
  });
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

async function show(s: SessionView, role = "operator"): Promise<void> {
  const at = document.body.appendChild(document.createElement("div"));
  root = createRoot(at);
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  client.setQueryData(keys.me, { identity: "me", roles: [role] });
  await act(async () => root.render(<QueryClientProvider client={client}><Actions session={s} /></QueryClientProvider>));
}

const find = <T extends HTMLElement>(selector: string, text = ""): T | undefined =>
  [...document.querySelectorAll<T>(selector)].find((e) => e.textContent?.includes(text));

/** Waits until it is there: what an answer brings comes after some turns of the loop. */
const there = <T extends HTMLElement>(selector: string, text = ""): Promise<T> =>
  vi.waitFor(async () => {
    await act(async () => {});
    const e = find<T>(selector, text);
    if (!e) throw new Error(`no ${selector} with ${text}`);
    return e;
  }, patience);

const click = async (selector: string, text: string) => {
  const e = await there(selector, text);
  await act(async () => {
    e.click();
    await new Promise((r) => setTimeout(r, 10)); // for the answer
  });
};

async function fill(e: HTMLInputElement | HTMLSelectElement, value: string): Promise<void> {
  const of = e instanceof HTMLSelectElement ? HTMLSelectElement.prototype : HTMLInputElement.prototype;
  await act(async () => {
    Object.getOwnPropertyDescriptor(of, "value")!.set!.call(e, value);
    e.dispatchEvent(new Event(e instanceof HTMLSelectElement ? "change" : "input", { bubbles: true }));
  });
}

describe("an operator's verbs", () => {
  it("move a session to a worker, at once when that is asked for", async () => {
    await show(session());
    await click("button", "Migrate");
    await there("option", "w2 (0 of 5 sessions)");
    expect(find("option", "w1")).toBeUndefined();
    await fill(await there<HTMLSelectElement>("select"), "w2");
    await act(async () => find('input[type="checkbox"]')!.click());
    await fill(await there<HTMLInputElement>("input[maxlength]"), " rack 7 goes ");
    await click('button[type="submit"]', "Migrate");
    await vi.waitFor(() => expect(find('[role="dialog"]')).toBeUndefined(), patience);
    expect(sent).toEqual([{ path: "/api/worker-sessions/a%2Fb/migrate", body: { reason: "rack 7 goes", force: true, worker_id: "w2" }, namespace: "team-a" }]);
  });
  it("show a refusal, and leave the dialog open", async () => {
    answer = () => Response.json({ reason: "worker_session_not_active", message: "session a/b has ended: closed" }, { status: 409 });
    await show(session());
    await click("button", "Close");
    await there('[role="dialog"]', "2 waiting activities fail with session_closed. Running activities can finish");
    await click('button[type="submit"]', "Close session");
    await there('[role="alert"]', "session a/b has ended: closed");
    expect(sent).toEqual([{ path: "/api/worker-sessions/a%2Fb/close", body: { reason: "" }, namespace: "team-a" }]);
    expect(find('[role="dialog"]')).toBeDefined();
  });
  it("do nothing for a viewer, and say why", async () => {
    await show(session(), "viewer");
    const close = await there("button", "Close");
    expect([close.getAttribute("aria-disabled"), close.title]).toEqual(["true", "Requires the role operator; you have viewer."]);
    await click("button", "Close");
    expect(find('[role="dialog"]')).toBeUndefined();
    expect(sent).toEqual([]);
  });
  it("are not offered for a session that has ended", async () => {
    await show(session({ status: "closed", closed_at: "2026-11-21T12:00:00Z" }));
    expect(find("button")).toBeUndefined();
  });
});
