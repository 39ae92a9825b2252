// The search for IDs on the page of runs: exact matches of any kind, IDs with a prefix, and the page of a single match.
import assert from "node:assert/strict";
import { shown } from "./checks.mjs";

const space = "found";

export const find = [
  ["a pasted ID of any kind opens its page, and several matches are listed by kind", async ({ page, base, api, axe, shot }) => {
    await api("/api/namespaces", { name: space });
    const start = async (id, more) => (await api("/api/workflows", { workflow_id: id, workflow_type: "order", task_queue: "unserved", ...more }, space)).run_id;
    const run = await start("order-7", { business_key: "acme" });
    const second = await start("order-77", { business_key: "acme" });
    await start("acme");
    await api("/api/schedules", { schedule_id: "order-nightly", spec: { intervals: [{ every: "PT1H" }] }, action: { workflow_type: "order", task_queue: "unserved" } }, space);
    const search = page.locator("[data-search]");
    const paste = async (text) => {
      await page.goto(`${base}/?namespace=${space}`);
      await search.fill(text);
      await search.press("Enter");
    };
    for (const id of ["order-7", run, run.toLowerCase(), `${run}-1`]) {
      await paste(id);
      await page.waitForURL((url) => url.pathname === `/runs/${run}`);
    }
    await paste("order-nightly");
    await page.waitForURL((url) => url.pathname === "/schedules/order-nightly");
    await page.goBack();
    assert.equal(await search.inputValue(), "order-nightly", "going back returns to the search");

    await paste("acme"); // a workflow ID and a business key
    const exact = page.getByRole("region", { name: "Exact matches" });
    await shown(exact);
    assert.deepEqual(await exact.locator("[data-found-kind]").evaluateAll((all) => all.map((e) => e.dataset.foundKind)), ["workflow", "business_key"]);
    assert.deepEqual(await axe(), []);
    await shot("found");
    await exact.getByText("acme").nth(1).click();
    await page.waitForURL((url) => url.pathname === `/runs/${second}`);

    await paste("order-");
    const prefixes = page.getByRole("region", { name: "IDs that begin with this text" });
    await shown(prefixes.getByRole("link", { name: "order-nightly" }));
    assert.equal(await prefixes.getByRole("link").count(), 3);
    await shown(page.locator(`[data-run="${run}"]`)); // the list below has the runs whose IDs contain the text
    await shot("found-prefixes");
    await paste("WorkflowType = 'order'"); // a filter is no ID
    await shown(page.locator(`[data-run="${run}"]`));
    assert.equal(await page.locator("[data-found]").count(), 0);
  }],
];
