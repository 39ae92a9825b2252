import { describe, expect, it } from "vitest";
import type { Wait, WaitReason } from "../api/types";
import { waitRules } from "../api/waits";
import { because, members, plain, sentence } from "./wait";

const now = Date.parse("2026-11-22T12:00:00Z");
const wait = (reason: WaitReason, o: Partial<Wait> = {}): Wait => ({ kind: "activity", reason, needs_attention: false, message: "as the app says", name: "charge", ...o });
const text = (w: Wait) => plain(sentence(w), "utc", now);

describe("the text of a wait", () => {
  it.each<[Wait, string]>([
    [wait("start_delay", { kind: "workflow_task", until: "2026-11-22T15:00:00Z" }), "start delayed until 22 Nov, 15:00:00 (in 3h)"],
    [wait("session_held", { session_id: "s", worker_id: "w7", until: "2026-11-22T12:03:20Z" }), 'activity "charge": session s is held by worker w7 until 22 Nov, 12:03:20 (in 3m)'],
    [wait("session_held", { session_id: "s", worker_id: "w7", until: "2026-11-22T11:59:00Z" }), 'activity "charge": session s is held by worker w7 until 22 Nov, 11:59:00'],
    [wait("session_holder_busy", { session_id: "s", worker_id: "w7", fallback_at: "2026-11-22T12:00:30Z" }),
      'activity "charge": session s is held by worker w7, which is busy or not polling; any worker may acquire the session from 22 Nov, 12:00:30 (in 30s)'],
    [wait("worker_sessions_full", { worker_id: "w", limit: 3, worker_count: 2 }), 'activity "charge": all 2 workers hold their maximum number of sessions (3 each); raise --worker-max-sessions or close idle sessions'],
    [wait("session_resources", { session_id: "s", resources: { gpu_mem: "24GiB" }, worker_count: 5, worker_resources: [{ worker_id: "a", resource: "gpu_mem", free: "8GiB", total: "80GiB" }] }),
      'activity "charge": session s needs gpu_mem 24GiB; worker a has 8GiB of 80GiB free, 4 more workers have less'],
    [wait("capability_missing", { worker_id: "w", missing: ["gpu", "arm64"] }), 'activity "charge": needs gpu, arm64, which worker w does not offer'],
    [wait("session_other_queue", { session_id: "s", worker_id: "w", task_queue: "q", worker_task_queues: ["a", "b"] }),
      'activity "charge": session s is held by worker w, which polls a, b but not queue "q"'],
    [wait("build_pinned", { kind: "workflow_task", build_id: "b2", worker_id: "w" }), "workflow task: pinned to build b2, but worker w has no build ID"],
    [wait("retry_backoff", { until: "2026-11-22T12:00:09Z", failures: 10, more: 2 }),
      'activity "charge" (and 2 more): next attempt at 22 Nov, 12:00:09 (in 9s) (10 failed)'],
    [wait("budget_rate", { kind: "workflow_task", task_queue: "q", used: 5, limit: 5, until: "2026-11-22T12:01:00Z" }),
      'workflow task: queue "q" is at its rate limit (5 of 5 workflow tasks this minute); more start at 22 Nov, 12:01:00 (in 1m)'],
    [wait("signal", { kind: "signal", name: "[odd|{x}]" }), 'waiting for signal "[odd|{x}]"'],
    [wait("release_mismatch", { session_id: "s", worker_id: "w", detail: "app 2, worker 1" }), 'activity "charge": session s is held by worker w: app 2, worker 1'],
    [wait("type_not_served", { name: "eccho", task_queue: "q", worker_id: "w", suggestion: "echo" }), 'no worker on queue "q" has registered activity "eccho"; did you mean "echo"?'],
    [wait("type_not_served", { kind: "workflow_task", name: "nosuch", task_queue: "q", worker_id: "w" }), 'no worker on queue "q" has registered workflow "nosuch"'],
    [wait("type_not_served", { name: "echo", session_id: "s", task_queue: "q", worker_id: "w" }), 'session s is held by worker w, which has not registered activity "echo"'],
    [wait("suspect", { losses: 2, detail: "an idle worker process" }), 'activity "charge" is a suspect in lost worker processes (lost: 2) and waits for an idle worker process'],
    [wait("session_pool", { pool: "llama", position: 3 }), 'activity "charge": waiting for a session of pool llama, position 3'],
    [wait("session_pool_missing", { pool: "llama" }), 'activity "charge": waiting for a session of pool llama, which does not exist'],
    [{ ...wait("signal"), reason: "of a later release" as WaitReason }, "as the app says"],
  ])("%o", (w, expected) => expect(text(w)).toBe(expected));

  it("is appended to a subject", () => {
    expect(plain(because(wait("running", { worker_id: "w" })), "utc", now)).toBe(" is running on worker w");
    expect(plain(because(wait("no_worker", { task_queue: "q" })), "utc", now)).toBe(': no live worker is polling queue "q"');
  });

  it("has a member for every name in the texts", () => {
    const known = new Set([...Object.keys(members), "task", "tasks", "resources", "worker_resources"]);
    const named = Object.values(waitRules).flatMap((r) => [...r.text.matchAll(/\{(\w+)\}/g)].map((m) => m[1]!));
    expect(named.filter((name) => !known.has(name))).toEqual([]);
    expect(named.length).toBeGreaterThan(50);
  });

  it("fills in all members of every reason", () => {
    for (const reason of Object.keys(waitRules) as WaitReason[]) {
      const whole = wait(reason, {
        task_queue: "q", namespace: "n", group: "g", worker_id: "w", worker_count: 2, session_id: "s", workflow_id: "c", missing: ["m"], worker_task_queues: ["p"], build_id: "b", worker_build_id: "c",
        release: "r", worker_release: "t", limit: 1, used: 1, failures: 1, losses: 1, blamed: 1, more: 1, detail: "d", suggestion: "u", resources: { x: "1" }, worker_resources: [{ worker_id: "w", resource: "x", free: "0", total: "2" }], until: "2026-11-22T12:00:00Z", fallback_at: "2026-11-22T12:00:00Z",
        since: "2026-11-22T12:00:00Z", activity_token: "k", pool: "p", position: 1,
      });
      expect(text(whole), reason).not.toMatch(/[{}[\]|]|undefined/);
    }
  });
});
