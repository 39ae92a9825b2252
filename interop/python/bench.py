"""What every case needs."""

import asyncio
import uuid

from durable_workflow import Client

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
        return await self.client.get_result(handle, poll_interval=0.2, timeout=timeout)

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
                await asyncio.sleep(0.2)


def same(got, want):
    assert type(got) is type(want) and got == want, f"got {got!r}, want {want!r}"


async def raises(kind, awaitable):
    try:
        got = await awaitable
    except kind as e:
        return e
    raise AssertionError(f"got {got!r}, want {kind.__name__}")
