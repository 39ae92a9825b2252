import { describe, expect, it } from "vitest";
import type { SessionView, WorkerView } from "../api/types";
import { targets } from "./verbs";

const session = (o: Partial<SessionView>) => ({ status: "active", lease_owner: "a", queue: "", requirements: [], closed_at: null, ...o }) as SessionView;
const worker = (id: string, o: Partial<WorkerView> = {}) =>
  ({ worker_id: id, status: "active", task_queue: "default", task_queues: ["default"], capabilities: [], held_sessions: 0, max_concurrent_worker_sessions: 10, ...o }) as WorkerView;

describe("targets of a move", () => {
  it("are the workers that hold sessions and are there, but for the holder", () => {
    const all = [worker("a"), worker("stale", { status: "stale" }), worker("none", { max_concurrent_worker_sessions: 0 }), worker("b")];
    expect(targets(session({}), all).map((t) => t.id)).toEqual(["b"]);
    expect(targets(session({ status: "expired" }), all).map((t) => t.id)).toEqual(["a", "b"]);
  });
  it("come with what speaks against them, those without that and with the fewest sessions first", () => {
    const s = session({ queue: "gpu", requirements: ["cuda", "memory>=8"] });
    const gpu = { task_queues: ["gpu"], capabilities: ["cuda"] };
    expect(
      targets(s, [
        worker("elsewhere", { capabilities: ["cuda"] }),
        worker("plain", { task_queues: ["gpu"] }),
        worker("full", { ...gpu, held_sessions: 10 }),
        worker("busy", { ...gpu, held_sessions: 3 }),
        worker("free", { ...gpu, held_sessions: 1 }),
      ]).map((t) => [t.id, t.against]),
    ).toEqual([["free", ""], ["busy", ""], ["elsewhere", "does not serve gpu"], ["plain", "has no cuda"], ["full", "is full"]]);
  });
});
