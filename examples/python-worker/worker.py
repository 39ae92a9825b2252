"""A worker in Python, with the published SDK: a workflow, an activity and one with session state, on the queue "python"."""

import asyncio
import os
import signal

from durable_workflow import Worker, activity, workflow

from sojourn_session import SessionClient, session_state


@activity.defn(name="python.greet")
async def greet(name: str) -> str:
    return f"hello {name}, from process {os.getpid()}"


@activity.defn(name="python.count")
async def count() -> int:
    state, is_new = session_state()
    if is_new:
        state["calls"] = 0
    state["calls"] += 1
    return state["calls"]


@workflow.defn(name="python.greeting")
class Greeting:
    def run(self, ctx, name: str):
        return (yield ctx.schedule_activity("python.greet", [name]))


async def main() -> None:
    url, token = os.environ.get("SOJOURN_APP_URL", "http://127.0.0.1:7700"), os.environ.get("SOJOURN_TOKEN") or None
    async with SessionClient(url, token=token) as client:
        worker = Worker(client, task_queue="python", workflows=[Greeting], activities=[greet, count])
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
        await worker.stop()


asyncio.run(main())
