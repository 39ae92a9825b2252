"""The behaviours of the suite in Python, one function each."""

import base64
import os
import signal
import subprocess
import sys
import time


def main(input, ctx):
    return input


def count(_, ctx):
    ctx.session.state.n = getattr(ctx.session.state, "n", 0) + 1
    return ctx.session.state.n


def about(_, ctx):
    s = ctx.session
    return {"id": s.id, "epoch": s.epoch, "is_new": s.is_new, "dir": s.dir, "pid": os.getpid(), "attempt": ctx.attempt, "key": ctx.idempotency_key}


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
    """Waits until as many calls as it is told are in it."""
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
    os.kill(os.getpid(), signal.SIGSEGV)


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


def limits(_, ctx):
    def read(name):
        with open("/proc/self/" + name) as f:
            return f.read()

    return {"status": read("status"), "limits": read("limits"), "score": read("oom_score_adj").strip()}


def descriptors(_, ctx):
    return [int(fd) for fd in os.listdir("/proc/self/fd")]


def write(name, ctx):
    with open(os.path.join(ctx.session.dir, name), "w") as f:
        f.write("kept")
    with open(os.path.join(ctx.session.dir, name)) as f:
        return f.read() + " " + ",".join(os.listdir(ctx.session.dir))


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

