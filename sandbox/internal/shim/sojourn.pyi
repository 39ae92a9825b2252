# What a handler of Sojourn gets as its second argument. Written by `sojourn types`; it is not there when handlers run:
#
#   from __future__ import annotations
#   from typing import TYPE_CHECKING
#   if TYPE_CHECKING:
#       from sojourn import Context
#
#   def main(text: str, ctx: Context) -> int: ...
#
# A session definition, in a file NAME.session.py:
#
#   def set_up(text: str, ctx: Context) -> list[str]: ...
#   def tear_down(state: list[str]) -> None: ...

import threading
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypedDict, TypeVar

T = TypeVar("T")

class Keys(TypedDict):
    namespace: str
    workflow_id: str
    run_id: str
    task_id: str
    task_queue: str
    worker_id: str
    attempt_id: str
    activity_execution_id: str

class Flag(threading.Event):
    """True once the attempt should stop; wait(seconds) waits for that."""

    def __bool__(self) -> bool: ...

class Log:
    """Lines in the worker's log."""

    def __call__(self, *args: object, level: Literal["debug", "info", "warn", "error"] = "info") -> None: ...
    def debug(self, *args: object) -> None: ...
    def info(self, *args: object) -> None: ...
    def warning(self, *args: object) -> None: ...
    def warn(self, *args: object) -> None: ...
    def error(self, *args: object) -> None: ...

class Session:
    """State that is kept between the calls of a session while its process lives."""

    id: str
    epoch: int
    """Rises whenever a worker acquires the session."""
    is_new: bool
    """Whether this is the first call of the epoch."""
    state: Any
    """A SimpleNamespace for any values: models, connections, child processes. They are never stored. With a definition:
    what set_up returned."""
    dir: str
    """The session's scratch folder, removed with the process."""
    def require(self, key: str) -> Any:
        """Returns a member of the state. If it is missing, the session's state is lost, and the recovery policy applies."""
    def get_or_create(self, key: str, fn: Callable[[], T]) -> T:
        """Returns a member of the state; fn creates it once, also if calls run concurrently."""
    def on_close(self, fn: Callable[[], object]) -> None:
        """fn is called when the session is closed in good order; hooks run in reverse order."""

class Fence:
    """One acquisition of a session. A store that keeps the highest epoch rejects late writes of former owners."""

    namespace: str
    session_id: str
    epoch: int
    """Rises with each acquisition of the session."""

class LastHeartbeat:
    """The last progress of an earlier attempt."""

    details: Any
    """The value that was passed to progress()."""
    at: float
    """When that attempt sent its last heartbeat, in seconds since 1970."""
    attempt: int
    """Number of that attempt."""

class Context:
    """One attempt of an activity."""

    activity: str
    attempt: int
    """1 for the first attempt."""
    idempotency_key: str
    """The same in all attempts: pass it to services that detect repeated requests."""
    keys: Keys
    deadline: float | None
    """Deadline of the attempt, in seconds since 1970; None: no deadline."""
    last_heartbeat: LastHeartbeat | None
    """What an earlier attempt reported last; None: no attempt reported progress."""
    headers: dict[str, str]
    """Headers of the command that scheduled the activity; empty: it had none."""
    session: Session | None
    """None outside of a session."""
    fence: Fence | None
    """The acquisition of the session under which the attempt runs, for writes to other stores; None outside sessions."""
    cancelled: Flag
    signal: Flag
    log: Log
    def heartbeat(self) -> None:
        """Sends a heartbeat."""
    def progress(self, value: object) -> None:
        """Sends a heartbeat with progress: any value with a JSON form. The next attempt finds it as last_heartbeat."""
    def pending(self) -> NoReturn:
        """Ends the call and leaves the attempt open: a caller of the API reports its outcome with the token
        keys["attempt_id"]. It raises, so nothing after it runs."""

SetUp = Callable[[Any, Context], Any]
"""Sets a session up, once in each epoch. Receives the argument of the definition, or a list of several."""

TearDown = Callable[[T], object]
"""Releases what set_up returned, when the session is closed in good order. It has 10 seconds."""

OnHandOver = Callable[[T], Any]
"""Returns a value from which another worker restores the state: JSON values of at most 2 MiB. It is called before the
worker releases the session, while no call runs in it, and must not change the state."""

Restore = Callable[[T, Any], object]
"""Restores what on_hand_over returned, after set_up and before the first call. If it raises, the state is lost."""

class SessionOptions(TypedDict, total=False):
    """Options of a session definition: options = {"set_up_timeout_seconds": 60}."""

    set_up_timeout_seconds: float
    """Timeout of set_up. Default: 600."""
    on_failure: Literal["fail_activity", "try_another_worker"]
    """Effect of a failed set_up. fail_activity, the default: the attempt fails. try_another_worker: the worker releases the
    session and returns the task, so that another worker runs set_up."""
    hand_over: Literal["release", "prepare"]
    """How a session moves from a draining worker. release, the default: the next worker runs set_up while tasks wait.
    prepare: the next worker runs set_up first, while another worker holds the session; ctx.fence is then None."""

class Recovery(TypedDict, total=False):
    """How lost session state is rebuilt: recovery = {"rebuild_activity": "index.load"}."""

    rebuild_activity: str
    """The activity that rebuilds the state. It receives the first argument of the call whose state is missing."""
    rebuild_arguments: int
    """Number of arguments of that call that the rebuild activity receives, as a list if more than 1. Default: 1."""
    max_auto_retries: int
    """Number of retries of a call after a rebuild. Default: 1."""
    parallel_rebuilds: bool
    """Whether each of several concurrent calls with missing state runs its own rebuild. Default: False."""
    singleflight_per_session: bool
    """The opposite of parallel_rebuilds (deprecated)."""
