import { describe, expect, it } from "vitest";
import type { SessionView, WorkerView } from "../api/types";
import { meets, targets } from "./verbs";

const session = (o: Partial<SessionView>) => ({ status: "active", lease_owner: "a", queue: "", requirements: [], closed_at: null, ...o }) as SessionView;
const worker = (id: string, o: Partial<WorkerView> = {}) =>
  ({ worker_id: id, status: "active", task_queue: "default", task_queues: ["default"], capabilities: [], held_sessions: 0, max_concurrent_worker_sessions: 10, ...o }) as WorkerView;

describe("targets of a move", () => {
  it("are the workers that hold sessions and are there, but for the holder", () => {
    const all = [worker("a"), worker("stale", { status: "stale" }), worker("none", { max_concurrent_worker_sessions: 0 }), worker("b")];
    expect(targets(session({}), all).map((t) => t.id)).toEqual(["b"]);
    expect(targets(session({ status: "expired" }), all).map((t) => t.id)).toEqual(["a", "b"]);
  });
  it("are workers that can own it, the one with the fewest sessions first", () => {
    const s = session({ queue: "gpu", requirements: ["cuda", "memory>=8"] });
    const gpu = { task_queues: ["gpu"], capabilities: ["cuda", "memory=16"] };
    expect(
      targets(s, [
        worker("elsewhere", { capabilities: ["cuda"] }),
        worker("plain", { task_queues: ["gpu"] }),
        worker("small", { ...gpu, capabilities: ["cuda", "memory=4"] }),
        worker("full", { ...gpu, held_sessions: 10 }),
        worker("busy", { ...gpu, held_sessions: 3 }),
        worker("free", { ...gpu, held_sessions: 1 }),
      ]).map((t) => t.id),
    ).toEqual(["free", "busy"]);
    expect(targets(session({ release_policy: "finish", release: "1.0" }), [worker("b", { release: "2.0" }), worker("c", { release: "1.0" })]).map((t) => t.id)).toEqual(["c"]);
    expect(targets(session({}), [worker("a", { task_queues: ["gpu"] }), worker("b"), worker("c", { task_queues: ["gpu", "default"] })]).map((t) => t.id)).toEqual(["c"]);
  });
});

describe("a requirement", () => {
  it("is met as the app has it", () => {
    const has = ["cuda=12.4", "ram=64", "tag"];
    for (const met of ["tag", "cuda>=12.2,<13", "ram>=64", "ram<=64.0", "ram>8", "cuda=12.4"]) expect([met, meets(met, has)]).toEqual([met, true]);
    for (const not of ["tags", "cuda>=13", "ram>=128", "ra>=1", "ram=>64", "ram>=", "ram>=64,", "ram>=1e1", "ram>= 64"]) expect([not, meets(not, has)]).toEqual([not, false]);
  });
});
