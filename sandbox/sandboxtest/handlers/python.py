"""The behaviours of the suite in Python, one function each."""

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
import time


def main(input, ctx):
    return input


def count(_, ctx):
    ctx.session.state.n = getattr(ctx.session.state, "n", 0) + 1
    return ctx.session.state.n


def about(_, ctx):
    s = ctx.session
    return {"id": s.id, "epoch": s.epoch, "is_new": s.is_new, "dir": s.dir, "pid": os.getpid(), "attempt": ctx.attempt, "key": ctx.idempotency_key}


def last_heartbeat(_, ctx):
    last = ctx.last_heartbeat
    return last and [last.details, int(last.at), last.attempt]


def headers(_, ctx):
    return ctx.headers


def pid(_, ctx):
    return os.getpid()


def require_model(_, ctx):
    return ctx.session.require("model")


def set_model(value, ctx):
    ctx.session.state.model = value
    return value


def once(_, ctx):
    def make():
        time.sleep(0.02)
        ctx.session.state.makings = getattr(ctx.session.state, "makings", 0) + 1
        return "made"

    made = ctx.session.get_or_create("made", make)
    return [made, ctx.session.state.makings]


class TypeError(Exception):
    retryable = False
    details = {"code": 7}


def fail(_, ctx):
    raise TypeError("this is wrong")


async def wait(_, ctx):
    import asyncio

    ctx.progress("waiting")
    while True:
        ctx.heartbeat()
        await asyncio.sleep(0.01)


def meet(n, ctx):
    """Waits until n calls run in it."""
    state = ctx.session.state
    state.here = getattr(state, "here", 0) + 1
    while state.here < n:
        time.sleep(0.001)
    return state.here


def spin(_, ctx):
    ctx.progress("spinning")
    while True:
        pass


def stubborn(_, ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.progress("deaf")
    while True:
        pass


def crash(_, ctx):
    print("last words", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGSEGV)  # another thread may be the one that takes it
    while True:
        signal.pause()


def exit(_, ctx):
    os._exit(3)


def hog(_, ctx):
    held = []
    while True:
        held.append(b"x" * (4 << 20))


def say(_, ctx):
    print("to stdout")
    print("to stderr", file=sys.stderr)
    ctx.log.warn("to the log")


def flood(megabytes, ctx):
    for _ in range(megabytes):
        sys.stdout.buffer.write(b"x\x1b[31m\0\xff\xff" * (1 << 17))
    sys.stdout.buffer.flush()
    return megabytes


def environ(_, ctx):
    return dict(os.environ)


def write(name, ctx):
    with open(os.path.join(ctx.session.dir, name), "w") as f:
        f.write("kept")
    with open(os.path.join(ctx.session.dir, name)) as f:
        return f.read() + " " + ",".join(os.listdir(ctx.session.dir))


def read(path, ctx):
    with open(path) as f:
        return f.read()


def create(path, ctx):
    with open(path, "w") as f:
        f.write("made")


def on_close(path, ctx):
    def hook():
        with open(path, "w") as f:
            f.write("closed")

    ctx.session.on_close(hook)


def daemon(seconds, ctx):
    """Leaves a process that has left the session, and returns its pid."""
    shell = subprocess.Popen(["sh", "-c", "setsid sh -c 'echo $$; exec sleep %d' & exit" % seconds], stdout=subprocess.PIPE, start_new_session=True)
    return int(shell.stdout.readline())


def raw(text, ctx):
    data = base64.b64decode(text)
    while data:
        data = data[os.write(3, data) :]
    time.sleep(0.1)



def nested(depth, ctx):
    value = []
    for _ in range(1, depth):
        value = [value]
    return value


def leave_links(_, ctx):
    os.symlink("/etc/passwd", os.path.join(ctx.session.dir, "result.txt"))
    os.symlink("/", os.path.join(ctx.session.dir, "root"))
    with open(os.path.join(ctx.session.dir, "plain.txt"), "w") as f:
        f.write("plain")


def child_hog(_, ctx):
    """A child takes the memory; the handler itself takes none."""
    subprocess.run([sys.executable, "-c", "held = []\nwhile True: held.append(b'x' * (4 << 20))"])
    time.sleep(60)


def children(n, ctx):
    for _ in range(n):
        subprocess.Popen(["sleep", "60"])
    time.sleep(60)


def dig_in(_, ctx):
    """Fills its folder with entries that are hard to remove, and starts a process that continues to create them."""
    for name in ("kept-for-later", "../kept-for-later"):
        try:
            open(os.path.join(ctx.session.dir, name), "w").close()
        except OSError:
            pass
    os.mkfifo("fifo")
    os.symlink("/", "root")
    os.mkdir("closed")
    open("closed/file", "w").close()
    os.chmod("closed", 0)
    subprocess.Popen(["setsid", "sh", "-c", "while :; do mkdir -p again/again; echo x > again/again/file; done"], stderr=subprocess.DEVNULL)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    open("deep", "w").close()
    os.chdir(ctx.session.dir)
    os.chmod(ctx.session.dir, 0o300)


def bomb(input, ctx):
    """Each of its processes starts others, in sessions of their own, and waits for none; each leaves a byte in a file.
    After so many bytes, or a while, they start no more."""
    path, most = input
    births = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    over = time.monotonic() + 10
    while os.fstat(births).st_size < most and time.monotonic() < over:
        try:
            if os.fork() == 0:
                os.write(births, b"x")
                os.setsid()
        except OSError:
            time.sleep(0.01)
    time.sleep(60)


def programs(n, ctx):
    """As many pipelines of a shell, eight at a time."""
    import subprocess
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        ran = pool.map(lambda i: subprocess.run(f"echo {i} | cat | cat", shell=True, capture_output=True, text=True), range(n))
        return [[r.stdout, r.stderr, r.returncode] for r in ran if r.returncode or r.stderr or not r.stdout.strip().isdigit()]


def threads(n, ctx):
    threading.stack_size(1 << 16)
    for _ in range(n):
        threading.Thread(target=time.sleep, args=[60], daemon=True).start()
    time.sleep(60)


def one_file(megabytes, ctx):
    with open(os.path.join(ctx.session.dir, "large"), "wb") as f:
        for _ in range(megabytes):
            f.write(b"x" * (1 << 20))


def many_files(input, ctx):
    files, kilobytes = input
    for i in range(files):
        with open(os.path.join(ctx.session.dir, str(i)), "wb") as f:
            f.write(b"x" * (kilobytes << 10))
    time.sleep(60)


def closed_folder(megabytes, ctx):
    """Files in a folder that even its owner may not list."""
    path = os.path.join(ctx.session.dir, "closed")
    os.mkdir(path)
    os.chmod(path, 0o300)
    for i in range(megabytes):
        with open(os.path.join(path, str(i)), "wb") as f:
            f.write(b"x" * (1 << 20))
    time.sleep(60)


def closed_scratch(megabytes, ctx):
    """The same with the scratch folder itself."""
    os.chmod(ctx.session.dir, 0o300)
    many_files([megabytes, 1024], ctx)


def deep_files(megabytes, ctx):
    """Files so deep that no path is long enough for them."""
    os.chdir(ctx.session.dir)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    for i in range(megabytes):
        with open(str(i), "wb") as f:
            f.write(b"x" * (1 << 20))
    time.sleep(60)


def page_tables(gigabytes, ctx):
    """Memory that is only read takes no memory, but tables that say where it is."""
    import ctypes, mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    size = gigabytes << 30
    at = libc.mmap(None, size, 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 15)  # MADV_NOHUGEPAGE
    step = 2 << 20
    for page in range(at, at + size, step):
        ctypes.c_char.from_address(page).value
    time.sleep(60)


def removed_files(megabytes, ctx):
    kept = []
    for i in range(megabytes):
        path = os.path.join(ctx.session.dir, str(i))
        kept.append(open(path, "wb", buffering=0))
        os.remove(path)
        kept[-1].write(b"x" * (1 << 20))
    time.sleep(60)


def memory_files(megabytes, ctx):
    kept = []
    for i in range(megabytes):
        kept.append(os.memfd_create(str(i)))
        os.write(kept[-1], b"x" * (1 << 20))
    time.sleep(60)


def later_files(megabytes, ctx):
    threading.Thread(target=lambda: (time.sleep(2), many_files([megabytes, 1024], ctx)), daemon=True).start()


def raw_later(text, ctx):
    threading.Timer(2, lambda: os.write(3, base64.b64decode(text))).start()


def close_socket(_, ctx):
    socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_WR)
    time.sleep(60)


def attack(worker, ctx):
    """Tries to reach into the worker; says what was refused."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    tries = {}

    def attempt(name, fn):
        try:
            fn()
            tries[name] = "open"
        except (OSError, PermissionError) as err:
            tries[name] = "held"

    def check(result):
        if result < 0:
            raise OSError(ctypes.get_errno())

    def vm_read():
        class Piece(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

        held = ctypes.create_string_buffer(8)
        here, there = Piece(ctypes.addressof(held), 8), Piece(0x400000, 8)
        check(libc.process_vm_readv(worker, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))

    def seize():
        check(libc.ptrace(0x4206, worker, 0, 0))

    def steal():
        pidfd = os.pidfd_open(worker)
        check(libc.syscall(438, pidfd, 0, 0))

    attempt("environ", lambda: open("/proc/%d/environ" % worker).read())
    attempt("mem", lambda: open("/proc/%d/mem" % worker, "r+b"))
    attempt("root", lambda: os.listdir("/proc/%d/root/" % worker))
    attempt("vm_readv", vm_read)
    attempt("ptrace", seize)
    attempt("pidfd_getfd", steal)
    attempt("setuid", lambda: os.setuid(12345))
    attempt("mount", lambda: check(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)))
    attempt("oom_score", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"0"))
    return tries


def rows(_, ctx):
    """A connection of sqlite3 refuses every thread but the one it was made in."""
    import sqlite3

    def connect():
        made = sqlite3.connect(":memory:")
        made.execute("create table rows (id integer primary key)")
        return made

    db = ctx.session.get_or_create("db", connect)
    db.execute("insert into rows default values")
    return db.execute("select count(*) from rows").fetchone()[0]


def forks(arg, ctx):
    """Children that share what their parent holds, and stay long enough to be seen."""
    mebibytes, children = arg
    held = b"x" * (mebibytes << 20)
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            sum(held[::4096])  # each has every page in its own table
            signal.pause()
        pids.append(pid)
    time.sleep(1)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(held)


def odd_values(_, ctx):
    import enum

    class Number(enum.IntEnum):
        THREE = 3

    class Color(str, enum.Enum):
        RED = "red"

    return {"tuple": (1, 2), "keys": {1: "a", None: "c", 2.5: "d", False: "b"}, "enum": [Number.THREE, Color.RED]}


def unstorable(kind, ctx):
    if kind == "integer":
        return 1 << 63
    if kind == "large":
        return "x" * (2 << 20)
    circle = []
    circle.append(circle)
    return circle


def busybomb(input, ctx):
    """Each of its processes starts others and waits for none, as fast as it can, for 40 seconds at most."""
    over = time.monotonic() + 40
    while time.monotonic() < over:
        try:
            os.fork()
        except OSError:
            pass


kept = []
marks = {"calls": 0}


def leave(input, ctx):
    """Leaves all state that a call can leave, and returns what it found of the previous call."""
    import os
    import stat

    mask = os.umask(0)
    os.umask(mask)
    found = {
        "env": os.environ.get("LEFT", ""), "path": os.environ.get("PATH") is not None, "cwd": os.getcwd() == os.environ["HOME"],
        "umask": mask != 0o013, "files": sorted(os.listdir(os.environ["HOME"])), "globals": marks["calls"],
        "open": [fd for fd in kept if stat.S_ISREG(os.fstat(fd).st_mode)],
    }
    marks["calls"] += 1
    os.environ["LEFT"] = "env"
    os.environ.pop("PATH", None)
    os.makedirs("in/deeper")
    for path in ("file", "in/deeper/file", "in/closed"):
        with open(path, "w") as f:
            f.write("left")
    os.symlink("nowhere", "link")
    os.chmod("in/closed", 0)
    kept.append(os.open("in/deeper/file", os.O_RDONLY))
    kept.append(os.open("file", os.O_RDONLY))
    os.chdir("in")
    os.umask(0o013)
    return found


async def leave_later(input, ctx):
    return leave(input, ctx)


def leave_and_fail(input, ctx):
    raise ValueError(json_of(leave(input, ctx)))


def json_of(value):
    import json

    return json.dumps(value)
