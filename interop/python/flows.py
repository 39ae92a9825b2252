"""Workflows and activities of the interop tests, written as a user of the published SDK would write them."""

import asyncio
import os
import pathlib
import time
import uuid

from durable_workflow import (
    ActivityFailed, ChildWorkflowCancelled, ChildWorkflowFailed, ChildWorkflowTerminated, NonRetryableError, activity, workflow,
)
from durable_workflow.workflow import ActivityRetryPolicy, ChildWorkflowRetryPolicy
from durable_workflow.worker_session import WorkerSessionOptions

ATTEMPTS: dict[str, int] = {}  # per key, how often this process ran it
KEPT: dict[str, list] = {}  # state that activities of a session leave in this process


class OutOfStock(Exception):
    """A failure with a type of its own."""


@activity.defn(name="greet")
def greet(name: str) -> str:
    return f"hello {name}"


@activity.defn(name="echo")
def echo(*values):
    return list(values)


@activity.defn(name="add")
def add(a: int, b: int) -> int:
    return a + b


@activity.defn(name="flaky")
def flaky(key: str, failures: int) -> int:
    """Fails so many times in a row, then tells which attempt it is."""
    n = activity.context().info.attempt_number
    if n <= failures:
        raise RuntimeError(f"attempt {n} of {key}")
    return n


@activity.defn(name="fatal")
def fatal(key: str) -> None:
    ATTEMPTS[key] = ATTEMPTS.get(key, 0) + 1
    raise NonRetryableError(f"never again (run {ATTEMPTS[key]})")


@activity.defn(name="typed")
def typed(key: str) -> None:
    ATTEMPTS[key] = ATTEMPTS.get(key, 0) + 1
    raise OutOfStock(f"none left (run {ATTEMPTS[key]})")


class ActivityPending(Exception):
    """Leaves the attempt open: its outcome is reported with its token."""


@activity.defn(name="asked")
def asked() -> str:
    raise ActivityPending("the outcome is reported with the token of the attempt")


@activity.defn(name="nap")
async def nap(seconds: float, value=None):
    await asyncio.sleep(seconds)
    return value


@activity.defn(name="beat")
async def beat(path: str) -> str:
    """Beats until it is cancelled, then leaves a note of it."""
    n = 0
    try:
        while True:
            n += 1
            await activity.context().heartbeat({"beats": n})
            pathlib.Path(path + ".started").touch()
            await asyncio.sleep(0.1)
    except BaseException as e:
        pathlib.Path(path).write_text(type(e).__name__)
        raise


@activity.defn(name="beat_then_return")
async def beat_then_return(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await activity.context().heartbeat({"left": end - time.monotonic()})
        await asyncio.sleep(0.2)
    return "kept alive"


@activity.defn(name="keep")
def keep(session: str, value: int) -> dict:
    """Adds to what this process keeps for the session."""
    KEPT.setdefault(session, []).append(value)
    return {"pid": os.getpid(), "worker": activity.context().info.worker_id, "kept": list(KEPT[session])}


@activity.defn(name="keep_slowly")
async def keep_slowly(session: str, value: int, path: str) -> dict:
    pathlib.Path(f"{path}.{os.getpid()}").touch()
    await asyncio.sleep(1)
    return keep(session, value)


@activity.defn(name="whereabouts")
def whereabouts() -> str:
    return activity.context().info.worker_id


@workflow.defn(name="hello")
class Hello:
    def run(self, ctx, name):
        return (yield ctx.schedule_activity("greet", [name]))


@workflow.defn(name="nothing")
class Nothing:
    def run(self, ctx):
        return None
        yield


@workflow.defn(name="echoing")
class Echoing:
    """One activity per value, which must come back as it went."""

    def run(self, ctx, values):
        out = []
        for v in values:
            out.append((yield ctx.schedule_activity("echo", [v]))[0])
        return out


@workflow.defn(name="retrying")
class Retrying:
    def run(self, ctx, key, failures, attempts):
        policy = ActivityRetryPolicy(max_attempts=attempts, backoff_seconds=[0] * (attempts - 1))
        try:
            n = yield ctx.schedule_activity("flaky", [key, failures], retry_policy=policy)
            return {"attempt": n}
        except ActivityFailed as e:
            return {"failed": str(e), "type": e.exception_type, "activity": e.activity_type, "non_retryable": e.non_retryable}


@workflow.defn(name="local")
class Local:
    """Local activities before and after a dispatched one, one that is retried, and one that fails."""

    def run(self, ctx, key):
        first = yield ctx.local_activity("greet", ["Ada"])
        flaky = yield ctx.local_activity(
            "flaky", [key, 1], retry_policy={"max_attempts": 3, "backoff_seconds": [0, 0]}, start_to_close_timeout=30)
        total = yield ctx.schedule_activity("add", [1, 2])
        try:
            yield ctx.local_activity("typed", [key])
            failed = None
        except ActivityFailed as e:
            failed = e.exception_type
        last = yield ctx.local_activity("echo", [total])
        return [first, flaky, total, failed, last]


@workflow.defn(name="failing")
class Failing:
    """Calls an activity that fails for good, and says what it saw; unhandled, it lets the failure end the run."""

    def run(self, ctx, activity_type, key, handled):
        policy = ActivityRetryPolicy(max_attempts=5, backoff_seconds=[0, 0, 0, 0], non_retryable_error_types=["OutOfStock"])
        if not handled:
            return (yield ctx.schedule_activity(activity_type, [key], retry_policy=policy))
        try:
            yield ctx.schedule_activity(activity_type, [key], retry_policy=policy)
        except ActivityFailed as e:
            return {"message": str(e), "type": e.exception_type, "non_retryable": e.non_retryable, "category": e.failure_category}
        return None


@activity.defn(name="charged")
def charged(path: str, amount: int) -> int:
    """Fails for good until the file exists."""
    ATTEMPTS[path] = ATTEMPTS.get(path, 0) + 1
    if not os.path.exists(path):
        raise NonRetryableError("the card was declined")
    return amount


@activity.defn(name="reserved")
def reserved(path: str) -> int:
    """Counts in a file how often it ran."""
    with open(path + ".reserved", "a") as f:
        f.write("x")
    return os.path.getsize(path + ".reserved")


@workflow.defn(name="redriven")
class Redriven:
    """Fails with an activity of a group, until the file exists."""

    def run(self, ctx, path):
        token = yield ctx.side_effect(lambda: uuid.uuid4().hex)
        stock = yield ctx.schedule_activity("reserved", [path])
        yield ctx.sleep(1)
        amounts = yield [ctx.schedule_activity("echo", [token]), ctx.schedule_activity("charged", [path, 7])]
        return [token, stock, amounts]


@workflow.defn(name="raising")
class Raising:
    def run(self, ctx):
        yield ctx.side_effect(lambda: 1)
        raise OutOfStock("the workflow itself gives up")


@workflow.defn(name="asking")
class Asking:
    def run(self, ctx):
        return (yield ctx.schedule_activity("asked", []))


@workflow.defn(name="cancellable")
class Cancellable:
    def run(self, ctx, path):
        return (yield ctx.schedule_activity("beat", [path], heartbeat_timeout=10))


@workflow.defn(name="timing_out")
class TimingOut:
    """Runs into each of the four timeouts and lists what it was told."""

    def run(self, ctx):
        said = {}
        calls = {
            "start_to_close": ctx.schedule_activity("nap", [3], start_to_close_timeout=1),
            "heartbeat": ctx.schedule_activity("nap", [3], heartbeat_timeout=1),
            "schedule_to_start": ctx.schedule_activity("nap", [0], queue="nobody-serves-this", schedule_to_start_timeout=1),
            "schedule_to_close": ctx.schedule_activity(
                "flaky", ["never", 100], schedule_to_close_timeout=1,
                retry_policy=ActivityRetryPolicy(max_attempts=50, backoff_seconds=[1] * 49)),
        }
        for name, call in calls.items():
            try:
                yield call
                said[name] = "completed"
            except ActivityFailed as e:
                said[name] = [e.failure_category, str(e)]
        return said


@workflow.defn(name="kept_alive")
class KeptAlive:
    def run(self, ctx):
        return (yield ctx.schedule_activity("beat_then_return", [6], heartbeat_timeout=4))


@workflow.defn(name="sleeping")
class Sleeping:
    def run(self, ctx, seconds):
        yield ctx.start_timer(seconds)
        yield ctx.start_timer(0)
        return "awake"


@workflow.defn(name="collecting")
class Collecting:
    """Remembers signals while it does other things."""

    def __init__(self):
        self.seen = []

    @workflow.signal("note")
    def note(self, *values):
        self.seen.append(list(values))

    def run(self, ctx, n):
        yield ctx.start_timer(1)
        yield ctx.wait_condition(lambda: len(self.seen) >= n)
        yield ctx.schedule_activity("nap", [0.1])
        return self.seen


@workflow.defn(name="fanning_out")
class FanningOut:
    """A parallel list whose members end in reverse order."""

    def run(self, ctx, key, n):
        return (yield [ctx.schedule_activity("await_next", [key, i, n]) for i in range(n)])


ENDED: dict[str, set] = {}  # by key, which members have ended here


@activity.defn(name="await_next")
async def await_next(key: str, i: int, n: int) -> int:
    """Ends a little later than the member behind it."""
    while i + 1 < n and i + 1 not in ENDED.get(key, ()):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    ENDED.setdefault(key, set()).add(i)
    return i


@workflow.defn(name="mixed_group")
class MixedGroup:
    def run(self, ctx):
        a, b, c = yield [ctx.schedule_activity("greet", ["a"]), ctx.start_timer(1), ctx.schedule_activity("add", [1, 2])]
        after = yield ctx.schedule_activity("add", [c, 10])
        return [a, b, c, after]


@workflow.defn(name="failing_group")
class FailingGroup:
    def run(self, ctx, key):
        try:
            yield [ctx.schedule_activity("nap", [0.3, 1]), ctx.schedule_activity("fatal", [key]), ctx.schedule_activity("nap", [0.6, 2])]
        except ActivityFailed as e:
            return [str(e), (yield ctx.schedule_activity("add", [2, 2]))]
        return None


@workflow.defn(name="counting_down")
class CountingDown:
    def run(self, ctx, n, path):
        path = path + [(yield ctx.schedule_activity("add", [n, 0]))]
        if n > 0:
            return (yield ctx.continue_as_new(n - 1, path))
        return path


@workflow.defn(name="side_effects")
class SideEffects:
    """Chance, recorded once: the values are the same after every replay."""

    def run(self, ctx):
        a = yield ctx.side_effect(lambda: os.urandom(8).hex())
        echoed = yield ctx.schedule_activity("echo", [a])
        b = yield ctx.side_effect(lambda: {"deep": [1, None, a]})
        yield ctx.start_timer(0)
        return [a, echoed[0], b]


@workflow.defn(name="versions")
class Versions:
    def run(self, ctx):
        v = yield ctx.get_version("change-1", 1, 3)
        yield ctx.schedule_activity("add", [v, 1])
        again = yield ctx.get_version("change-1", 1, 3)
        patched = yield ctx.patched("fix-2")
        return [v, again, patched]


@workflow.defn(name="approval")
class Approval:
    """Waits for what signals and updates bring."""

    def __init__(self):
        self.total, self.names, self.closed = 0, [], False

    @workflow.signal("approve")
    def approve(self, name):
        self.names.append(name)

    @workflow.update("deposit")
    def deposit(self, amount):
        if amount < 0:
            raise ValueError(f"cannot deposit {amount}")
        self.total += amount
        return {"total": self.total}

    @workflow.update("close")
    def close(self):
        self.closed = True

    @workflow.query("state")
    def state(self, *of):
        known = {"total": self.total, "names": self.names, "closed": self.closed}
        return [known[name] for name in of] if of else known

    @workflow.query("broken")
    def broken(self):
        raise OutOfStock("no answer")

    def run(self, ctx, approvals, total, timeout):
        met = yield ctx.wait_condition(lambda: len(self.names) >= approvals, key="approved", timeout=timeout)
        if not met:
            return {"timed_out": self.names}
        greeting = yield ctx.schedule_activity("greet", [self.names[-1]])
        yield ctx.wait_condition(lambda: self.total >= total or self.closed)
        return {"names": self.names, "total": self.total, "closed": self.closed, "greeting": greeting}


@workflow.defn(name="account")
class Account:
    """Every deposit begins a new run, which is handed the balance, until there is enough."""

    def __init__(self):
        self.deposits, self.balance, self.runs = [], 0, 0

    @workflow.signal("deposit")
    def deposit(self, amount):
        self.deposits.append(amount)

    @workflow.update("pay_in")
    def pay_in(self, amount):
        self.deposits.append(amount)
        return amount

    @workflow.query("account")
    def account(self):
        return {"balance": self.balance, "runs": self.runs}

    def run(self, ctx, enough, balance=0, runs=1):
        self.balance, self.runs = balance, runs
        yield ctx.wait_condition(lambda: self.deposits)
        if balance + sum(self.deposits) >= enough:
            return {"balance": balance + sum(self.deposits), "runs": runs}
        return (yield ctx.continue_as_new(enough, balance + sum(self.deposits), runs + 1))


@workflow.defn(name="stepwise")
class Stepwise:
    """Goes on as new as soon as its step, which any worker of a queue may take, is done; and ends with the first deposit it knows of."""

    def __init__(self):
        self.deposits = []

    @workflow.signal("deposit")
    def deposit(self, amount):
        self.deposits.append(amount)

    def run(self, ctx, queue, runs=1):
        yield ctx.schedule_activity("step", [], queue=queue)
        if self.deposits:
            return {"deposits": self.deposits, "runs": runs}
        return (yield ctx.continue_as_new(queue, runs + 1))


@workflow.defn(name="judged")
class Judged:
    """Lets updates in that its validator likes, judged by the state of the workflow."""

    def __init__(self):
        self.total = 0

    @workflow.update("deposit")
    def deposit(self, amount):
        self.total += amount
        return self.total

    @deposit.validator
    def check_deposit(self, amount):
        if amount <= self.total:
            raise ValueError(f"{amount} is no more than {self.total}")

    def run(self, ctx, total):
        yield ctx.wait_condition(lambda: self.total >= total)
        return self.total


@workflow.defn(name="parent")
class Parent:
    """One child after the other, and what it said or how it ended."""

    def run(self, ctx, children):
        said = []
        for kind, args, options in children:
            try:
                said.append((yield ctx.start_child_workflow(kind, args, **options)))
            except ChildWorkflowCancelled as e:
                said.append(["cancelled", str(e)])
            except ChildWorkflowTerminated as e:
                said.append(["terminated", str(e)])
            except ChildWorkflowFailed as e:
                said.append(["failed", str(e), e.exception_class])
        return said


@workflow.defn(name="chained")
class Chained:
    """Leaves two children behind in each of its runs: one that sleeps for long, and one that ends while a later run is under way."""

    def run(self, ctx, left):
        won = yield ctx.select({
            "long": ctx.start_child_workflow("sleeping", [300], parent_close_policy="terminate"),
            "short": ctx.start_child_workflow("sleeping", [2], parent_close_policy="terminate"),
            "pause": ctx.start_timer(1),
        })
        if left > 0:
            return (yield ctx.continue_as_new(left - 1))
        return won.key


@workflow.defn(name="family")
class Family:
    def run(self, ctx, n):
        return (yield [ctx.start_child_workflow("napping", [0.15 * (n - i), i]) for i in range(n)])


@workflow.defn(name="napping")
class Napping:
    def run(self, ctx, seconds, value):
        return (yield ctx.schedule_activity("nap", [seconds, value]))


@workflow.defn(name="racing")
class Racing:
    """The first of several wins; the rest is cancelled, or awaited."""

    def __init__(self):
        self.told = None

    @workflow.signal("tell")
    def tell(self, what):
        self.told = what

    def run(self, ctx, naps, deadline, rest):
        operations = {f"nap-{i}": ctx.schedule_activity("nap", [s, i]) for i, s in enumerate(naps)}
        operations["deadline"] = ctx.start_timer(deadline)
        operations["told"] = ctx.wait_condition(lambda: self.told is not None)
        won = yield ctx.select(operations)
        said = [won.key, won.result() if won.succeeded else None]
        for handle in won.remaining().values():
            if rest == "cancel":
                yield handle.cancel()
            elif str(handle.key).startswith("nap"):
                said.append((yield handle.await_result()))
        return said


@workflow.defn(name="failing_until")
class FailingUntil:
    """Fails until the activity that counts its tries has been called often enough."""

    def run(self, ctx, key, failures):
        n = yield ctx.schedule_activity("count", [key])
        if n <= failures:
            raise OutOfStock(f"try {n}")
        return n


@activity.defn(name="count")
def count(key: str) -> int:
    ATTEMPTS[key] = ATTEMPTS.get(key, 0) + 1
    return ATTEMPTS[key]


@workflow.defn(name="retrying_child")
class RetryingChild:
    def run(self, ctx, key, failures, attempts):
        policy = ChildWorkflowRetryPolicy(max_attempts=attempts, backoff_seconds=[0] * (attempts - 1))
        try:
            return (yield ctx.start_child_workflow("failing_until", [key, failures], retry_policy=policy))
        except ChildWorkflowFailed as e:
            return str(e)


@workflow.defn(name="describing_itself")
class DescribingItself:
    def run(self, ctx, memo, attributes, waits):
        yield ctx.upsert_memo(memo)
        yield ctx.upsert_search_attributes(attributes)
        if waits:
            yield ctx.start_timer(60)
        yield ctx.upsert_memo({"step": None, "done": True})
        return "described"


@workflow.defn(name="long_run")
class LongRun:
    """Most of its steps are of one group; those after it have a history of more than a page before them."""

    def run(self, ctx, n):
        beside = n - 12
        total = sum((yield [ctx.schedule_activity("add", [0, i]) for i in range(beside)]))
        for i in range(beside, n):
            total = yield ctx.schedule_activity("add", [total, i])
        return total


@workflow.defn(name="in_session")
class InSession:
    """Steps that share the memory of one worker process."""

    def run(self, ctx, session, steps, options):
        opts = WorkerSessionOptions(session_id=session, **options)
        said = []
        for i in range(steps):
            said.append((yield ctx.schedule_activity("keep", [session, i], worker_session=opts)))
        return said


@workflow.defn(name="slow_session")
class SlowSession:
    """Waits between two steps of a session long enough for a test to kill the holder."""

    def run(self, ctx, session, path, options):
        opts = WorkerSessionOptions(session_id=session, **options)
        policy = ActivityRetryPolicy(max_attempts=5, backoff_seconds=[0, 0, 0, 0])
        first = yield ctx.schedule_activity("keep", [session, 1], worker_session=opts, retry_policy=policy)
        second = yield ctx.schedule_activity(
            "keep_slowly", [session, 2, path], worker_session=opts, retry_policy=policy, start_to_close_timeout=6)
        return [first, second]


@workflow.defn(name="crowded_session")
class CrowdedSession:
    """More at once than the session allows."""

    def run(self, ctx, session, n, most):
        opts = WorkerSessionOptions(session_id=session, max_concurrent_activities=most)
        return (yield [ctx.schedule_activity("overlap", [session], worker_session=opts) for _ in range(n)])


RUNNING: dict[str, int] = {}


@activity.defn(name="overlap")
async def overlap(session: str) -> list:
    """How many of the session ran here at once, at most."""
    RUNNING[session] = RUNNING.get(session, 0) + 1
    most = RUNNING[session]
    for _ in range(6):
        await asyncio.sleep(0.05)
        most = max(most, RUNNING[session])
    RUNNING[session] -= 1
    return [os.getpid(), most]


@workflow.defn(name="mixed")
class Mixed:
    """Go activities in one session, and a child in Go; a worker of ours serves the queue."""

    def run(self, ctx, queue, session):
        options = WorkerSessionOptions(session, queue=queue, lease_seconds=60)
        counted = []
        for n in range(3):
            counted.append((yield ctx.schedule_activity("go.count", [n], queue=queue, worker_session=options)))
        child = yield ctx.start_child_workflow("go.child", ["a child of Python"], task_queue=queue)
        return {"counted": counted, "child": child}


@workflow.defn(name="steps")
class Steps:
    """Short steps, for a run that goes on while workers and servers come and go."""

    def run(self, ctx, n):
        policy = ActivityRetryPolicy(max_attempts=5, backoff_seconds=[0, 0, 0, 0])
        workers = []
        for i in range(n):
            yield ctx.schedule_activity("nap", [0.1, i], retry_policy=policy, start_to_close_timeout=4)
            workers.append((yield ctx.schedule_activity("whereabouts", [], retry_policy=policy, start_to_close_timeout=4)))
        return workers


WORKFLOWS = [v for v in list(globals().values()) if isinstance(v, type) and hasattr(v, "__workflow_name__")]
ACTIVITIES = [v for v in list(globals().values()) if hasattr(v, "__activity_name__")]
