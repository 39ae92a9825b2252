"""Child workflows."""

import asyncio
import uuid

from bench import case, same
from case_continue import last_of


@case
async def child_workflows(b):
    key = uuid.uuid4().hex
    said = await b.run("parent", [
        ["hello", ["child"], {}],
        ["nothing", [], {}],
        ["counting_down", [2, []], {}],
        ["raising", [], {}],
        ["failing", ["typed", key, False], {}],
        ["sleeping", [60], {"run_timeout_seconds": 1}],
    ])
    same(said[:3], ["hello child", None, [2, 1, 0]])
    same([s[0] for s in said[3:]], ["failed"] * 3)
    assert "gives up" in said[3][1] and "OutOfStock" in said[3][2], said[3]
    assert "none left" in said[4][1], said[4]


@case
async def children_in_parallel(b):
    same(await b.run("family", 4), [0, 1, 2, 3])


async def child_of(b, handle):
    """The workflow ID of the run's first child once it has one, or "" if the run ended before."""

    async def either():
        events = await b.events(handle)
        for e in events:
            if e["event_type"] == "ChildRunStarted":
                return [e["payload"]["child_workflow_instance_id"]]
        return [""] if events[-1]["event_type"] in ("WorkflowFailed", "WorkflowTimedOut") else None

    return (await b.until(either))[0]


@case
async def ended_children(b):
    for verb in ("cancel", "terminate"):
        handle = await b.start("parent", [["sleeping", [60], {}]])
        child = b.client.get_workflow_handle(await child_of(b, handle))
        await getattr(child, verb)(reason="by the test")
        [[kind, message]] = await b.result(handle)
        same(kind, {"cancel": "cancelled", "terminate": "terminated"}[verb])


@case
async def retried_children(b):
    same(await b.run("retrying_child", uuid.uuid4().hex, 2, 3), 3)
    assert "try 2" in await b.run("retrying_child", uuid.uuid4().hex, 9, 2)


@case
async def what_becomes_of_children(b):
    """Each parent-close policy, for a parent that is cancelled and for one that fails its own deadline."""
    want = {"abandon": "waiting", "request_cancel": "cancelled", "terminate": "terminated"}

    async def one(policy, status, timeout):
        while True:
            options = {"run_timeout_seconds": timeout} if timeout else {}
            handle = await b.start("parent", [["sleeping", [300], {"parent_close_policy": policy}]], **options)
            if started := await child_of(b, handle):
                break
            assert timeout, "the run ended before it had started its child"
            timeout *= 2  # on a busy machine the deadline passed before the parent had started its child
        child = b.client.get_workflow_handle(started)
        if not timeout:
            await handle.cancel(reason="the parent goes")

        async def closed():
            return (await handle.describe()).status in ("cancelled", "failed")

        async def settled():
            return (await child.describe()).status == status

        await b.until(closed)
        await b.until(settled)
        if policy == "abandon":
            await child.terminate()

    await asyncio.gather(*(one(p, s, timeout) for p, s in want.items() for timeout in (0, 6)))


@case
async def a_chain_keeps_its_children(b):
    """No run hears of the children of a former one, whose ends its code would not know; all that are open go with the last run."""
    handle = await b.start("chained", 2)
    same(await last_of(b, handle), "pause")
    last = await b.client.describe_workflow(handle.workflow_id)
    assert last.run_id != handle.run_id
    named = "child_workflow_instance_id"
    first = [e["payload"][named] for e in await b.events(handle) if e["event_type"] == "ChildRunStarted"]
    events = [e for e in await b.events(handle, last.run_id) if e["event_type"].startswith("ChildRun")]
    own = {e["payload"][named] for e in events if e["event_type"] == "ChildRunStarted"}
    same((len(first), len(own)), (2, 2))
    assert not own & set(first), (own, first)
    assert all(e["payload"].get(named) in own for e in events), events

    async def gone():
        statuses = sorted([(await b.client.describe_workflow(c)).status for c in [*first, *own]])
        return statuses == ["completed", "terminated", "terminated", "terminated"]

    await b.until(gone)
