"""A worker of the published SDK for the chaos test: python chaos_worker.py URL TOKEN QUEUE WORKER_ID

Its activity loads state for each session epoch and appends a line to the ledger for each load and each step. The client
appends a line for each result that the app acknowledged.
"""

import asyncio
import datetime
import json
import logging
import os
import pathlib
import signal
import sys

from durable_workflow import Worker, activity

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python-worker"))
from sojourn_session import SessionClient, session_state  # noqa: E402

SESSIONS: dict[str, dict] = {}  # session and epoch of a delivery, by attempt ID
DIRS: dict[str, str] = {}  # by attempt ID


def note(path: str, **members) -> None:
    line = {"process": os.getpid(), "at": datetime.datetime.now(datetime.timezone.utc).isoformat(), **members}
    out = os.open(path + "/ledger", os.O_APPEND | os.O_WRONLY)
    try:
        os.write(out, json.dumps(line).encode() + b"\n")
    finally:
        os.close(out)


def load(key: str) -> list[int]:
    seed = sum(key.encode())
    return [seed * 31 + i * i for i in range(64)]


@activity.defn(name="chaos.step")
async def step(given: dict) -> dict:
    info = activity.context().info
    n, key, folder = given["n"], given["key"], given["dir"]
    DIRS[info.activity_attempt_id] = folder
    line = {
        "run": info.run_id, "attempt_id": info.activity_attempt_id, "execution": info.activity_attempt_id.rpartition("-")[0],
        "attempt": info.attempt_number, "worker": info.worker_id, **SESSIONS[info.activity_attempt_id],
    }
    state, is_new = session_state()
    note(folder, what="step", **line)
    if is_new:
        state["table"] = load(key)
        note(folder, what="load", **line)
    await asyncio.sleep(0.1)
    return {"value": state["table"][n % 64] + n, "more": not os.path.exists(folder + "/hold")}


class LedgerClient(SessionClient):
    """SessionClient that remembers the session of each attempt and notes each acknowledged result."""

    async def poll_activity_task(self, **kwargs):
        task = await super().poll_activity_task(**kwargs)
        if task:
            wire = task["worker_session"]
            SESSIONS[task["activity_attempt_id"]] = {"session": wire["session_id"], "epoch": wire["epoch"]}
        return task

    async def complete_activity_task(self, **kwargs):
        answer = await super().complete_activity_task(**kwargs)
        attempt = kwargs["activity_attempt_id"]
        if answer.get("recorded"):
            note(DIRS[attempt], what="acknowledged", attempt_id=attempt, execution=attempt.rpartition("-")[0])
        return answer


async def main(url: str, token: str, queue: str, worker_id: str) -> None:
    async with LedgerClient(url, token=token) as client:
        worker = Worker(
            client, task_queue=queue, worker_id=worker_id, workflows=[], activities=[step], max_concurrent_activity_tasks=32,
            max_concurrent_worker_sessions=500,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
        await worker.stop()


logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
logging.getLogger("durable_workflow.worker").setLevel(logging.WARNING)
asyncio.run(main(*sys.argv[1:]))
