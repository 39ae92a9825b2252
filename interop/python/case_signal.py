"""Signals, conditions, updates and queries."""

import asyncio
import uuid

from durable_workflow import QueryFailed, ServerError, SignalFailed, UpdateFailed, UpdateRejected

from bench import case, raises, same


@case
async def signals_are_kept_in_order(b):
    handle = await b.start("collecting", 4)
    await handle.signal("note", [1])
    await handle.signal("note", [[2, 3]])
    await handle.signal("note", [4, "x"])
    await handle.signal("note")
    same(await b.result(handle), [[1], [[2, 3]], [4, "x"], []])


@case
async def a_signal_sent_twice_counts_once(b):
    handle = await b.start("collecting", 2)
    first = await b.client.signal_workflow(handle.workflow_id, "note", args=["once"], request_id="key-1")
    again = await b.client.signal_workflow(handle.workflow_id, "note", args=["once"], request_id="key-1")
    same(again["command_id"], first["command_id"])
    e = await raises(SignalFailed, b.client.signal_workflow(handle.workflow_id, "note", args=["other"], request_id="key-1"))
    same(e.reason, "request_id_conflict")
    await handle.signal("note", ["last"])
    same(await b.result(handle), [["once"], ["last"]])


@case
async def a_condition_is_met_by_signals(b):
    before = await b.start("approval", 2, 0, None)
    await before.signal("approve", ["Ada"])
    await before.signal("approve", ["Bob"])
    same(await b.result(before), {"names": ["Ada", "Bob"], "total": 0, "closed": False, "greeting": "hello Bob"})

    async def waits():
        return "ConditionWaitOpened" in await b.history(after)

    after = await b.start("approval", 2, 0, 60)
    await b.until(waits)
    await after.signal("approve", ["Ada"])

    async def waits_again():
        return (await b.history(after)).count("ConditionWaitOpened") == 2

    await b.until(waits_again)
    await after.signal("approve", ["Bob"])
    same((await b.result(after))["names"], ["Ada", "Bob"])


@case
async def a_condition_is_met_by_signals_at_once(b):
    """Signals and updates come while the worker is still looking at those before."""
    for n in (2, 3, 20):
        handle = await b.start("approval", n, n, 60)
        names = [f"name-{i}" for i in range(n)]
        await asyncio.gather(*(handle.signal("approve", [name]) for name in names), *(handle.update("deposit", [1]) for _ in names))
        said = await b.result(handle)
        same((sorted(said["names"]), said["total"]), (sorted(names), n))


@case
async def a_condition_times_out(b):
    handle = await b.start("approval", 2, 0, 1)
    await handle.signal("approve", ["Ada"])
    same(await b.result(handle), {"timed_out": ["Ada"]})
    kinds = await b.history(handle)
    same(kinds.count("ConditionWaitTimedOut"), 1)


@case
async def updates(b):
    handle = await b.start("approval", 1, 10, None)
    done = await handle.update("deposit", [3], wait_for="completed", wait_timeout_seconds=60)
    same((done["update_status"], done["result"]), ("completed", {"total": 3}))
    e = await raises(UpdateFailed, handle.update("deposit", [-1], wait_for="completed", wait_timeout_seconds=60))
    assert "cannot deposit -1" in str(e) and e.update_id and e.workflow_id == handle.workflow_id, (e, e.body)
    await handle.signal("approve", ["Ada"])
    taken = await handle.update("deposit", [4])
    same((taken["update_status"], taken["wait_for"]), ("accepted", "accepted"))
    options = {"wait_for": "completed", "wait_timeout_seconds": 60, "request_id": "u-1"}
    once = await b.client.update_workflow(handle.workflow_id, "deposit", args=[2], **options)
    again = await b.client.update_workflow(handle.workflow_id, "deposit", args=[2], **options)
    same((again["update_id"], again["result"]), (once["update_id"], {"total": 9}))
    e = await raises(UpdateFailed, b.client.update_workflow(handle.workflow_id, "deposit", args=[5], request_id="u-1"))
    same(e.reason, "request_id_conflict")
    same((await handle.update("deposit", [1], wait_for="completed", wait_timeout_seconds=60))["result"], {"total": 10})
    same(await b.result(handle), {"names": ["Ada"], "total": 10, "closed": False, "greeting": "hello Ada"})
    e = await raises(ServerError, handle.update("deposit", [1]))
    same(e.reason(), "run_not_active")


@case
async def a_validator_decides_what_is_accepted(b):
    handle = await b.start("judged", 10)
    done = await handle.update("deposit", [3], wait_for="completed", wait_timeout_seconds=60)
    same((done["update_status"], done["result"]), ("completed", 3))
    e = await raises(UpdateRejected, handle.update("deposit", [2]))
    assert "2 is no more than 3" in str(e), e
    same((await handle.update("deposit", [7], wait_for="completed", wait_timeout_seconds=60))["result"], 10)
    same(await b.result(handle), 10)
    same((await b.history(handle)).count("UpdateAccepted"), 2)


@case
async def an_update_without_a_worker_is_accepted(b):
    handle = await b.client.start_workflow(
        workflow_type="approval", task_queue="nobody-serves-this", workflow_id=f"lonely-{uuid.uuid4().hex}", input=[1, 1, None])
    said = await handle.update("deposit", [1], wait_for="completed", wait_timeout_seconds=1)
    same((said["update_status"], said["wait_timed_out"]), ("accepted", True))
    await handle.terminate()


@case
async def an_unknown_update_is_refused(b):
    same(await b.run("nothing"), None)  # a worker is there, so its contract is known
    handle = await b.start("approval", 1, 10, None)
    e = await raises(ServerError, handle.update("withdraw", [1]))
    same((e.status, e.reason()), (404, "unknown_update"))
    await handle.terminate()


@case
async def queries(b):
    same(await b.run("nothing"), None)  # a worker is there
    handle = await b.start("approval", 1, 10, None)
    await handle.update("deposit", [3], wait_for="completed", wait_timeout_seconds=60)
    same((await handle.query("state"))["result"], {"total": 3, "names": [], "closed": False})
    same((await handle.query("state", ["total", "names"]))["result"], [3, []])
    e = await raises(QueryFailed, handle.query("nonsense"))
    e = await raises(QueryFailed, handle.query("broken"))
    assert "no answer" in str(e), e
    await handle.signal("approve", ["Ada"])
    await handle.update("close")
    want = {"names": ["Ada"], "total": 3, "closed": True, "greeting": "hello Ada"}
    same(await b.result(handle), want)
    length = len(await b.history(handle))
    same((await handle.query("state"))["result"], {"total": 3, "names": ["Ada"], "closed": True})
    same(len(await b.history(handle)), length)


@case
async def a_query_without_a_worker_is_refused(b):
    handle = await b.client.start_workflow(
        workflow_type="approval", task_queue="nobody-serves-this", workflow_id=f"lonely-{uuid.uuid4().hex}", input=[1, 1, None])
    e = await raises(QueryFailed, handle.query("state"))
    same(e.reason, "query_worker_unavailable")
    await handle.terminate()
