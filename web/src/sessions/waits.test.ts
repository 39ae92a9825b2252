import { expect, it } from "vitest";
import type { SessionView } from "../api/types";
import { waits } from "./waits";

const session = (o: object = {}) =>
  ({
    status: "active", lease_owner: "w", holder: { worker_id: "w", status: "active", is_stale: false }, closed_at: null, requirements: [], ready_activity_count: 1,
    active_activity_count: 0, max_concurrent_activities: 0, ...o,
  }) as unknown as SessionView;

const holder = (status: string) => ({ holder: { worker_id: "w", status, is_stale: status === "stale" } });

it.each([
  [{ ready_activity_count: 0 }, ""],
  [{ closed_at: "2026-11-21T12:00:00Z" }, ""],
  [{ waiting: "as the app says" }, "as the app says"],
  [{}, "1 activity waits for w, which holds it"],
  [holder("stale"), "1 activity waits: w holds it and is not heard of; another may claim it when the lease ends"],
  [holder("mismatched"), "1 activity waits: w holds it, and its release is not the app's"],
  [holder("draining"), "1 activity waits: w holds it and drains"],
  [{ ready_activity_count: 2, active_activity_count: 1, max_concurrent_activities: 1 }, "2 activities wait: 1 run in it, its most"],
  [{ status: "expired", lease_owner: null, holder: null, requirements: ["gpu", "arm64"] }, "1 activity waits for a worker that has gpu, arm64 to claim it"],
  [{ kept_for: "v" }, "kept for v for a short time"],
  [{ moving: "ada", ready_activity_count: 0 }, "ada moves it: what runs in it ends first"],
])("%j waits: %s", (o, said) => expect(waits(session(o))).toBe(said));
