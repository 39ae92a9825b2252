"""Activities, alone and in parallel lists."""

import pathlib
import tempfile
import uuid

from durable_workflow import SignalFailed, WorkflowCancelled, WorkflowFailed

from bench import case, raises, same


@case
async def retries(b):
    key = uuid.uuid4().hex
    same(await b.run("retrying", key, 2, 3), {"attempt": 3})
    same(await b.run("retrying", key, 9, 3), {
        "failed": f"attempt 3 of {key}", "type": "RuntimeError", "activity": "flaky", "non_retryable": False,
    })


@case
async def non_retryable_failure(b):
    said = await b.run("failing", "fatal", uuid.uuid4().hex, True)
    same(said["message"], "never again (run 1)")
    same(said["type"], "NonRetryableError")
    same(said["non_retryable"], True)


@case
async def non_retryable_type(b):
    said = await b.run("failing", "typed", uuid.uuid4().hex, True)
    same(said["message"], "none left (run 1)")
    same(said["type"], "OutOfStock")


@case
async def typed_errors_at_the_client(b):
    e = await raises(WorkflowFailed, b.run("failing", "typed", uuid.uuid4().hex, False))
    assert "none left" in str(e), e
    handle = await b.start("raising")
    e = await raises(WorkflowFailed, b.result(handle))
    assert "gives up" in str(e) and e.exception_class and "OutOfStock" in e.exception_class, (e, e.exception_class)
    same((await handle.describe()).status, "failed")


@case
async def heartbeat_and_cancellation(b):
    note = pathlib.Path(tempfile.mkdtemp()) / "note"

    async def beating():
        return pathlib.Path(f"{note}.started").exists()

    async def noted():
        return note.exists() and note.read_text()

    handle = await b.start("cancellable", str(note))
    await b.until(beating)
    await handle.cancel(reason="enough")
    e = await raises(WorkflowCancelled, b.result(handle))
    assert "enough" in str(e), e
    same(await b.until(noted), "ActivityCancelled")
    kinds = await b.history(handle)
    same(kinds[-1], "WorkflowCancelled")
    assert "ActivityCancelled" in kinds, kinds
    await raises(SignalFailed, handle.signal("note", [1]))


@case
async def completed_from_outside(b):
    handle = await b.start("asking")

    async def token():
        run = await b.client._request("GET", f"/workflows/{handle.workflow_id}")
        steps = (run.get("pending") or {}).get("activities") or []
        return next((s["activity_token"] for s in steps if s["state"] == "pending"), None)

    said = await b.client._request("POST", f"/sojourn/activities/{await b.until(token)}/complete", json={"result": "paid"})
    same(said["outcome"], "completed")
    same(await b.result(handle), "paid")


@case
async def all_four_timeouts(b):
    said = await b.run("timing_out")
    for name, (category, message) in said.items():
        same(category, "timeout")
        assert name in message or name.replace("_", "-") in message or name.replace("_", " ") in message, (name, message)
    same(len(said), 4)


@case
async def heartbeats_keep_an_activity(b):
    same(await b.run("kept_alive"), "kept alive")


@case
async def parallel_list_in_reverse(b):
    handle = await b.start("fanning_out", uuid.uuid4().hex, 5)
    same(await b.result(handle), [0, 1, 2, 3, 4])
    ended = [e["payload"]["sequence"] for e in await b.events(handle) if e["event_type"] == "ActivityCompleted"]
    same(sorted(ended), [1, 2, 3, 4, 5])
    assert ended != [1, 2, 3, 4, 5], "the members ended in order, so this shows nothing"


@case
async def parallel_list_of_mixed_kinds(b):
    same(await b.run("mixed_group"), ["hello a", None, 3, 13])


@case
async def parallel_list_with_a_failure(b):
    message, after = await b.run("failing_group", uuid.uuid4().hex)
    same(message, "never again (run 1)")
    same(after, 4)


@case
async def racing_operations(b):
    same(await b.run("racing", [5, 0.1], 300, "cancel"), ["nap-1", 1])
    same(await b.run("racing", [5], 1, "cancel"), ["deadline", None])
    handle = await b.start("racing", [20], 300, "cancel")

    async def opened():  # this SDK does not look at a condition of a selection by itself: what came before is not noticed
        return "ConditionWaitOpened" in await b.history(handle)

    await b.until(opened)
    await handle.signal("tell", ["it"])
    same((await b.result(handle))[0], "told")
    same(await b.run("racing", [1, 0.1], 300, "await"), ["nap-1", 1, 0])


@case
async def local_activities(b):
    handle = await b.start("local", uuid.uuid4().hex)
    same(await b.result(handle), ["hello Ada", 2, 3, "OutOfStock", [3]])
    kinds = await b.history(handle)
    same(kinds.count("ActivityScheduled"), 5)
    same((kinds.count("ActivityCompleted"), kinds.count("ActivityFailed")), (4, 1))
