# What a handler of Sojourn gets as its second argument. Written by `sojourn types`; it is not there when handlers run:
#
#   from __future__ import annotations
#   from typing import TYPE_CHECKING
#   if TYPE_CHECKING:
#       from sojourn import Context
#
#   def main(text: str, ctx: Context) -> int: ...

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, TypedDict, TypeVar

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
    """What stays from one call of the session to the next, as long as its process lives."""

    id: str
    epoch: int
    """Rises whenever the session changes hands."""
    is_new: bool
    """Whether this is the first call of the epoch."""
    state: SimpleNamespace
    """Anything: models, connections, child processes. It is never stored."""
    dir: str
    """A folder of its own, removed with the process."""
    def require(self, key: str) -> Any:
        """A member of the state; without it the session's state is lost, and the recovery policy says what happens."""
    def get_or_create(self, key: str, fn: Callable[[], T]) -> T:
        """A member of the state, made once, also when calls come together."""
    def on_close(self, fn: Callable[[], object]) -> None:
        """Called when the session goes in an orderly way, the last that was added first."""

class Context:
    """One attempt of an activity."""

    activity: str
    attempt: int
    """1 for the first attempt."""
    idempotency_key: str
    """The same in all attempts: for services that can tell two equal requests apart."""
    keys: Keys
    deadline: float | None
    """When the attempt has to be over, in seconds since 1970."""
    session: Session | None
    """None outside of a session."""
    cancelled: Flag
    signal: Flag
    log: Log
    def heartbeat(self) -> None:
        """A sign of life."""
    def progress(self, value: object) -> None:
        """A sign of life that people see; any value that has a JSON form."""

class Recovery(TypedDict, total=False):
    """How the session's state is rebuilt when it is gone: recovery = {"rebuild_activity": "index.load"}."""

    rebuild_activity: str
    """The activity that rebuilds the state. It receives the first argument of the call whose state is missing."""
    rebuild_arguments: int
    """Number of arguments of that call that the rebuild activity receives, as a list if more than 1. Default: 1."""
    max_auto_retries: int
    """How often a call is tried again after a rebuild; 1 when it is left out."""
    singleflight_per_session: bool
    """Whether calls that find nothing at once share one rebuild; true when it is left out."""
