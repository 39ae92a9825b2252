"""A worker of the published SDK with session state: python session_worker.py URL TOKEN QUEUE WORKER_ID"""

import asyncio
import logging
import pathlib
import signal
import sys

from durable_workflow import Worker, activity

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python-worker"))
from sojourn_session import SessionClient, last_heartbeat, session_state  # noqa: E402

CLOSED: list[dict] = []


def count() -> dict:
    state, is_new = session_state()
    state["calls"] = state.get("calls", 0) + 1
    return {"worker": activity.context().info.worker_id, "is_new": is_new, "calls": state["calls"]}


@activity.defn(name="state.async")
async def count_async() -> dict:
    return count()


@activity.defn(name="state.sync")
def count_sync() -> dict:
    return count()


@activity.defn(name="state.none")
async def without_session() -> str:
    try:
        session_state()
    except RuntimeError as error:
        return str(error)
    return "state"


@activity.defn(name="heartbeat.resume")
async def resume() -> dict:
    """Report a position and fail; the next attempt returns what it finds."""
    if last := last_heartbeat():
        return {"position": last["details"]["position"], "attempt": last["attempt_number"]}
    await activity.context().heartbeat({"position": 17})
    raise RuntimeError("try again")


@activity.defn(name="state.closed")
async def closed() -> list:
    return CLOSED


async def main(url: str, token: str, queue: str, worker_id: str) -> None:
    async with SessionClient(url, token=token, close_state=CLOSED.append, confirm_after=1) as client:
        activities = [count_async, count_sync, without_session, resume, closed]
        worker = Worker(client, task_queue=queue, worker_id=worker_id, workflows=[], activities=activities)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
        await worker.stop()
    logging.warning("closed at the end: %s", CLOSED)


logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
asyncio.run(main(*sys.argv[1:]))
