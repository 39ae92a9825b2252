// The set-up of a session by a definition, as the pages of its run and of the session show it.
import { shown, until } from "./checks.mjs";

export const setUp = [
  ["the set-up of a session is in the timelines of its run and of the session", async ({ page, base, api, shot }) => {
    const tenant = `e2e${Date.now()}`;
    const { run_id } = await api("/api/workflows", { workflow_type: "tenant", input: [{ tenant, lines: ["a", "b"] }] });
    await until("the run's end", async () => (await api(`/api/runs/${run_id}`)).is_terminal, 120_000);
    await page.goto(`${base}/runs/${run_id}`);
    await shown(page.locator('[data-lane="session"]').getByRole("button", { name: /set-up by tenant completed/ }));
    await shown(page.locator('[data-event="SessionSetUp"]'));
    await shot("run-set-up", true);
    await page.goto(`${base}/sessions/tenant-${tenant}`);
    await shown(page.locator('[data-owner-event="set_up"]'));
    await shot("session-set-up", true);
  }],
];
