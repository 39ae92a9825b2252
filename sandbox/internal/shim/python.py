"""The executor for Python: frames on descriptor 3, one handler module per content hash, state kept in this process.

The reader is a thread of its own. A call runs on the main thread when that is free, else on a thread made for it: calls one after
the other share a thread, because some libraries require that one thread uses an object. Coroutines of all calls share one event
loop, so a call can await an object that another call keeps in the state. Modules that take long to import are imported when they
are first needed.
"""

import errno
import io
import json
import os
import resource
import select
import socket
import struct
import sys
import threading
import types
from _queue import SimpleQueue
from binascii import a2b_base64, b2a_base64

LIMIT_HEADER = 64 * 1024
THROTTLE = 0.1
ROOM = 4  # descriptor of the memory that the worker has too, when a call is lent it
IN_ROOM = 16 * 1024  # bytes from which on a result is left there
LEFT_OPEN = 64  # descriptors that calls may leave before an executor is not used again
MODULES = "sojourn_handler_"  # how the names of handlers' modules begin
LENGTHS = struct.Struct("<II")

sock = socket.socket(fileno=3)
sock.set_inheritable(False)
try:
    os.set_inheritable(ROOM, False)
except OSError:
    pass  # there is none

class Stream(io.RawIOBase):
    """What the worker sends. Who waits for a socket in reading from it is woken also when there is room to write in it again:
    each time that the worker takes a frame. So it is waited for apart."""

    def __init__(self):
        self._sent = select.poll()
        self._sent.register(sock, select.POLLIN)

    def readable(self):
        return True

    def readinto(self, buffer):
        self._sent.poll()
        return sock.recv_into(buffer)


stream = io.BufferedReader(Stream(), 65536)
sending = threading.Lock()
limit_body = 2 * 1024 * 1024 + 64 * 1024
scratch = os.getcwd()
session = None
calls = {}  # call id -> Call
code = {}  # content hash -> Code
jobs = SimpleQueue()  # for the main thread
main_busy = threading.Lock()  # held from handing a job to the main thread until its end is details
main_taken = False  # the same, as the main thread knows it
surroundings = None  # of calls outside sessions
loop = None
loop_lock = threading.Lock()


def send(header, body=b""):
    head = json.dumps(header, separators=(",", ":")).encode()
    if len(head) > LIMIT_HEADER or len(body) > limit_body:
        return False
    with sending:
        try:
            sock.sendall(LENGTHS.pack(len(head), len(body)) + head + body)
        except OSError:
            os._exit(0)
    return True


def through_socket(path):
    """Has sockets that would connect to the worker's proxy over the network do so at a Unix socket, since others are refused.

    Libraries find the proxy in HTTP_PROXY; the address there stands for the Unix socket.
    """
    from urllib.parse import urlsplit

    at = urlsplit(os.environ["HTTP_PROXY"])
    stand_in = (at.hostname, at.port)
    inet = (-1, socket.AF_INET, socket.AF_INET6)

    class Socket(socket.socket):
        _stand_in = False

        def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
            kind = socket.SOCK_STREAM if type == -1 else type
            if fileno is None and family in inet and kind & 0xF == socket.SOCK_STREAM:
                family, type, proto, self._stand_in = socket.AF_UNIX, kind, 0, True
            super().__init__(family, type, proto, fileno)

        def _at(self, address):
            if not self._stand_in:
                return address
            if tuple(address[:2]) == stand_in:
                return path
            raise PermissionError(errno.EACCES, "connections are allowed only through the worker's proxy (HTTP_PROXY)")

        def connect(self, address):
            return super().connect(self._at(address))

        def connect_ex(self, address):
            try:
                return super().connect_ex(self._at(address))
            except PermissionError as err:
                return err.errno

        def setsockopt(self, level, *args):
            if not self._stand_in or level == socket.SOL_SOCKET:
                super().setsockopt(level, *args)

        def getpeername(self):
            return stand_in if self._stand_in else super().getpeername()

        def getsockname(self):
            return ("127.0.0.1", 0) if self._stand_in else super().getsockname()

    socket.socket = Socket


def add_packages(folder):
    """Has what was installed for the handlers found before what the interpreter has, and after what comes with Python."""
    import site

    before = list(sys.path)
    site.addsitedir(folder)
    added = [path for path in sys.path if path not in before]
    at = next((i for i, path in enumerate(before) if os.path.basename(path) in ("site-packages", "dist-packages")), len(before))
    sys.path[:] = before[:at] + added + before[at:]


if os.environ.get("SOJOURN_PACKAGES"):
    add_packages(os.environ["SOJOURN_PACKAGES"])


class Surroundings:
    """What calls outside sessions find as the handler's module left it when it was loaded: environment, working directory, umask,
    descriptors, an empty scratch folder. The module itself, with its globals, stays as it is."""

    def __init__(self):
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = 4096 if soft == resource.RLIM_INFINITY else min(soft, 4096)
        self._probe = select.poll()  # says with one system call which descriptors are not open
        for fd in range(self._most):
            self._probe.register(fd, 0)
        self._null = os.open(os.devnull, os.O_RDWR)
        self.remember()

    def remember(self):
        self._probed = self._probe.poll(0)
        self._open = self.descriptors(self._probed)
        self._environ = dict(os.environ)
        self._raw = dict(os.environ._data)
        self._cwd = os.getcwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    def descriptors(self, probed=None):
        if probed is None:
            probed = self._probe.poll(0)
        return set(range(self._most)).difference(fd for fd, what in probed if what & select.POLLNVAL)

    def keep(self, descriptors):
        """Has descriptors that the executor itself opened since stay."""
        self._open |= descriptors

    def restore(self):
        """Undoes what a call did. An executor that cannot undo it ends: the worker takes another one for the next call."""
        try:
            os.chdir(self._cwd)
            os.umask(self._umask)
            if os.environ._data != self._raw:
                os.environ.clear()
                os.environ.update(self._environ)
            probed = self._probe.poll(0)
            if probed != self._probed:
                left = self.descriptors(probed) - self._open
                if len(left) > LEFT_OPEN:
                    raise OSError("too many descriptors")
                for fd in left:
                    # What it led to is closed, and the number stays taken: an object that still has it must not meet another file.
                    os.dup2(self._null, fd, inheritable=False)
            for entry in os.listdir(scratch):
                path = os.path.join(scratch, entry)
                if os.path.isdir(path) and not os.path.islink(path):
                    import shutil

                    shutil.rmtree(path)
                else:
                    os.unlink(path)
        except Exception as err:
            print("executor: failed to restore the process after a call, exiting: %r" % err, file=sys.stderr, flush=True)
            os._exit(0)


def event_loop():
    """The one event loop, running in a thread of its own."""
    global loop
    with loop_lock:
        if loop is None:
            import asyncio

            before = surroundings.descriptors() if surroundings else set()
            loop = asyncio.new_event_loop()
            if surroundings:
                surroundings.keep(surroundings.descriptors() - before)
            threading.Thread(target=loop.run_forever, daemon=True, name="sojourn-loop").start()
    return loop


def await_in_loop(value, done):
    """Runs an awaitable in the event loop; done gets its future when it has ended. Returns that future."""
    import asyncio

    async def run():
        return await value

    future = asyncio.run_coroutine_threadsafe(run(), event_loop())
    future.add_done_callback(done)
    return future


# What a value is stored as: an Avro single-object frame of one recursive schema, as base64 text. The worker passes it on as it is.
FRAME = bytes.fromhex("c301e2a33dff55802237")
MAX_STORED = 2 * 1024 * 1024  # bytes of the text
MAX_DEPTH = 512
NULL, BOOL, LONG, DOUBLE, BYTES, STRING, ARRAY, MAP = range(0, 16, 2)
REAL = struct.Struct("<d")


class PayloadError(Exception):
    """A value that cannot be stored, or stored text that cannot be read; reason is the word programs go by."""

    retryable = False

    def __init__(self, reason, message):
        super().__init__(message)
        self.payload_reason = reason


class ActivityPending(Exception):
    """What ctx.pending() raises: the worker reports that the attempt stays open."""

    retryable = False


def decode(text):
    """The value that stored text holds. Whole numbers stay int and others float; bytes are an object that names them."""
    try:
        buf = a2b_base64(text)
        if buf[:10] != FRAME:
            raise ValueError("no frame of this schema")
        value, at = decode_value(buf, 10, 0)
        if at != len(buf):
            raise ValueError("trailing bytes")
        return value
    except (ValueError, IndexError, struct.error) as err:
        raise PayloadError("invalid_payload_framing", "the arguments cannot be read: %s" % err) from None


def decode_long(buf, at):
    byte = buf[at]
    at += 1
    number = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = buf[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), at


def decode_bytes(buf, at):
    size = buf[at]
    if size < 0x80 and not size & 1:
        size >>= 1
        at += 1
    else:
        size, at = decode_long(buf, at)
    end = at + size
    if size < 0 or end > len(buf):
        raise ValueError("length beyond the end")
    return buf[at:end], end


def decode_value(buf, at, depth):
    tag = buf[at]
    at += 1
    if tag == STRING:
        raw, at = decode_bytes(buf, at)
        return raw.decode(), at
    if tag == LONG:
        return decode_long(buf, at)
    if tag == MAP or tag == ARRAY:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("more than %d levels" % MAX_DEPTH)
        value = {} if tag == MAP else []
        while True:
            count, at = decode_long(buf, at)
            if count == 0:
                return value, at
            if count < 0:
                count = -count
                _, at = decode_long(buf, at)
            if count > len(buf) - at:
                raise ValueError("block count beyond the end")
            if tag == MAP:
                for _ in range(count):
                    raw, at = decode_bytes(buf, at)
                    value[raw.decode()], at = decode_value(buf, at, depth)
            else:
                for _ in range(count):
                    item, at = decode_value(buf, at, depth)
                    value.append(item)
    if tag == NULL:
        return None, at
    if tag == DOUBLE:
        return REAL.unpack_from(buf, at)[0], at + 8
    if tag == BOOL:
        return buf[at] == 1, at + 1
    if tag == BYTES:
        raw, at = decode_bytes(buf, at)
        return {"$type": "bytes", "base64": b2a_base64(raw, newline=False).decode()}, at
    raise ValueError("unknown value branch %d" % tag)


def encode(value):
    """What value is stored as; what json.dumps takes is taken, and NaN and infinities are not."""
    out = bytearray(FRAME)
    encode_value(out, value, 0)
    text = b2a_base64(out, newline=False)
    if len(text) > MAX_STORED:
        raise too_large(len(text))
    return text


def too_large(size):
    return PayloadError("payload_too_large", "the result cannot be stored: %d bytes exceed %d" % (size, MAX_STORED))


def encode_long(out, number):
    number = number << 1 if number >= 0 else (-number << 1) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def encode_text(out, text):
    raw = str.encode(text)
    size = len(raw)
    if size < 64:
        out.append(size << 1)
    else:
        encode_long(out, size)
    out += raw


def encode_value(out, value, depth):
    if isinstance(value, str):
        out.append(STRING)
        encode_text(out, value)
    elif value is None:
        out.append(NULL)
    elif value is True or value is False:
        out += b"\x02\x01" if value else b"\x02\x00"
    elif isinstance(value, int):
        number = int.__index__(value)
        if not -(1 << 63) <= number < 1 << 63:
            raise PayloadError("integer_overflow", "the result cannot be stored: %.40s is outside signed 64 bit" % hex(number))
        out.append(LONG)
        encode_long(out, number)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("%r cannot be stored" % value)
        out.append(DOUBLE)
        out += REAL.pack(value)
    elif isinstance(value, (dict, list, tuple)):
        depth += 1
        if depth > MAX_DEPTH:
            raise PayloadError(
                "payload_too_deep", "the result cannot be stored: more than %d levels, or a value that contains itself" % MAX_DEPTH
            )
        if len(out) > MAX_STORED:
            raise too_large(len(out))
        keyed = isinstance(value, dict)
        out.append(MAP if keyed else ARRAY)
        if value:
            encode_long(out, len(value))
            if keyed:
                for key, item in value.items():
                    encode_text(out, key if isinstance(key, str) else key_text(key))
                    encode_value(out, item, depth)
            else:
                for item in value:
                    encode_value(out, item, depth)
        out.append(0)
    else:
        raise TypeError("object of type %s cannot be stored" % type(value).__name__)


def key_text(key):
    """What json.dumps makes of a key that is not text."""
    if key is None:
        return "null"
    if key is True or key is False:
        return "true" if key else "false"
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return float.__repr__(key)
    raise TypeError("keys must be str, int, float, bool or None, not %s" % type(key).__name__)


class SessionLost(Exception):
    """The state a handler needs is not there; raised by Session.require."""


class SessionStateElsewhere(Exception):
    """The set-up of the session's definition ran in another process."""

    retryable = False


class Flag(threading.Event):
    """An event that is true when it is set."""

    def __bool__(self):
        return self.is_set()


class Session:
    """What stays between the calls of one session."""

    def __init__(self, id, epoch):
        self.id = id
        self.epoch = epoch
        self.state = types.SimpleNamespace()
        self.dir = scratch
        self._lock = threading.Lock()
        self._making = {}
        self._closers = []
        self._tear_down = None
        self._was_set_up = False

    def require(self, key):
        try:
            return getattr(self.state, key)
        except AttributeError:
            raise SessionLost("session state %r does not exist" % key) from None

    def get_or_create(self, key, fn):
        """The value kept under key, made by fn when there is none; calls at the same time share one fn."""
        with self._lock:
            if hasattr(self.state, key):
                return getattr(self.state, key)
            lock = self._making.setdefault(key, threading.Lock())
        with lock:
            if not hasattr(self.state, key):
                setattr(self.state, key, fn())
            return getattr(self.state, key)

    getOrCreate = get_or_create

    def on_close(self, fn):
        self._closers.append(fn)

    onClose = on_close

    def _close(self):
        closers, self._closers = self._closers, []
        if self._tear_down is not None:
            closers, self._tear_down = [self._tear_down, *closers], None
        for fn in reversed(closers):
            try:
                value = fn()
                if hasattr(value, "__await__"):
                    await_in_loop(value, lambda _: None).result()
            except Exception as err:
                print("close hook: %r" % err, file=sys.stderr)


class SessionOfCall:
    """A session as one call sees it: the same state, and whether this is its first call."""

    def __init__(self, session, is_new):
        self._session = session
        self.is_new = self.isNew = is_new

    @property
    def state(self):
        return self._session.state

    @state.setter
    def state(self, value):
        self._session.state = value

    def __getattr__(self, name):
        return getattr(self._session, name)


class Log:
    def __init__(self, call):
        self._call = call

    def __call__(self, *args, level="info"):
        self._call.log(level, args)

    def debug(self, *args):
        self._call.log("debug", args)

    def info(self, *args):
        self._call.log("info", args)

    def warning(self, *args):
        self._call.log("warn", args)

    warn = warning

    def error(self, *args):
        self._call.log("error", args)


class Fence:
    """One acquisition of a session."""

    def __init__(self, namespace, session_id, epoch):
        self.namespace = namespace
        self.session_id = session_id
        self.epoch = epoch


class LastHeartbeat:
    """What an earlier attempt reported last."""

    def __init__(self, value):
        from datetime import datetime

        self.details = value.get("details")
        self.at = datetime.fromisoformat(value["at"].replace("Z", "+00:00")).timestamp() if value.get("at") else None
        self.attempt = value.get("attempt_number", 0)


class Context:
    """The second argument of a handler."""

    def __init__(self, header, call):
        self.activity = header.get("activity", "")
        self.attempt = header.get("attempt", 1)
        self.keys = header.get("keys") or {}
        self.idempotency_key = self.keys.get("activity_execution_id", "")
        self.deadline = header["deadline_ms"] / 1000 if header.get("deadline_ms") else None
        self.last_heartbeat = LastHeartbeat(json.loads(call.last_heartbeat)) if call.last_heartbeat else None
        self.headers = json.loads(call.headers) if call.headers else {}
        self.session = SessionOfCall(session, header.get("is_new", False)) if session else None
        self.fence = Fence(self.keys.get("namespace"), session.id, session.epoch) if session and session.epoch else None
        self.cancelled = self.signal = call.cancelled
        self.log = Log(call)
        self.heartbeat = call.heartbeat
        self.progress = call.progress

    def pending(self):
        raise ActivityPending("the outcome is reported with the token of the attempt")


class Code:
    """A handler's source, made a module at the first call that needs it."""

    def __init__(self, header, source):
        self.hash = header["hash"]
        self.path = header.get("path") or "<handler>"
        self.source = source
        self.files = header.get("files") or {}
        self.module = None
        self.lock = threading.Lock()

    def load(self):
        if self.module is not None:
            return self.module
        with self.lock:
            if self.module is None:
                beside = os.path.dirname(self.path)
                if beside and beside not in sys.path:
                    sys.path.insert(0, beside)
                forget_changed(self.files)
                name = os.path.splitext(os.path.basename(self.path))[0]
                module = types.ModuleType("%s%s_%s" % (MODULES, "".join(c if c.isalnum() else "_" for c in name), self.hash[:8]))
                module.__file__ = self.path
                sys.modules[module.__name__] = module
                exec(compile(self.source, self.path, "exec"), module.__dict__)
                self.module = module
            return self.module


versions = {}  # path -> version that it was imported as
forgetting = threading.Lock()


def forget_changed(files):
    """Has what a handler imports, and was imported as another version before, imported again."""
    with forgetting:
        changed = {path for path, version in files.items() if versions.get(path, version) != version}
        versions.update(files)
        if not changed:
            return
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) in changed and not name.startswith(MODULES):
                del sys.modules[name]
                package, _, last = name.rpartition(".")
                if package in sys.modules:
                    vars(sys.modules[package]).pop(last, None)
        from importlib import invalidate_caches

        invalidate_caches()


def denied_path(err):
    """The path to which access was denied, if err or one of its causes is such an error."""
    for _ in range(5):
        if isinstance(err, PermissionError) and err.errno == errno.EACCES and isinstance(err.filename, (str, bytes)):
            return os.fsdecode(err.filename).encode("utf-8", "replace")[:1024].decode("utf-8", "ignore")
        err = getattr(err, "__cause__", None) or getattr(err, "__context__", None)
    return ""


def traced(err):
    """What people read of an exception: its frames and those of what it came from, without the frames of this file."""
    import traceback

    details = traceback.TracebackException.from_exception(err)
    links = [details]
    while links:
        link = links.pop()
        link.stack[:] = [frame for frame in link.stack if frame.filename != __file__]
        links += [link for link in (link.__cause__, link.__context__, *(getattr(link, "exceptions", None) or ())) if link]
    text = "".join(details.format())
    for name in list(sys.modules):
        if name.startswith(MODULES):
            text = text.replace(name + ".", "")
    return text[-8192:]


class Call:
    def __init__(self, header, body):
        self.header = header
        self.body = body
        self.id = header["id"]
        self.cancelled = Flag()
        self.future = None
        self.lock = threading.Lock()
        self.open = True
        self.beat = self.shown = float("-inf")
        self.pending = None
        self.last_heartbeat = last_heartbeats.pop(self.id, None)
        self.headers = headers_of_calls.pop(self.id, None)
        self.before = 0.0

    def log(self, level, args):
        text = " ".join(a if isinstance(a, str) else repr(a) for a in args).encode("utf-8", "replace")[: 64 * 1024]
        with self.lock:
            if self.open:
                send({"t": "log", "id": self.id, "level": level}, text)

    def heartbeat(self):
        now = monotonic()
        with self.lock:
            if self.open and now - self.beat >= THROTTLE:
                self.beat = now
                send({"t": "heartbeat", "id": self.id})

    def progress(self, value):
        body = json.dumps(value).encode()
        now = monotonic()
        with self.lock:
            if not self.open:
                return
            if now - self.shown < THROTTLE:
                self.pending = body
                return
            self.shown = now
            self.pending = None
            send({"t": "progress", "id": self.id}, body)

    def cancel(self, reason):
        self.cancelled.set()
        if self.future is not None:
            self.future.cancel()

    def run(self):
        """Calls the handler. A coroutine goes on in the event loop and this returns."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.before = usage.ru_utime + usage.ru_stime
        try:
            known = code.get(self.header.get("hash", ""))
            if known is None:
                self.end({"t": "error", "id": self.id, "type": "NeedCode", "message": "code is not loaded"})
                return
            if self.header.get("export"):
                value = getattr(known.load(), self.header["export"], None)
                self.result(json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8"))
                return
            entry = self.header.get("entry") or "main"
            loaded = known.module is not None
            fn = getattr(known.load(), entry, None)
            if session is None and not (loaded and surroundings):
                self.surround()
            if not callable(fn):
                missing = LookupError("%s has no function %r" % (self.header.get("activity"), entry))
                missing.retryable = False
                raise missing
            if self.header.get("room"):
                self.body = os.pread(ROOM, self.header["room"], 0)
            required = getattr(known.module, "session", None)
            if entry == "main" and isinstance(required, str):
                if required != (self.header.get("keys") or {}).get("session_definition"):
                    missing = LookupError(
                        "%s requires a session with the definition %s" % (self.header.get("activity"), required)
                    )
                    missing.retryable = False
                    raise missing
                if not session._was_set_up:
                    raise SessionStateElsewhere("the set-up of session definition %s ran in another process" % required)
            if entry == "set_up" and session is not None:
                fn = self.setting_up(fn, getattr(known.module, "tear_down", None))
            args = decode(self.body) if self.body else []
            self.body = b""
            if isinstance(args, list):
                args = args[0] if len(args) == 1 else args or None
            if session is not None and entry == "on_hand_over":
                value = fn(session.state)
            elif session is not None and entry == "restore":
                value = fn(session.state, args)
            else:
                value = fn(args, Context(self.header, self))
            if hasattr(value, "__await__"):
                self.future = await_in_loop(value, self.settle)
                if self.cancelled:
                    self.future.cancel()
                return
            self.result(encode(value))
        except BaseException as err:
            self.fail(err)

    def setting_up(self, set_up, tear_down):
        """Calls set_up and stores its result as the state of the session, which tear_down receives."""

        def keep(value):
            if value is not None:
                session.state = value
            session._was_set_up = True
            session._tear_down = (lambda: tear_down(session.state)) if callable(tear_down) else None

        def call(args, ctx):
            value = set_up(args, ctx)
            if not hasattr(value, "__await__"):
                return keep(value)

            async def wait():
                keep(await value)

            return wait()

        return call

    def surround(self):
        """Notes how the module left what calls find."""
        global surroundings
        if surroundings is None:
            surroundings = Surroundings()
        else:
            surroundings.remember()

    def settle(self, future):
        try:
            if future.cancelled():
                self.end({"t": "error", "id": self.id, "type": "Cancelled", "message": "cancelled", "retryable": False})
            elif future.exception() is not None:
                self.fail(future.exception())
            else:
                self.result(encode(future.result()))
        except BaseException as err:
            self.fail(err)

    def result(self, body):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        peak = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
        cost = {"cpu_ms": round((usage.ru_utime + usage.ru_stime - self.before) * 1000, 3), "rss": peak}
        done = {"t": "result", "id": self.id, "usage": cost}
        if self.header.get("lend") and len(body) >= IN_ROOM and leave_in_room(body):
            done["room"] = len(body)
            body = b""
        self.end(done, body)

    def fail(self, err):
        if isinstance(err, MemoryError):
            # The frames hold on to what did not fit; without them there is room to tell, and for the next call.
            trace = err.__traceback__
            while trace is not None:
                try:
                    trace.tb_frame.clear()
                except RuntimeError:
                    pass  # still running: ours
                trace = trace.tb_next
        header = {
            "t": "error",
            "id": self.id,
            "type": "UserError",
            "class": err.payload_reason if isinstance(err, PayloadError) else type(err).__name__[:256],
            "message": str(err)[:8192],
            "stack": traced(err),
            "retryable": getattr(err, "retryable", True) is not False,
        }
        denied = denied_path(err)
        if denied:
            header["denied"] = denied
        if isinstance(err, SessionLost):
            header["type"], header["details"] = "SessionLost", {"cause": "declared"}
        elif isinstance(err, MemoryError):
            header["type"] = "OutOfMemory"
        elif self.cancelled and type(err).__name__ in ("CancelledError", "KeyboardInterrupt"):
            header["type"] = "Cancelled"
        else:
            try:
                details = json.dumps(getattr(err, "details"), allow_nan=False)
                if len(details) <= 8192:
                    header["details"] = json.loads(details)
            except Exception:
                pass  # none, or not JSON: the message stands
        self.end(header)

    def end(self, header, body=b""):
        sys.stdout.flush()
        sys.stderr.flush()
        with self.lock:
            self.open = False
            if self.pending is not None:
                send({"t": "progress", "id": self.id}, self.pending)
        calls.pop(self.id, None)
        undo = session is None and surroundings is not None and not calls
        if undo and self.future is not None:  # the next call may begin on another thread than this one
            surroundings.restore()
            undo = False
        leave_main()
        send(header, body)
        if undo:  # before this thread runs the next call
            surroundings.restore()


def leave_in_room(body):
    """Says whether it did: there may be no memory left for it."""
    try:
        return os.pwrite(ROOM, body, 0) == len(body)
    except OSError:
        return False


def close():
    if session is not None:
        session._close()
    sys.stdout.flush()
    send({"t": "closed"})


def leave_main():
    """Hands the next job to the main thread before it reports the end of this job: the next call may arrive at once."""
    global main_taken
    if main_taken and threading.current_thread() is threading.main_thread():
        main_taken = False
        main_busy.release()


def submit(job):
    """Runs job on the main thread when that is free, else on its own."""
    if main_busy.acquire(blocking=False):
        jobs.put(job)
    else:
        threading.Thread(target=job, daemon=True).start()


last_heartbeats = {}  # id of a call -> heartbeat details of an earlier attempt, until the call begins
headers_of_calls = {}  # id of a call -> headers of its activity, until the call begins


def handle(header, body):
    global scratch, limit_body, session
    kind = header["t"]
    if kind == "invoke":
        if session and header.get("epoch"):
            session.epoch = header["epoch"]  # the worker has acquired a session that it prepared
        call = calls[header["id"]] = Call(header, body)
        submit(call.run)
    elif kind == "init":
        scratch = header.get("scratch") or scratch
        limit_body = header.get("max_body") or limit_body
        send({"t": "ready", "proto": 1, "runtime": "python %d.%d.%d" % sys.version_info[:3], "features": ["overlap", "room"]})
    elif kind == "load":
        code[header["hash"]] = Code(header, body)
    elif kind == "last_heartbeat":
        last_heartbeats[header["id"]] = body
    elif kind == "headers":
        headers_of_calls[header["id"]] = body
    elif kind == "open":
        session = Session(header["session"], header.get("epoch", 0))
    elif kind == "cancel":
        call = calls.get(header["id"])
        if call is not None:
            call.cancel(header.get("reason", ""))
    elif kind == "close":
        submit(close)
    elif kind == "ping":
        send({"t": "pong"})
    elif kind == "shutdown":
        os._exit(0)


def read():
    try:
        while True:
            lengths = stream.read(8)
            if len(lengths) < 8:
                break
            head, size = LENGTHS.unpack(lengths)
            header = json.loads(stream.read(head))
            handle(header, stream.read(size) if size else b"")
    except MemoryError:
        os.write(2, b"executor: out of memory\n")
        os._exit(70)
    finally:
        os._exit(0)


if __name__ == "__main__":
    from time import monotonic

    if os.environ.get("SOJOURN_EGRESS_SOCKET"):
        through_socket(os.environ["SOJOURN_EGRESS_SOCKET"])

    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    sys.stderr.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    threading.Thread(target=read, daemon=True, name="sojourn-frames").start()
    while True:
        job = jobs.get()
        main_taken = True
        try:
            job()
        finally:
            leave_main()
