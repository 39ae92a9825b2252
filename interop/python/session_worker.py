"""A worker of the published SDK with session state: python session_worker.py URL TOKEN QUEUE WORKER_ID"""

import asyncio
import logging
import pathlib
import signal
import sys
import time

from durable_workflow import Worker, activity

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python-worker"))
from sojourn_session import (  # noqa: E402
    SessionClient, SessionDefinition, fence, last_heartbeat, session_state, set_up_state,
)

CLOSED: list[dict] = []
SET_UPS: list[str] = []
TORN_DOWN: list[str] = []


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
    """Report a position and fail; the next attempt returns the reported position."""
    if last := last_heartbeat():
        return {"position": last["details"]["position"], "attempt": last["attempt_number"]}
    await activity.context().heartbeat({"position": 17})
    raise RuntimeError("try again")


@activity.defn(name="state.closed")
async def closed() -> list:
    return CLOSED


async def open_book(tenant: str, pages: int) -> dict:
    """Run longer than the start_to_close timeout of the session's activities."""
    SET_UPS.append(tenant)
    await asyncio.sleep(3)
    return {"tenant": tenant, "pages": pages}


def close_book(book: dict) -> None:
    TORN_DOWN.append(book["tenant"])


def open_broken(tenant: str) -> dict:
    """Fail, and time out, before it succeeds."""
    SET_UPS.append(tenant)
    if SET_UPS.count(tenant) == 1:
        raise ValueError("the first set-up fails")
    if SET_UPS.count(tenant) == 2:
        time.sleep(2)
    return {"tenant": tenant, "pages": 0}


def open_here(tenant: str) -> dict:
    """Fail on all workers but py-2."""
    SET_UPS.append(tenant)
    if sys.argv[4] != "py-2":
        raise ValueError("no GPU")
    return {"tenant": tenant, "pages": 2}


def read() -> dict:
    book, info = set_up_state(), activity.context().info
    return {
        **book, "worker": info.worker_id, "attempt": info.attempt_number, "set_ups": SET_UPS.count(book["tenant"]),
        "torn_down": TORN_DOWN, "fence": fence(),
    }


@activity.defn(name="book.async")
async def read_async() -> dict:
    return read()


@activity.defn(name="book.sync")
def read_sync() -> dict:
    return read()


async def main(url: str, token: str, queue: str, worker_id: str) -> None:
    definitions = {
        "book": SessionDefinition(open_book, close_book),
        "broken": SessionDefinition(open_broken, close_book, timeout=1),
        "gpu": SessionDefinition(open_here, on_failure="try_another_worker"),
    }
    async with SessionClient(
        url, token=token, close_state=CLOSED.append, confirm_after=1, definitions=definitions,
    ) as client:
        activities = [count_async, count_sync, without_session, resume, closed, read_async, read_sync]
        worker = Worker(
            client, task_queue=queue, worker_id=worker_id, workflows=[], activities=activities,
            interceptors=[client.set_ups()],
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
        await worker.stop()
    logging.warning("closed at the end: %s", CLOSED)


logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
asyncio.run(main(*sys.argv[1:]))
