"""Orders, each a saga: steps one after the other, and when one is refused, what undoes those before it, the last first.

Every step that runs is noted in a file outside of everything the app keeps, durably, before its worker says that it is done.
"""

import asyncio
import datetime
import json
import os

from durable_workflow import ActivityFailed, NonRetryableError, activity, workflow

STEPS = {"reserve": "release", "charge": "refund", "ship": "recall"}


@activity.defn(name="order.step")
async def step(ledger: str, order: str, name: str, refused: bool) -> str:
    info = activity.context().info
    line = {
        "run": info.run_id, "task": info.task_id, "attempt_id": info.activity_attempt_id, "attempt": info.attempt_number, "process": os.getpid(),
        "worker": info.worker_id, "at": datetime.datetime.now(datetime.timezone.utc).isoformat(), "what": f"{order} {name}",
    }
    out = os.open(ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(out, json.dumps(line).encode() + b"\n")
        os.fsync(out)
    finally:
        os.close(out)
    await asyncio.sleep(0.5)  # somebody may be killed here
    if refused:
        raise NonRetryableError(f"{name} is refused")
    return name


@workflow.defn(name="order")
class Order:
    """Returns which of its steps stand in the end."""

    def run(self, ctx, ledger, order, refused):
        done = []
        try:
            for name in STEPS:
                done.append((yield ctx.schedule_activity("order.step", [ledger, order, name, name == refused])))
                yield ctx.sleep(1)
        except ActivityFailed:
            while done:
                yield ctx.schedule_activity("order.step", [ledger, order, STEPS[done.pop()], False])
        return done


WORKFLOWS = [Order]
ACTIVITIES = [step]
