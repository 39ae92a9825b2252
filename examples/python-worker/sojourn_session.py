"""Session state and heartbeat details for activities that run in a worker of the published Python SDK.

Copy this file next to the worker. Use SessionClient instead of Client, and call session_state() in an activity:

    @activity.defn(name="chat.turn")
    def turn(text):
        state, is_new = session_state()
        if is_new:
            state["model"] = load_model()
        return state["model"].reply(text)

An activity that is retried continues from the details of the last heartbeat of an earlier attempt:

    last = last_heartbeat()
    start = last["details"]["line"] if last else 0

Activities of a session with a definition find the state that its set-up returned:

    client = SessionClient(url, definitions={"tenant": SessionDefinition(open_journal, close_journal)})
    worker = Worker(client, interceptors=[client.set_ups()], ...)

    @activity.defn(name="tenant.put")
    def put(line):
        return set_up_state().append(line)

The app increments the epoch of a session with each acquisition. State belongs to one (session, epoch). A task with a
higher epoch means that the session may have been at another worker in between, so the older state is dropped.

A delivery can arrive late, after this process was paused or after a network outage. By then another worker may have
acquired the session. After a poll that took longer than confirm_after seconds, the client therefore sends a heartbeat
for the attempt, and starts the attempt only if the app responds that it may continue.
"""

import asyncio
import contextlib
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from durable_workflow import Client, PassthroughWorkerInterceptor, activity, serializer

__all__ = [
    "SessionClient", "SessionDefinition", "SessionLost", "SessionSetUpTimeout", "fence", "last_heartbeat",
    "session_state", "set_up_state",
]

log = logging.getLogger("sojourn_session")

MAX_ATTEMPTS = 10_000
REPORT_EVERY = 5.0  # seconds between two heartbeats of an attempt that waits for a set-up
TEAR_DOWN_TIME = 10.0  # seconds


class SessionLost(RuntimeError):
    """The session of this attempt has moved to another worker since, or was acquired again. The state is dropped."""


class SessionSetUpTimeout(RuntimeError):
    """The set-up of the session did not end within the timeout of its definition."""


class SessionDefinition:
    """How the state of a session is set up and torn down.

    set_up receives the arguments of the definition and returns the state. tear_down receives the state. Both may be
    coroutine functions; other functions run in a thread. timeout is the timeout of a set-up in seconds.

    on_failure selects what happens when a set-up fails. fail_activity: the attempt fails, and the next attempt runs the
    set-up again. try_another_worker: the worker also releases the session, and the app offers it to another worker first.
    """

    def __init__(
        self, set_up: Callable[..., Any], tear_down: Callable[[Any], Any] | None = None, timeout: float = 600.0,
        on_failure: str = "fail_activity",
    ) -> None:
        if on_failure not in ("fail_activity", "try_another_worker"):
            raise ValueError(f"on_failure is {on_failure!r}; want fail_activity or try_another_worker")
        self.on_failure = on_failure
        self.set_up = set_up
        self.tear_down = tear_down
        self.timeout = timeout


class _Attempt:
    """The session under which an attempt was delivered."""

    def __init__(self, client: "SessionClient", wire: dict[str, Any]) -> None:
        self.client = client
        self.key = (client.namespace, wire["session_id"])
        self.epoch = wire["epoch"]


class _State:
    """The state of one session under one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.values: dict[str, Any] | None = None
        self.ends = 0.0  # Unix time at which the session's time to live ends
        self.definition: SessionDefinition | None = None
        self.set_up: asyncio.Task[None] | None = None  # the set-up that runs; failed ones are removed
        self.ready = False  # value is what the set-up returned
        self.loss_shown = False  # an attempt failed because its workflow asked for losses
        self.reported = False  # an attempt reported the set-up, so that the app sends no more arguments
        self.value: Any = None
        self.dropped = False


_lock = threading.Lock()
_attempts: dict[str, _Attempt] = {}  # by activity_attempt_id, from the poll to the outcome
_heartbeats: dict[str, dict[str, Any]] = {}  # last_heartbeat of a task, by activity_attempt_id, likewise


def session_state() -> tuple[dict[str, Any], bool]:
    """Return the state of this attempt's session, and whether it is new.

    The state is a dict that lives in this process for as long as this worker holds the session under the same epoch.
    is_new is True for the first call under an epoch: the caller fills the state then. Raises RuntimeError if the
    attempt has no session or the worker was not started with a SessionClient, and SessionLost if the worker has
    meanwhile received work of the session under a higher epoch.
    """
    with _lock:
        state = _held(activity.context().info.activity_attempt_id)
        if state.values is None:
            state.values = {}
            return state.values, True
        return state.values, False


def set_up_state() -> Any:
    """Return what the set-up of this attempt's session returned.

    Raises RuntimeError if the session has no definition or the worker was started without the interceptor set_ups() of
    its SessionClient, and SessionLost like session_state().
    """
    with _lock:
        state = _held(activity.context().info.activity_attempt_id)
        if not state.ready:
            raise RuntimeError("the session was not set up: it has no definition, or its worker lacks client.set_ups()")
        return state.value


def fence() -> dict[str, Any]:
    """Return namespace, session_id and epoch of this attempt's session, for a store that rejects lower epochs.

    Raises RuntimeError like session_state().
    """
    with _lock:
        attempt = _attempts.get(activity.context().info.activity_attempt_id)
    if attempt is None:
        raise RuntimeError("this attempt has no session, or its worker was not started with SessionClient")
    return {"namespace": attempt.key[0], "session_id": attempt.key[1], "epoch": attempt.epoch}


def _held(attempt_id: str) -> _State:
    """Return the state of an attempt's session. The caller holds _lock."""
    attempt = _attempts.get(attempt_id)
    if attempt is None:
        raise RuntimeError("this attempt has no session, or its worker was not started with SessionClient")
    state = attempt.client._states.get(attempt.key)
    if state is None or state.epoch != attempt.epoch:
        raise SessionLost(f"session {attempt.key[1]} is no longer held under epoch {attempt.epoch}")
    return state


def last_heartbeat() -> dict[str, Any] | None:
    """Return what an earlier attempt of this activity reported last: a dict of details, at and attempt_number.

    details is the value that was passed to heartbeat(). Returns None if no earlier attempt reported details, or if the
    worker was not started with a SessionClient.
    """
    with _lock:
        return _heartbeats.get(activity.context().info.activity_attempt_id)


class SessionClient(Client):
    """The published client, extended to record the session and epoch of each delivered attempt.

    close_state is called with the state, a dict, after the state was dropped. It may be a coroutine function; it runs on
    the worker's event loop and must not block. The state of a session is dropped when a task with a higher epoch
    arrives, when the session's time to live ends (checked at each poll) and when the worker stops.

    confirm_after is the duration of a poll, in seconds, after which the client confirms its delivery with a heartbeat.
    It must be shorter than the session lease.

    definitions are the session definitions of this worker, by name. The worker needs the interceptor set_ups(). At most
    max_set_ups set-ups run at once (default: the number of cores).
    """

    def __init__(
        self, *args: Any, close_state: Callable[[dict[str, Any]], Any] | None = None, confirm_after: float = 2.0,
        definitions: dict[str, SessionDefinition] | None = None, max_set_ups: int | None = None, **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._close_state = close_state
        self._confirm_after = confirm_after
        self._states: dict[tuple[str, str], _State] = {}
        self._definitions = dict(definitions or {})
        self._set_up_slots = asyncio.Semaphore(max_set_ups or os.cpu_count() or 1)

    def set_ups(self) -> "SetUps":
        """Return the interceptor that sets sessions up before their activities: Worker(…, interceptors=[…])."""
        return SetUps(self)

    async def register_worker(self, **kwargs: Any) -> Any:
        """Register the worker with its definitions and the capability worker_sessions, which old SDKs do not declare."""
        capabilities = list(kwargs.get("capabilities") or [])
        capabilities += [f"session:{name}" for name in self._definitions]
        kwargs["capabilities"] = capabilities
        if "worker_sessions" not in capabilities:
            kwargs["capabilities"] = [*capabilities, "worker_sessions"]
            manifest = dict(kwargs.get("capability_manifest") or {})
            if "worker_sessions" in manifest:
                manifest["worker_sessions"] = {
                    "supported": True, "minimum_protocol_version": "1.18", "implementation": "sojourn_session",
                }
                kwargs["capability_manifest"] = manifest
        return await super().register_worker(**kwargs)

    async def poll_activity_task(self, **kwargs: Any) -> Any:
        """Poll for an activity and remember its session. A late delivery that is no longer valid is dropped."""
        asked = time.monotonic()
        task = await super().poll_activity_task(**kwargs)
        wire = (task or {}).get("worker_session")
        if wire and time.monotonic() - asked > self._confirm_after and not await self._confirmed(task):
            return None
        dropped = self._expire()
        if task and task.get("last_heartbeat"):
            with _lock:
                _heartbeats[task["activity_attempt_id"]] = task["last_heartbeat"]
                if len(_heartbeats) > MAX_ATTEMPTS:
                    del _heartbeats[next(iter(_heartbeats))]
        if wire and isinstance(wire.get("epoch"), int):
            attempt = _Attempt(self, wire)
            with _lock:
                held = self._states.get(attempt.key)
                if held is None or held.epoch < attempt.epoch:
                    if held is not None:
                        dropped.append(held)
                    held = self._states[attempt.key] = _State(attempt.epoch)
                if held.epoch == attempt.epoch:
                    held.ends = _unix(wire.get("ttl_expires_at"))
                _attempts[task["activity_attempt_id"]] = attempt
                if len(_attempts) > MAX_ATTEMPTS:  # an attempt that the worker abandoned has no outcome
                    del _attempts[next(iter(_attempts))]
        for state in dropped:
            await self._close(state)
        return task

    async def complete_activity_task(self, **kwargs: Any) -> Any:
        """Report a result and forget the attempt."""
        with self._forgetting(kwargs):
            return await super().complete_activity_task(**kwargs)

    async def fail_activity_task(self, **kwargs: Any) -> Any:
        """Report a failure and forget the attempt."""
        with self._forgetting(kwargs):
            return await super().fail_activity_task(**kwargs)

    async def close_worker_session(self, worker_id: str, session_id: str, *args: Any, **kwargs: Any) -> Any:
        """Close the state, then release the session: its next owner must not meet this one."""
        with _lock:
            state = self._states.pop((self.namespace, session_id), None)
        if state is not None:
            await self._close(state)
        return await super().close_worker_session(worker_id, session_id, *args, **kwargs)

    async def aclose(self) -> None:
        """Close the client and the state of every session it still has."""
        with _lock:
            dropped = list(self._states.values())
            self._states.clear()
        for state in dropped:
            await self._close(state)
        await super().aclose()

    async def _confirmed(self, task: dict[str, Any]) -> bool:
        attempt = task["activity_attempt_id"]
        try:
            answer = await self.heartbeat_activity_task(
                task_id=task["task_id"], activity_attempt_id=attempt, lease_owner=task["lease_owner"],
            )
        except Exception as error:  # the app refused it, or cannot be reached after the client's retries
            log.warning("dropped late delivery of %s: %s", attempt, error)
            return False
        if answer.get("can_continue") is not True:
            log.warning("dropped late delivery of %s: the app says that it cannot continue", attempt)
            return False
        return True

    @contextlib.contextmanager
    def _forgetting(self, kwargs: dict[str, Any]) -> Any:
        try:
            yield
        finally:
            with _lock:
                _attempts.pop(kwargs.get("activity_attempt_id", ""), None)
                _heartbeats.pop(kwargs.get("activity_attempt_id", ""), None)

    def _expire(self) -> list[_State]:
        now = time.time()
        with _lock:
            ended = [key for key, state in self._states.items() if 0 < state.ends < now]
            return [self._states.pop(key) for key in ended]

    async def _set_up(self, task: dict[str, Any]) -> None:
        """Set the session of a task up, or wait for the set-up that another attempt of its epoch began."""
        wire = task["worker_session"]
        name, definition = wire["definition"], self._definitions.get(wire["definition"])
        if definition is None:
            raise RuntimeError(f"session definition {name} is not in the definitions of this SessionClient")
        with _lock:
            state = _held(task["activity_attempt_id"])
        if state.ready and state.reported:
            return
        lost = wire.get("on_lost") == "fail" and wire.get("last_end") and state.set_up is None and not state.ready
        if lost and not state.loss_shown:
            state.loss_shown = True
            raise SessionLost(f"the previous acquisition of the session ended: {wire['last_end']}")
        began, own = time.monotonic(), state.set_up is None
        if state.set_up is None:
            state.definition = definition
            state.set_up = asyncio.create_task(self._run_set_up(definition, state, self._arguments(task)))
        running = state.set_up
        report = {"definition": name, "timeout_seconds": max(1, round(definition.timeout)), "waited": not own}
        while not running.done():
            try:
                answer = await self._report(task, {**report, "outcome": "running"})
            except Exception as error:  # the report of the end decides whether the activity may begin
                log.warning("failed to report a set-up of session %s: %s", wire["session_id"], error)
            else:
                if answer.get("can_continue") is not True:
                    raise SessionLost(f"the app ended the attempt during the set-up of session {wire['session_id']}")
            await asyncio.wait({running}, timeout=REPORT_EVERY)
        report["seconds"] = time.monotonic() - began
        error = None if running.cancelled() else running.exception()
        if error is not None or running.cancelled():
            with contextlib.suppress(Exception):  # the attempt fails with the error of the set-up
                await self._report(task, {**report, "outcome": "failed"}, str(error))
            if own and definition.on_failure == "try_another_worker":
                await self._release(task, state)
            raise error or SessionLost("the set-up was cancelled")
        report["waited"], state.reported = state.reported, True
        answer = await self._report(task, {**report, "outcome": "rebuilt"})
        if answer.get("can_continue") is not True:
            raise SessionLost(f"the app ended the attempt during the set-up of session {wire['session_id']}")
        with _lock:
            _held(task["activity_attempt_id"])  # the session may have been acquired again meanwhile

    async def _release(self, task: dict[str, Any], state: _State) -> None:
        """Release the session of a task, so that another worker sets it up."""
        wire, key = task["worker_session"], (self.namespace, task["worker_session"]["session_id"])
        with _lock:
            if self._states.get(key) is state:
                del self._states[key]
        await self._close(state)
        try:
            await self._request(
                "POST", f"/worker/sessions/{quote(wire['session_id'], safe='')}/release", worker=True,
                json={"worker_id": task["lease_owner"], "epoch": wire["epoch"], "reason": "set_up_failed"},
            )
        except Exception as error:  # the attempt fails all the same, and the session stays with this worker
            log.warning("failed to release session %s: %s", wire["session_id"], error)

    def _arguments(self, task: dict[str, Any]) -> list[Any]:
        stored = task["worker_session"].get("definition_arguments")
        if stored is None:
            return []
        return serializer.decode_envelope(stored, codec=task.get("payload_codec"))

    async def _report(self, task: dict[str, Any], set_up: dict[str, Any], cause: str = "") -> dict[str, Any]:
        """Send a heartbeat that reports the set-up of an attempt. It also renews the lease of the attempt."""
        return await self._request(
            "POST", f"/worker/activity-tasks/{task['task_id']}/heartbeat", worker=True, json={
                "activity_attempt_id": task["activity_attempt_id"], "lease_owner": task["lease_owner"],
                "rebuild": {"cause": cause, "set_up": set_up},
            },
        )

    async def _run_set_up(self, definition: SessionDefinition, state: _State, arguments: list[Any]) -> None:
        try:
            async with self._set_up_slots:
                call = asyncio.ensure_future(_call(definition.set_up, *arguments))
                done, _ = await asyncio.wait({call}, timeout=definition.timeout)
                if not done:
                    call.add_done_callback(lambda late: self._tear_down_late(definition, late))
                    if inspect.iscoroutinefunction(definition.set_up):
                        call.cancel()  # a thread cannot be cancelled; the state that it returns is torn down
                    raise SessionSetUpTimeout(f"the set-up did not end within {definition.timeout:g} s")
                value = call.result()
            if state.dropped:
                await self._tear_down(definition, value)
                raise SessionLost("the session was lost during its set-up")
            state.value, state.ready = value, True
        except BaseException:
            state.set_up = None  # the next attempt tries again
            raise

    def _tear_down_late(self, definition: SessionDefinition, call: "asyncio.Future[Any]") -> None:
        if not call.cancelled() and call.exception() is None:
            self._late = asyncio.ensure_future(self._tear_down(definition, call.result()))

    async def _tear_down(self, definition: SessionDefinition, value: Any) -> None:
        if definition.tear_down is None:
            return
        try:
            await asyncio.wait_for(_call(definition.tear_down, value), TEAR_DOWN_TIME)
        except Exception:
            log.exception("failed to tear down a session")

    async def _close(self, state: _State) -> None:
        state.dropped = True
        if state.ready and state.definition is not None:
            await self._tear_down(state.definition, state.value)
        if self._close_state is None or state.values is None:
            return
        try:
            result = self._close_state(state.values)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("failed to close the state of a session")


class SetUps(PassthroughWorkerInterceptor):
    """Sets sessions with a definition up before their activities run."""

    def __init__(self, client: SessionClient) -> None:
        self._client = client

    async def execute_activity(self, context: Any, next: Any) -> Any:
        """Run the activity when the state of its session exists."""
        if (context.task.get("worker_session") or {}).get("definition"):
            await self._client._set_up(context.task)
        return await next(context)


async def _call(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a coroutine function, or another function in a thread."""
    if inspect.iscoroutinefunction(fn):
        return await fn(*args)
    return await asyncio.to_thread(fn, *args)


def _unix(at: Any) -> float:
    try:
        return datetime.fromisoformat(str(at).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
