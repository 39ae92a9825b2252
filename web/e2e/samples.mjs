// The open sample runs of "sojourn dev" and their explanation in the list of runs.
import assert from "node:assert/strict";
import { shown } from "./checks.mjs";

export const samples = [
  ["the list of runs explains the open sample workflows", async ({ page, base, axe, shot }) => {
    await page.goto(base);
    const next = page.getByRole("region", { name: "Sample workflows" });
    for (const id of ["sample-approval", "sample-retry", "sample-session"]) await shown(next.getByRole("link", { name: id }));
    assert.deepEqual(await axe(), []);
    await shot("samples");
    await next.getByRole("link", { name: "sample-retry" }).click();
    const open = page.getByRole("region", { name: "Pending work" });
    await shown(open.getByText("nobody opens the door at 12 Elm Street").first());
    await shown(open.getByText(/attempt \d+ starts .*\(\d+ failed\)/).first());
    await shot("samples-retry");
    await page.goBack();
    await next.getByRole("link", { name: "sample-session" }).click();
    await open.getByRole("button", { name: "Send note" }).waitFor();
    await shown(page.locator('[data-lane="session"]'));
    await shot("samples-session");
    await page.goBack();
    await next.getByRole("link", { name: "sample-approval" }).click();
    await open.getByRole("button", { name: "Send approve" }).click();
    const dialog = page.getByRole("dialog");
    assert.equal(await dialog.getByLabel("Name").inputValue(), "approve");
    await shot("samples-approve");
    await dialog.getByRole("button", { name: "Send", exact: true }).click();
    await shown(page.locator('main [data-status="completed"]').first());
    await page.goto(base);
    await shown(next);
    assert.equal(await next.getByRole("link", { name: "sample-approval" }).count(), 0, "a closed sample is still listed");
    await next.getByRole("button", { name: "Hide", exact: true }).click();
    await page.reload();
    await shown(page.getByRole("heading", { level: 1, name: "Runs" }));
    assert.equal(await next.count(), 0, "the hidden list is shown again");
  }],
];
