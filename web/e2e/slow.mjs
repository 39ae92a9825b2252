// A search without an index shows partial results, how far it searched, and how to continue.
import assert from "node:assert/strict";
import { patience, shown, until } from "./checks.mjs";

const space = "much";
const names = Array.from({ length: 20 }, (_, n) => `A${n + 1}`); // only the oldest run has these, and what no run has is not looked for
const conditions = names.map((name) => `${name} != 'x'`).join(" OR ");

export const slow = [
  ["a long search shows how far it searched and continues from there", async ({ page, base, api, axe, shot }) => {
    await api("/api/namespaces", { name: space });
    const start = async (id, more) => (await api("/api/workflows", { workflow_id: id, workflow_type: "order", task_queue: "nobody's", ...more }, space)).run_id;
    const oldest = await start("the oldest", { search_attributes: Object.fromEntries(names.map((name) => [name, "y"])) });
    // A faster machine searches more runs in the same time, so the number of runs depends on it, with a reserve of one part.
    const enough = 3;
    const search = `/api/workflows?partial=true&page_size=50&query=${encodeURIComponent(conditions)}`;
    let made = 0;
    let parts = 0;
    while (parts < enough) {
      assert.ok(made < 200_000, `${made} runs were searched at once`);
      const to = made + 2000;
      await Promise.all(Array.from({ length: 64 }, async () => {
        while (made < to) await start(`order-${++made}`);
      }));
      parts = 0;
      for (let token = ""; token !== null && parts < enough; parts++) {
        const answer = await api(`${search}&next_page_token=${encodeURIComponent(token)}`, undefined, space);
        if (!answer.searched_to) break;
        token = answer.next_page_token;
      }
    }
    await page.goto(`${base}/?namespace=${space}&q=${encodeURIComponent(conditions)}`);
    await shown(page.locator("[data-searched-to]").getByText(/^Searched runs started in the last \d+ (second|minute|hour)s?\. Select Older to search further back/));
    await shown(page.getByText(`No matching runs found yet in ${space}`));
    assert.deepEqual(await axe(), []);
    await shot("searched-to");
    // Each part takes the time limit of one page, however many parts the machine needs; each has at least 500 runs.
    const match = page.locator(`[data-run="${oldest}"]`);
    for (let parts = 1; !(await match.count()); parts++) {
      assert.ok(parts <= made / 500 + 1, `not found in ${parts} parts of ${made} runs`);
      const before = page.url();
      await page.getByRole("button", { name: "Older" }).click();
      await page.waitForURL((url) => url.href !== before, { timeout: patience });
      await page.locator('[aria-busy="false"]').first().waitFor({ timeout: patience });
    }
    await until("the search is at its end", async () => (await page.locator("[data-searched-to]").count()) === 0);
    await shot("searched-all");
  }],
];
