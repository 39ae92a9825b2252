"""Worker sessions."""

import uuid

from durable_workflow import InvalidArgument, ServerError, WorkflowFailed
from durable_workflow.worker_session import WorkerSessionOptions

from bench import alone, case, raises, same


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
    await refused("session_owned_by_another_worker", 409, c.create_worker_session("py-2", WorkerSessionOptions("s-1")))
    e = await raises(InvalidArgument, c.create_worker_session("py-1", WorkerSessionOptions("s-1")))
    assert "other options" in str(e), e
    await refused("worker_session_limit_exceeded", 409, c.create_worker_session("py-1", WorkerSessionOptions("s-2")))
    renewed = await c.renew_worker_session("py-1", "s-1", 90)
    same((renewed["outcome"], renewed["session"]["lease_owner"]), ("heartbeat_recorded", "py-1"))
    await refused("session_owner_mismatch", 409, c.renew_worker_session("py-2", "s-1", 90))
    await refused("session_owner_mismatch", 409, c.close_worker_session("py-2", "s-1", "finished"))
    await refused("session_not_found", 404, c.renew_worker_session("py-1", "s-3", 90))
    said = await b.run("in_session", "s-1", 2, {"requirements": ["gpu"], "lease_seconds": 60, "ttl_seconds": 600})
    same({s["worker"] for s in said}, {"py-1"})
    closed = await c.close_worker_session("py-1", "s-1", "finished")
    same((closed["outcome"], closed["session"]["status"], closed["session"]["lease_owner"]), ("closed", "closed", "py-1"))
    same((await c.close_worker_session("py-1", "s-1", "finished"))["outcome"], "already_closed")
    await refused("session_not_active", 409, c.renew_worker_session("py-1", "s-1", 90))
    await refused("session_closed", 409, c.create_worker_session("py-1", gpu))
    same((await c.create_worker_session("py-1", WorkerSessionOptions("s-2")))["outcome"], "created")
    e = await raises(WorkflowFailed, b.run("in_session", "s-4", 1, {"create_if_missing": False}))
    assert "s-4" in str(e), e
