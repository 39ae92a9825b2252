"""The client's side: python cases.py URL TOKEN QUEUE [CASE...]. Runs the cases at once and prints a line of JSON for each.

A case is a coroutine that raises when something is not as the contract says. They run against workers of worker.py.
"""

import asyncio
import json
import pathlib
import sys
import tempfile
import traceback
import uuid

from durable_workflow import (
    Client, InvalidArgument, QueryFailed, ServerError, SignalFailed, UpdateFailed, UpdateRejected, WorkflowAlreadyStarted,
    WorkflowCancelled, WorkflowFailed, WorkflowNotFound, WorkflowTerminated, WorkflowTimedOut,
)
from durable_workflow.history_bundle_verify import verify_bundle
from durable_workflow.worker_session import WorkerSessionOptions
from durable_workflow.workflow import Replayer

import flows

CASES, ALONE = {}, {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def alone(fn):
    """A case that needs workers of its own, and so runs only when it is named."""
    ALONE[fn.__name__] = fn
    return fn


class Bench:
    """What every case needs: a client, and workflows under ids nobody else has."""

    def __init__(self, client: Client, queue: str):
        self.client, self.queue = client, queue

    async def start(self, workflow_type, *args, **options):
        options.setdefault("workflow_id", f"{workflow_type}-{uuid.uuid4().hex[:12]}")
        return await self.client.start_workflow(workflow_type=workflow_type, task_queue=self.queue, input=list(args), **options)

    async def result(self, handle, timeout=180):
        return await self.client.get_result(handle, poll_interval=0.05, timeout=timeout)

    async def run(self, workflow_type, *args, **options):
        return await self.result(await self.start(workflow_type, *args, **options))

    async def history(self, handle, run_id=None):
        return [e["event_type"] for e in await self.events(handle, run_id)]

    async def events(self, handle, run_id=None):
        events, token = [], None
        while True:
            page = await self.client.get_history(handle.workflow_id, run_id or handle.run_id, page_size=1000, next_page_token=token)
            events += page["events"]
            token = page.get("next_page_token")
            if not token:
                return events

    async def until(self, check, timeout=90):
        """Waits for a check to give something true."""
        async with asyncio.timeout(timeout):
            while True:
                if found := await check():
                    return found
                await asyncio.sleep(0.05)


def same(got, want):
    assert type(got) is type(want) and got == want, f"got {got!r}, want {want!r}"


async def raises(kind, awaitable):
    try:
        got = await awaitable
    except kind as e:
        return e
    raise AssertionError(f"got {got!r}, want {kind.__name__}")


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
    """The workflow id of the run's first child, once it has one."""

    async def started():
        return [e["payload"]["child_workflow_instance_id"] for e in await b.events(handle) if e["event_type"] == "ChildRunStarted"]

    return (await b.until(started))[0]


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

    async def one(policy, status, options):
        handle = await b.start("parent", [["sleeping", [300], {"parent_close_policy": policy}]], **options)
        child = b.client.get_workflow_handle(await child_of(b, handle))
        if not options:
            await handle.cancel(reason="the parent goes")

        async def closed():
            return (await handle.describe()).status in ("cancelled", "failed")

        async def settled():
            return (await child.describe()).status == status

        await b.until(closed)
        await b.until(settled)
        if policy == "abandon":
            await child.terminate()

    await asyncio.gather(*(one(p, s, options) for p, s in want.items() for options in ({}, {"run_timeout_seconds": 6})))


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


@case
async def session_keeps_state(b):
    session = uuid.uuid4().hex
    said = await b.run("in_session", session, 4, {})
    same(len({s["pid"] for s in said}), 1)
    same([s["kept"] for s in said], [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]])


@case
async def session_cap(b):
    for most in (1, 2):
        said = await b.run("crowded_session", uuid.uuid4().hex, 4, most)
        same(len({pid for pid, _ in said}), 1)
        same(max(n for _, n in said), most)


@alone
async def session_verbs_and_refusals(b):
    """Needs workers py-1 and py-2 with the capability gpu, both with room for one session."""
    c = b.client
    gpu = WorkerSessionOptions(session_id="s-1", requirements=("gpu",), lease_seconds=60, ttl_seconds=600)

    async def refused(reason, status, call):
        e = await raises(ServerError, call)
        same((e.reason(), e.status), (reason, status))

    await refused("worker_not_registered", 412, c.create_worker_session("nobody", gpu))
    tpu = WorkerSessionOptions("s-2", requirements=("gpu", "tpu"))
    await refused("session_requirements_not_met", 409, c.create_worker_session("py-1", tpu))
    await refused("session_missing", 409, c.create_worker_session("py-1", WorkerSessionOptions("s-2", create_if_missing=False)))
    made = await c.create_worker_session("py-1", gpu)
    same((made["admitted"], made["outcome"]), (True, "created"))
    same((made["session"]["lease_owner"], made["session"]["status"]), ("py-1", "active"))
    for name, value in gpu.to_wire().items():
        same(made["session"][name], value)
    again = await c.create_worker_session("py-1", gpu)
    same((again["outcome"], again["session"]["ttl_expires_at"]), ("reused", made["session"]["ttl_expires_at"]))
    await refused("session_owned_by_another_worker", 409, c.create_worker_session("py-2", gpu))
    e = await raises(InvalidArgument, c.create_worker_session("py-2", WorkerSessionOptions("s-1")))
    assert "other options" in str(e), e
    await refused("worker_session_limit_exceeded", 409, c.create_worker_session("py-1", WorkerSessionOptions("s-2")))
    renewed = await c.renew_worker_session("py-1", "s-1", 90)
    same((renewed["outcome"], renewed["session"]["lease_owner"]), ("heartbeat_recorded", "py-1"))
    await refused("session_owner_mismatch", 409, c.renew_worker_session("py-2", "s-1", 90))
    await refused("session_owner_mismatch", 409, c.close_worker_session("py-2", "s-1"))
    await refused("session_not_found", 404, c.renew_worker_session("py-1", "s-3", 90))
    said = await b.run("in_session", "s-1", 2, {"requirements": ["gpu"], "lease_seconds": 60, "ttl_seconds": 600})
    same({s["worker"] for s in said}, {"py-1"})
    closed = await c.close_worker_session("py-1", "s-1")
    same((closed["outcome"], closed["session"]["status"], closed["session"]["lease_owner"]), ("closed", "closed", "py-1"))
    same((await c.close_worker_session("py-1", "s-1"))["outcome"], "already_closed")
    await refused("session_not_active", 409, c.renew_worker_session("py-1", "s-1", 90))
    await refused("session_closed", 409, c.create_worker_session("py-1", gpu))
    same((await c.create_worker_session("py-1", WorkerSessionOptions("s-2")))["outcome"], "created")
    e = await raises(WorkflowFailed, b.run("in_session", "s-4", 1, {"create_if_missing": False}))
    assert "s-4" in str(e), e


async def main(url: str, token: str, queue: str, *names: str) -> None:
    room = asyncio.Semaphore(12)  # so many at once

    async def judge(name):
        try:
            async with room, asyncio.timeout(300):
                await {**CASES, **ALONE}[name](b)
            said = {"case": name, "ok": True}
        except BaseException as e:
            said = {"case": name, "ok": False, "error": "".join(traceback.format_exception(e))}
        print(json.dumps(said), flush=True)

    async with Client(url, token=token, timeout=120) as client:
        b = Bench(client, queue)
        await asyncio.gather(*(judge(n) for n in names or CASES))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
