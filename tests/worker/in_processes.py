"""An app whose tasks run in processes of the worker; these import it."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from tenacity import stop_after_attempt, wait_none
from worker.in_processes_queue import queue as queue  # noqa: PLC0414 - as tests call it

from pgqueue import Cancelled, Context, Limit, Retry, Snooze
from pgqueue.errors import TimedOut

TWICE = Retry(wait=wait_none(), stop=stop_after_attempt(2))


@queue.task(process=True)
def where() -> int:
    """The process that runs it."""
    return os.getpid()


@queue.task(process=True)
def nothing() -> None: ...


@queue.task(process=True)
def echo(text: str) -> str:
    return text


@queue.task(process=True, retry=TWICE)
def grumble(ctx: Context) -> None:
    raise ValueError(f"attempt {ctx.attempt}")


@queue.task(process=True)
def snooze() -> None:
    raise Snooze(timedelta(hours=1))


@queue.task(process=True)
def commit(ctx: Context) -> None:
    """Commit with the job, and note what there is to note."""
    ctx.checkpoint(7)
    with ctx.transaction() as connection:
        connection.execute("create table witness as select 1 as it")
        where.enqueue()


@queue.task(process=True)
def later() -> int:
    """Return what has to be awaited."""

    async def value() -> int:
        await asyncio.sleep(0)
        return 8

    return value()  # type: ignore[return-value]  # the worker awaits it


@queue.task(process=True, timeout=0.3, max_attempts=1)
def linger(path: str) -> None:
    """Clean up when the time is over."""
    try:
        Path(path).write_text(str(os.getpid()))
        time.sleep(60)
    except TimedOut as error:
        Path(path).write_text(f"{os.getpid()} {error}")
        raise


@queue.task(process=True)
def wait(ctx: Context, path: str) -> None:
    """Until it is cancelled."""
    ctx.progress(1, 2)
    try:
        Path(path).write_text(str(os.getpid()))
        time.sleep(60)
    finally:
        Path(path).write_text(f"{os.getpid()} cleaned up")


@queue.task(process=True)
def end_as_cancelled() -> None:
    """Find that the job is not needed."""
    raise Cancelled("no such order")


@queue.task(process=True)
def fail_when_stopped(path: str) -> None:
    """Turn the stop into an error of its own."""
    try:
        Path(path).write_text(str(os.getpid()))
        time.sleep(60)
    except asyncio.CancelledError:
        raise RuntimeError("stopped") from None


@queue.task(process=True, timeout=0.3, retry=TWICE, limit=Limit(1))
def hang(path: str) -> None:
    """Heed nothing, and note whether another one runs at the same time."""
    with Path(path).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Path(f"{path}.beside").write_text("beside")
        file.write(f"{os.getpid()}\n")
        file.flush()
        while True:
            with suppress(BaseException):
                time.sleep(60)


@queue.task(process=True, retry=TWICE)
def die(number: int) -> None:
    os.kill(os.getpid(), number)


@queue.task(process=True, max_attempts=1)
def leave() -> None:
    os._exit(7)


@queue.task(process=True)
def read_input() -> str:
    """What a program that it starts reads."""
    words = [sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603 - our own words


@queue.task(process=True)
def one() -> int:
    return 1


@queue.task(process=True)
def add(ctx: Context, number: int) -> int:
    return number + int(ctx.results.previous)


HANGING = """
import fcntl, os, sys, time
with open(sys.argv[1], "a") as file:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        open(sys.argv[1] + ".beside", "w").write("beside")
    file.write(f"{os.getpid()}\\n")
    file.flush()
    time.sleep(600)
"""
LEFTOVERS = ("thread", "coroutine", "process", "session")


@queue.task(process=True, timeout=1.5, max_attempts=1, limit=Limit(1))
def start_and_wait(how: str, path: str) -> None:
    """Have something else hang, and wait for it."""
    if how == "thread":
        thread = threading.Thread(target=hang.function, args=(path,))
        thread.start()
        thread.join()
    elif how == "coroutine":

        async def wait() -> None:
            await asyncio.to_thread(hang.function, path)

        return wait()  # type: ignore[return-value]  # the worker awaits it
    else:
        started = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, "-S", "-c", HANGING, path], start_new_session=how == "session"
        )
        started.wait()
    return None


@queue.task(process=True, timeout=1, max_attempts=1)
def half_a_second() -> None:
    time.sleep(0.5)


@queue.task
async def block() -> None:
    time.sleep(2.5)  # noqa: ASYNC251 - that is what it does


@queue.task(process=True)
def wait_shortly(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(0.5)


@queue.task(process=True)
def spoil(how: str) -> int:
    """Change what signals do, and leave it so."""
    if how == "mask":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
    else:
        signal.signal(signal.SIGALRM, signal.SIG_DFL if how == "default alarm" else lambda *_: None)
    return os.getpid()


@queue.task(process=True)
def commit_and_wait(ctx: Context, path: str) -> None:
    with ctx.transaction():
        pass
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


@queue.task(process=True)
def environment() -> list[str | None]:
    return [os.environ.get("PYTHONPATH"), sys.path[-1]]
