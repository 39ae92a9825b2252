import { describe, expect, test } from "vitest";
import { chainsOf } from "./chains";

describe("chainsOf", () => {
  const runs = [
    { run_id: "a", run_number: 1, chain_run_id: null },
    { run_id: "b", run_number: 2, chain_run_id: null },
    { run_id: "c", run_number: 1, chain_run_id: "c" },
    { run_id: "d", run_number: 1, chain_run_id: "d" },
    { run_id: "e", run_number: 2, chain_run_id: "d" },
  ];
  const ids = (list: { run_id: string }[]) => list.map((r) => r.run_id).join(" ");

  test("a run of the first chain, whose description has no chain", () => {
    const { own, others } = chainsOf({ run_id: "b", run_number: 2 }, runs);
    expect(ids(own)).toBe("a b");
    expect(ids(others)).toBe("c e");
  });

  test("a run of the newest chain", () => {
    const { own, others } = chainsOf({ run_id: "d", run_number: 1, chain_run_id: "d" }, runs);
    expect(ids(own)).toBe("d e");
    expect(ids(others)).toBe("b c");
  });
});
