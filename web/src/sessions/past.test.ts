import { expect, it } from "vitest";
import type { SessionEvent } from "../api/types";
import { joined } from "./past";

const at = (n: number) => new Date(1_790_000_000_000 + n * 1000).toISOString();
const claimed = (n: number): SessionEvent => ({ at: at(n), what: "claimed", worker_id: "w", epoch: n });
const renewed = (n: number, epoch: number): SessionEvent => ({ at: at(n), what: "renewed", worker_id: "w", epoch, renewals: n });

it("joins parts that overlap, and loses nothing in between", () => {
  const parts = [[claimed(1), claimed(2)], [claimed(3), claimed(4), claimed(5)], [claimed(5), claimed(6)]];
  expect(joined(parts).map((e) => e.epoch)).toEqual([1, 2, 3, 4, 5, 6]);
});

it("takes of the renewals of a holding what is known last, at its place", () => {
  expect(joined([[claimed(1), renewed(3, 1)], [claimed(1), renewed(8, 1), claimed(9)]])).toEqual([claimed(1), renewed(8, 1), claimed(9)]);
});
