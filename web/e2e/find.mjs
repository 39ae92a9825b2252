// The search for IDs on the page of runs, and the reset of a run on its page.
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
  ["a run is reset to an event of its history, and the page of the new run opens", async ({ page, base, api, axe, shot }) => {
    await api("/api/worker/register", { worker_id: "resetting", task_queue: "reset", runtime: "hand", supported_workflow_types: ["order"] });
    const run = (await api("/api/workflows", { workflow_id: "order-8", workflow_type: "order", task_queue: "reset" })).run_id;
    const { task } = await api("/api/worker/workflow-tasks/poll", { worker_id: "resetting", task_queue: "reset", timeout_seconds: 60 });
    await api(`/api/worker/workflow-tasks/${task.task_id}/complete`, {
      lease_owner: "resetting", workflow_task_attempt: task.workflow_task_attempt, commands: [{ type: "open_signal_wait", signal_name: "go" }],
    });
    await page.goto(`${base}/runs/${run}`);
    const opened = page.locator('[data-event="SignalWaitOpened"]');
    await opened.getByRole("button").first().click();
    await page.getByRole("button", { name: "Reset to this event" }).click();
    const dialog = page.getByRole("dialog");
    await shown(dialog.getByText(`sojourn workflow reset order-8 --run ${run} --event 2`));
    assert.deepEqual(await axe("[role=dialog]"), []);
    await shot("reset");
    await dialog.getByLabel("Reason").fill("wrong price");
    await dialog.getByRole("button", { name: "Reset run" }).click();
    await page.waitForURL((url) => url.pathname.startsWith("/runs/") && url.pathname !== `/runs/${run}`);
    const { workflow_id, run_number } = await api(`/api${new URL(page.url()).pathname}`);
    assert.deepEqual([workflow_id, run_number], ["order-8", 2]);
    assert.equal((await api(`/api/runs/${run}`)).status, "terminated");
  }],
];
