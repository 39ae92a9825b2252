"""Signals and updates of workflows that continue as new."""

import asyncio

from bench import case, same


async def last_of(b, handle):
    """What the run that ends the chain gives."""

    async def ended():
        d = await b.client.describe_workflow(handle.workflow_id)
        return d if d.status == "completed" and d.output is not None else None

    return (await b.until(ended)).output


@case
async def a_deposit_is_made_once(b):
    handle = await b.start("account", 15)

    async def waits():
        return "ConditionWaitOpened" in await b.history(handle)

    await b.until(waits)
    await b.client.signal_workflow(handle.workflow_id, "deposit", args=[10])

    async def second():
        d = await b.client.describe_workflow(handle.workflow_id)
        return d.run_id != handle.run_id and "ConditionWaitOpened" in await b.history(handle, d.run_id)

    await b.until(second)
    same((await b.client.query_workflow(handle.workflow_id, "account"))["result"], {"balance": 10, "runs": 2})
    await b.client.signal_workflow(handle.workflow_id, "deposit", args=[5])
    same(await last_of(b, handle), {"balance": 15, "runs": 2})


@case
async def deposits_of_every_kind_are_made_once(b):
    """Signals and updates come while runs begin, wait, are evaluated and go on as new."""
    handle = await b.start("account", 60)

    async def by_signal(i):
        await asyncio.sleep(i * 0.03)
        await b.client.signal_workflow(handle.workflow_id, "deposit", args=[1])

    async def by_update(i):
        await asyncio.sleep(i * 0.06)
        await b.client.update_workflow(handle.workflow_id, "pay_in", args=[1])

    await asyncio.gather(*(by_signal(i) for i in range(40)), *(by_update(i) for i in range(19)))
    await b.client.signal_workflow(handle.workflow_id, "deposit", args=[1])
    said = await last_of(b, handle)
    same(said["balance"], 60)
    assert said["runs"] <= 60, said
