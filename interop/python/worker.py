"""A worker of the published SDK: python worker.py URL TOKEN QUEUE WORKER_ID MAX_SESSIONS [CAPABILITY...]; stops cleanly on SIGTERM.

BUILD_ID in the environment is the build id it registers with.
"""

import asyncio
import logging
import os
import signal
import sys

from durable_workflow import Client, Worker

import flows
import saga


async def main(url: str, token: str, queue: str, worker_id: str, max_sessions: str, *capabilities: str) -> None:
    async with Client(url, token=token) as client:
        worker = Worker(
            client, task_queue=queue, worker_id=worker_id, workflows=flows.WORKFLOWS + saga.WORKFLOWS,
            activities=flows.ACTIVITIES + saga.ACTIVITIES,
            capabilities=capabilities, max_concurrent_worker_sessions=int(max_sessions),
            build_id=os.environ.get("BUILD_ID") or None,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
        await worker.stop()


logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
logging.getLogger("durable_workflow.worker").setLevel(logging.INFO)  # says when it is registered
asyncio.run(main(*sys.argv[1:]))
