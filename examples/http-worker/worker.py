#!/usr/bin/env python3
"""A worker over plain HTTP, with nothing but the standard library: it serves the queue "http" of the app at SOJOURN_APP_URL.

Its workflow is an order: activities side by side in one session, a signal, an update and a query.
"""

import os, pathlib, signal as signals, sys, threading, time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for payload.py

from app import Refused, work
from payload import decode
from replay import Replay, activity, signal, timer, value

ME, QUEUE = f"http-{os.getpid()}", "http"
stopping = threading.Event()


class Order:
    """The workflow http.order: prices what is asked for, takes additions until it is paid, and packs it."""

    def __init__(self):
        self.items, self.state = [], "pricing"

    def run(self, *items):
        self.items += items
        options = {"session_id": "prices", "start_to_close_timeout": 60, "retry_policy": {"max_attempts": 3, "backoff_seconds": [1]}}
        prices = yield [activity("http.price", item, **options) for item in items]
        self.state = "waiting for payment"
        by, *_ = yield signal("pay")
        self.state = "packing"
        yield timer(1)
        packed = yield activity("http.pack", self.items, start_to_close_timeout=60, heartbeat_timeout=10)
        return {"packed": packed, "sum": sum(prices), "paid_by": by}

    def update_add(self, item):
        if not item:
            raise ValueError("nothing is nothing")
        self.items.append(item)
        return len(self.items)

    def query_state(self):
        return {"state": self.state, "items": self.items}


def price(call, item):
    """The activity http.price: makes its list once and keeps it, as long as the session stays with this worker."""
    prices = call.memory.setdefault("prices", {})
    return prices.setdefault(item, len(item))


def pack(call, items):
    """The activity http.pack: tells how far it is, and ends when it is told to."""
    for n, _ in enumerate(items, 1):
        call.beat(f"item {n}", n, len(items))
        time.sleep(0.1)
    return len(items)


WORKFLOWS = {"http.order": Order}
ACTIVITIES = {"http.price": price, "http.pack": pack}


def register():
    work("POST", "register", {
        "worker_id": ME, "task_queue": QUEUE, "runtime": "python",
        "supported_workflow_types": list(WORKFLOWS), "supported_activity_types": list(ACTIVITIES),
        "capabilities": ["query_tasks", "worker_sessions"], "max_concurrent_worker_sessions": 10,
        "workflow_command_contracts": {name: {
            "queries": [m.removeprefix("query_") for m in dir(w) if m.startswith("query_")],
            "updates": [m.removeprefix("update_") for m in dir(w) if m.startswith("update_")], "signals": [],
        } for name, w in WORKFLOWS.items()},
    })


def complete(path, lease, outcome):
    """Completes a task. If the app refuses the content of the outcome, reports a failure with the reason."""
    try:
        return work("POST", path + "complete", {**lease, **outcome})
    except Refused as e:
        if not e.content:
            raise
        failure = {"message": f"the app refused the outcome: {e}", "type": "OutcomeRefused", "non_retryable": True}
        return work("POST", path + "fail", {**lease, "failure": failure})


def decide(task):
    """A workflow task: replays the history and gives the commands that come next."""
    lease = {"lease_owner": task["lease_owner"], "workflow_task_attempt": task["workflow_task_attempt"]}
    path = f"workflow-tasks/{task['task_id']}/"
    events, page = task["history_events"], task["next_history_page_token"]
    while page:
        more = work("POST", path + "history", {**lease, "next_history_page_token": page})
        events, page = events + more["history_events"], more["next_history_page_token"]
    try:
        commands = Replay(WORKFLOWS[task["workflow_type"]](), events).next()
    except Exception as e:  # the code is broken: the task is tried again, or the run quarantined, by what the message says
        return work("POST", path + "fail", {**lease, "failure": {"message": str(e), "type": type(e).__name__}})
    if not commands:
        return work("POST", path + "fail", {**lease, "failure": {"message": "nothing new", "type": "WorkflowTaskWaitingForHistory"}})
    return complete(path, lease, {"commands": commands})


def answer(task):
    """A query task: replays the history and looks."""
    lease = {"lease_owner": task["lease_owner"], "query_task_attempt": task["query_task_attempt"]}
    path = f"query-tasks/{task['query_task_id']}/"
    try:
        workflow = WORKFLOWS[task["workflow_type"]]()
        Replay(workflow, task["history_events"])
        arguments = decode((task["query_arguments"] or {}).get("blob")) or []
        result = getattr(workflow, "query_" + task["query_name"])(*arguments)
    except Exception as e:
        return work("POST", path + "fail", {**lease, "failure": {"message": str(e), "type": type(e).__name__}})
    return work("POST", path + "complete", {**lease, "result": result, "result_envelope": value(result)})


class Stop(Exception):
    """The attempt is not wanted any more."""


class Call:
    """One attempt of an activity."""

    held = {}  # what is in memory for each session, and the epoch it belongs to

    def __init__(self, task):
        self.path = f"activity-tasks/{task['task_id']}/"
        self.lease = {"lease_owner": task["lease_owner"], "activity_attempt_id": task["activity_attempt_id"]}
        self.memory = {}
        if session := task.get("worker_session"):
            epoch, memory = self.held.get(session["session_id"], (0, {}))
            if epoch != session["epoch"]:  # somebody else had it since, or nobody yet
                memory = {}
            self.held[session["session_id"]] = (session["epoch"], memory)
            self.memory = memory

    def beat(self, message, current, total):
        said = work("POST", self.path + "heartbeat", {**self.lease, "message": message, "current": current, "total": total})
        if not said["can_continue"]:
            raise Stop(said["reason"])


def over(task):
    """Whether an attempt has ended. Its session may be with another worker then."""
    lease = {"lease_owner": task["lease_owner"], "activity_attempt_id": task["activity_attempt_id"]}
    try:
        return not work("POST", f"activity-tasks/{task['task_id']}/heartbeat", lease)["can_continue"]
    except Refused:
        return True


def do(task):
    """An activity task."""
    if task["late"] and over(task):
        return None
    call = Call(task)
    try:
        result = ACTIVITIES[task["activity_type"]](call, *(decode((task["arguments"] or {}).get("blob")) or []))
    except Stop:
        return None  # history knows already
    except Exception as e:
        return work("POST", call.path + "fail", {**call.lease, "failure": {"message": str(e), "type": type(e).__name__}})
    return complete(call.path, call.lease, {"result": result})


def loop(kind, serve):
    while not stopping.is_set():
        try:
            asked = time.monotonic()
            task = work("POST", f"{kind}-tasks/poll", {"worker_id": ME, "task_queue": QUEUE, "timeout_seconds": 5})["task"]
            if task:
                task["late"] = time.monotonic() - asked > 2  # the process may have been frozen with the answer in its socket
                serve(task)
        except Refused as e:  # somebody else has the work, or nobody needs it
            print(e, file=sys.stderr)
            stopping.wait(1)
            if e.reason == "worker_not_registered":
                until_heard(register)
        except OSError as e:
            print(e, file=sys.stderr)
            stopping.wait(1)


def until_heard(call):
    """Calls until the app is there."""
    while not stopping.is_set():
        try:
            return call()
        except OSError as e:
            print(e, file=sys.stderr)
            stopping.wait(1)


if __name__ == "__main__":
    for s in (signals.SIGINT, signals.SIGTERM):
        signals.signal(s, lambda *_: stopping.set())
    until_heard(register)
    print(f"worker {ME} waits for work", file=sys.stderr)
    loops = [threading.Thread(target=loop, args=a) for a in (("workflow", decide), ("activity", do), ("query", answer))]
    for t in loops:
        t.start()
    for t in loops:
        t.join()
    work("DELETE", f"registrations/{ME}")
