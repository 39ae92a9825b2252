"""Starting, ending, finding and replaying runs."""

import pathlib
import tempfile
import uuid

from durable_workflow import (
    InvalidArgument, ServerError, UpdateFailed, WorkflowAlreadyStarted, WorkflowCancelled, WorkflowFailed,
    WorkflowNotFound, WorkflowTerminated, WorkflowTimedOut,
)
from durable_workflow.history_bundle_verify import verify_bundle
from durable_workflow.workflow import Replayer

import flows
from bench import case, raises, same


@case
async def start_to_result(b):
    handle = await b.start("hello", "Ada")
    same(await b.result(handle), "hello Ada")
    described = await handle.describe()
    same(described.status, "completed")
    same(described.run_id, handle.run_id)
    same(described.output, "hello Ada")
    same(await b.run("nothing"), None)


@case
async def failed_run_is_redriven(b):
    path = str(pathlib.Path(tempfile.mkdtemp()) / "card")
    handle = await b.start("redriven", path)
    await raises(WorkflowFailed, b.result(handle))
    pathlib.Path(path).touch()
    request = uuid.uuid4().hex
    new = await handle.redrive(request_id=request)
    same((new.workflow_id, new.outcome, new.command_status), (handle.workflow_id, "redriven", "accepted"))
    same(new.raw["continued_from_run_id"], handle.run_id)
    again = await b.client.redrive_workflow(handle.workflow_id, handle.run_id, request_id=request)
    same((again.run_id, again.raw["resume_step_sequence"]), (new.run_id, new.raw["resume_step_sequence"]))
    token, stock, amounts = await b.result(b.client.get_workflow_handle(handle.workflow_id, run_id=new.run_id))
    same((stock, amounts), (1, [[token], 7]))  # one reservation, in the failed run
    for refused in (handle.run_id, new.run_id):
        error = await raises(ServerError, b.client.redrive_workflow(handle.workflow_id, refused))
        same(error.status, 409)


@case
async def health_and_discovery(b):
    same((await b.client.health())["status"], "serving")
    info = await b.client.get_cluster_info()
    same((info["control_plane"]["version"], info["worker_protocol"]["version"]), ("2", "1.20"))


@case
async def every_json_type(b):
    values = [
        None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), 1.5, 7.0, -0.0, 1e300, "", "héllo ☃ \U0001f600", "wwHioz3/VYAiNwoA",
        [], [[1, 2], [], [None]], {}, {"a": {"b": [1, {"c": None}]}, "ß": 2.0}, "x" * 100_000, b"\x00\xff",
    ]
    got = await b.run("echoing", values)
    same(len(got), len(values))
    for g, w in zip(got, values):
        same(g, w)


@case
async def duplicate_start(b):
    handle = await b.start("sleeping", 300)
    await raises(WorkflowAlreadyStarted, b.start("sleeping", 300, workflow_id=handle.workflow_id))
    again = await b.start("sleeping", 300, workflow_id=handle.workflow_id, duplicate_policy="use-existing")
    same(again.run_id, handle.run_id)
    await handle.cancel()
    for policy in ("fail", "use-existing"):
        await raises(WorkflowAlreadyStarted, b.start("sleeping", 300, workflow_id=handle.workflow_id, duplicate_policy=policy))


@case
async def unknown_workflow(b):
    await raises(WorkflowNotFound, b.client.describe_workflow("there-is-none"))
    await raises(WorkflowNotFound, b.client.signal_workflow("there-is-none", "note", args=[1]))


@case
async def timers(b):
    handle = await b.start("sleeping", 1)
    same(await b.result(handle), "awake")
    kinds = await b.history(handle)
    same(kinds.count("TimerScheduled"), 2)
    same(kinds.count("TimerFired"), 2)


@case
async def run_timeout(b):
    handle = await b.start("sleeping", 30, run_timeout_seconds=1)
    await raises(WorkflowTimedOut, b.result(handle))
    same((await handle.describe()).status, "failed")


@case
async def continue_as_new(b):
    handle = await b.start("counting_down", 3, [])

    async def ended():
        d = await b.client.describe_workflow(handle.workflow_id)
        return d if d.status == "completed" and d.run_id != handle.run_id and d.output is not None else None

    described = await b.until(ended)
    same(described.output, [3, 2, 1, 0])
    runs = await handle.list_runs()
    same(sorted(r.run_number for r in runs.runs), [1, 2, 3, 4])
    last = b.client.get_workflow_handle(handle.workflow_id, run_id=described.run_id)
    same(await b.result(last), [3, 2, 1, 0])
    same((await b.history(handle))[-1], "WorkflowContinuedAsNew")


@case
async def side_effects(b):
    a, echoed, deep = await b.run("side_effects")
    same(echoed, a)
    same(deep, {"deep": [1, None, a]})


@case
async def version_markers(b):
    same(await b.run("versions"), [3, 3, True])


@case
async def cancel(b):
    handle = await b.start("sleeping", 60)
    await handle.cancel(reason="not needed")
    e = await raises(WorkflowCancelled, b.result(handle))
    assert "not needed" in str(e), e
    same((await handle.describe()).status, "cancelled")


@case
async def terminate(b):
    handle = await b.start("sleeping", 60)
    await handle.terminate(reason="at once")
    e = await raises(WorkflowTerminated, b.result(handle))
    assert "at once" in str(e), e
    same((await handle.describe()).status, "terminated")


@case
async def memo_and_search_attributes(b):
    who = f"customer-{uuid.uuid4().hex[:8]}"
    handle = await b.start(
        "describing_itself", {"step": 1, "nested": {"b": [1, None, 2.5], "a": "ß"}}, {"CustomerId": who, "Amount": 12, "Vip": True}, False,
        memo={"from": "the start", "step": 0}, search_attributes={"CustomerId": "nobody", "Region": "north"})
    same(await b.result(handle), "described")
    described = await handle.describe()
    same(described.memo, {"from": "the start", "nested": {"b": [1, None, 2.5], "a": "ß"}, "done": True})
    same(described.search_attributes, {"CustomerId": who, "Amount": 12, "Vip": True, "Region": "north"})
    waiting = await b.start("describing_itself", {"step": 2}, {"Tags": ["a", "b"], "Score": 0.5}, True)

    async def shown():
        d = await waiting.describe()
        return (d.memo, d.search_attributes) == ({"step": 2}, {"Tags": ["a", "b"], "Score": 0.5})

    await b.until(shown)
    await waiting.terminate()
    e = await raises(WorkflowFailed, b.run("describing_itself", {"no spaces": 1}, {}, False))
    assert "no spaces" in str(e) or "memo" in str(e), e


@case
async def search_attributes_are_found(b):
    name = f"Ticket{uuid.uuid4().hex[:8]}"
    same((await b.client.create_search_attribute(name, "int"))["outcome"], "created")
    assert name in {a for a, _ in (await b.client.list_search_attributes()).custom_attributes.items()}
    handle = await b.start("describing_itself", {"step": 1}, {name: 41}, True, search_attributes={name: 7})
    await raises(InvalidArgument, b.start("describing_itself", {}, {}, False, search_attributes={name: "seven"}))

    async def found(query):
        page = await b.client.list_workflows(query=query)
        return [w.workflow_id for w in page.executions]

    async def upserted():
        return await found(f"{name} > 40") == [handle.workflow_id]

    await b.until(upserted)
    same(await found(f'{name} = 41 AND WorkflowType = "describing_itself" AND Status = "running"'), [handle.workflow_id])
    same(await found(f"{name} = 7"), [])
    same(await found(handle.workflow_id), [handle.workflow_id])
    await raises(InvalidArgument, b.client.list_workflows(query=f'{name} = "text"'))
    await handle.terminate()
    same((await b.client.delete_search_attribute(name))["outcome"], "deleted")


@case
async def listing(b):
    handle = await b.start("hello", "list")
    await b.result(handle)
    page = await b.client.list_workflows(workflow_type="hello", status="completed", page_size=200)
    assert handle.workflow_id in [w.workflow_id for w in page.executions], page
    workers = await b.client.list_workers(task_queue=b.queue)
    assert workers.workers, workers


async def exported(b, handle, workflow, *args):
    """A bundle that the SDK's own verifier finds nothing to say about, and whose replay has nothing left to do."""
    bundle = await handle.export_history()
    report = verify_bundle(bundle)
    same((report["status"], report["findings"]), ("ok", []))
    events = [{**e, "event_type": e["type"]} for e in bundle["history_events"]]
    replayed = Replayer(workflows=[workflow]).replay(
        events, list(args), workflow_type=workflow.__workflow_name__, run_id=handle.run_id, payload_codec="avro")
    return bundle, [type(c).__name__ for c in replayed.commands]


@case
async def exports_replay(b):
    handle = await b.start("approval", 1, 5, 30)
    await handle.update("deposit", [3], wait_for="completed", wait_timeout_seconds=60)
    await handle.signal("approve", ["Ädä 😀"])
    await raises(UpdateFailed, handle.update("deposit", [-3], wait_for="completed", wait_timeout_seconds=60))
    await handle.update("deposit", [2.5], wait_for="completed", wait_timeout_seconds=60)
    await b.result(handle)
    bundle, commands = await exported(b, handle, flows.Approval, 1, 5, 30)
    same(commands, ["CompleteWorkflow"])
    same([(u["update_name"], u["status"]) for u in bundle["updates"]], [("deposit", how) for how in ("completed", "failed", "completed")])
    same(([s["signal_name"] for s in bundle["signals"]], len(bundle["commands"])), (["approve"], 4))
    same([(a["activity_type"], a["status"]) for a in bundle["activities"]], [("greet", "completed")])
    for workflow, *args in (
            (flows.MixedGroup,), (flows.SideEffects,), (flows.FailingGroup, "again"), (flows.Racing, [5, 0.1], 300, "cancel"),
            (flows.CountingDown, 1, []), (flows.Family, 3)):
        handle = await b.start(workflow.__workflow_name__, *args)
        await b.result(handle)
        bundle, commands = await exported(b, handle, workflow, *args)
        same(commands, ["ContinueAsNew" if workflow is flows.CountingDown else "CompleteWorkflow"])
    same([c["type"] for c in bundle["links"]["children"]], ["child_workflow"] * 3)
    bundle["history_events"][3]["payload"]["sequence"] = 9
    same(verify_bundle(bundle)["status"], "failed")


@case
async def long_run(b):
    handle = await b.start("long_run", 300)
    same(await b.result(handle, timeout=280), sum(range(300)))
    kinds = await b.history(handle)
    same(kinds.count("ActivityCompleted"), 300)
    bundle, commands = await exported(b, handle, flows.LongRun, 300)
    same((len(bundle["history_events"]), commands), (602, ["CompleteWorkflow"]))
