"""The client's side: python cases.py URL TOKEN QUEUE [CASE...]. Runs the cases at once and prints a line of JSON for each.

A case is a coroutine that raises when something is not as the contract says. They run against workers of worker.py.
"""

import asyncio
import json
import sys
import traceback

from durable_workflow import Client

import case_activity, case_child, case_continue, case_run, case_session, case_signal  # noqa: E401,F401  they enter their cases
from bench import ALONE, CASES, Bench


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
