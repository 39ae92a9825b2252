// @vitest-environment jsdom
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { SessionView } from "../api/types";
import { Notice } from "./Notice";

let root: Root;

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

async function text(o: Partial<SessionView>): Promise<string> {
  const at = document.body.appendChild(document.createElement("div"));
  root = createRoot(at);
  await act(async () => root.render(<Notice session={{ status: "active", active_activity_count: 0, ...o } as SessionView} />));
  return at.textContent ?? "";
}

const lease = "2026-11-21T12:01:00Z";

it("names the successor that runs the set-up", async () => {
  const shown = await text({ successor: { worker_id: "w2", started_at: "2026-11-21T12:00:00Z", lease_expires_at: lease } });
  expect(shown).toMatch(/^Being handed over to w2, which runs the set-up since .+: the draining owner still receives the session's activities\.$/);
});

it("says that the session moves to balance the workers", async () => {
  const shown = await text({ successor: { worker_id: "w2", started_at: "2026-11-21T12:00:00Z", lease_expires_at: lease, why: "rebalanced" } });
  expect(shown).toMatch(/: it holds fewer sessions than the owner, which still receives the session's activities\.$/);
});

it("shows the successor without the time that an older app did not store", async () => {
  const shown = await text({ successor: { worker_id: "w2", lease_expires_at: lease } });
  expect(shown).toMatch(/^Being handed over to w2, which runs the set-up: /);
});

it("shows for what a prepared successor waits, instead of a migration", async () => {
  const successor = { worker_id: "w2", started_at: "2026-11-21T12:00:00Z", prepared_at: "2026-11-21T12:00:30Z", lease_expires_at: lease };
  const shown = await text({ moving: "ops", active_activity_count: 2, successor });
  expect(shown).toMatch(/^Being handed over to w2, which completed its set-up .+: activities of the owner that still run: 2\.$/);
});

it("shows a migration without a successor", async () => {
  expect(await text({ moving: "ops" })).toMatch(/^Being migrated by ops: /);
});
