"""An app whose tasks kill the process that runs them; the processes of quarantined jobs import it."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
from tenacity import wait_none

from pgqueue import Batch, Context, Crashes, PgQueue, Retry, Snooze

queue = PgQueue()
AT_ONCE = Retry(wait=wait_none())


@queue.task(retry=AT_ONCE, crashes=2)
async def kill_me() -> None:
    """Die as the kernel kills what takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task(retry=AT_ONCE, crashes=Crashes(2, then="dead"))
async def kill_me_twice() -> None:
    """As before; its job is not run a third time."""
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task(retry=AT_ONCE, crashes=Crashes(2, memory="200 MB"))
def eat(megabytes: int) -> int:
    return len(bytearray(megabytes * 1_000_000))


@queue.task(retry=AT_ONCE)
async def where() -> int:
    """The process that runs it."""
    return os.getpid()


@queue.task(retry=AT_ONCE)
def where_plain() -> int:
    return os.getpid()


@dataclass
class Item:
    """Of a batch."""

    number: int


@queue.batch_task(Item, size=10, wait=0.05, retry=AT_ONCE)
async def where_together(batch: Batch[Item]) -> list[int]:
    return [os.getpid() for _ in batch]


@queue.batch_task(Item, size=10, wait=0.05, retry=AT_ONCE)
def where_together_plain(batch: Batch[Item]) -> list[int]:
    return [os.getpid() for _ in batch]


@queue.task(retry=AT_ONCE, max_attempts=5)
async def grumble(ctx: Context) -> None:
    """Fail in a way that is the task's own."""
    raise ValueError(f"attempt {ctx.attempt}")


@queue.task(retry=AT_ONCE)
async def snooze() -> None:
    """Go back for an hour."""
    raise Snooze(timedelta(hours=1))


@queue.task(retry=AT_ONCE)
def leave_quickly() -> None:
    """End the process without a word."""
    os._exit(7)


@queue.task(retry=AT_ONCE)
def leave_a_child(code: int | None) -> str:
    """Leave a process behind that has everything open that this one has; return a long text, or end without a word."""
    subprocess.Popen(["/bin/sleep", "30"], close_fds=False)
    if code is not None:
        os._exit(code)
    return "x" * 500_000


@queue.task(retry=AT_ONCE)
def multiply(path: str, code: int) -> None:
    """Start processes that start processes and stay, write the ids of all, and end without a word."""
    children = [os.fork() for _ in range(4)]  # each child forks the rest, too: 16 processes
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - short
        file.write(f"{os.getpid()}\n")
    if all(children):
        while len(Path(path).read_text(encoding="utf-8").splitlines()) < 16:
            time.sleep(0.01)
        os._exit(code)
    time.sleep(3600)


@queue.task(retry=AT_ONCE)
def fork(how: str) -> int:
    """Leave the function in the child, in this way; return the child's exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _leave_child(how)


@queue.task(retry=AT_ONCE)
async def afork(how: str) -> int:
    """As before; the child may wait for something, at first or later on."""
    if how == "wait later":
        await asyncio.sleep(0)
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])  # noqa: ASYNC222 - it ends at once
    if how in {"wait", "wait later"}:
        await asyncio.sleep(0)
    return _leave_child(how)


NOTED = "insert into effects values (%s)"


@queue.task(retry=AT_ONCE)
def fork_in_transaction(ctx: Context, how: str) -> None:
    """Leave the job's transaction in the child, in this way; note in it the child's exit code."""
    with ctx.transaction() as connection:
        connection.execute(NOTED, [-1])
        if child := os.fork():
            connection.execute(NOTED, [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])])
        else:
            _leave_child(how)


@queue.task(retry=AT_ONCE)
async def afork_in_transaction(ctx: Context, how: str) -> None:
    """As before."""
    async with ctx.transaction() as connection:
        await connection.execute(NOTED, [-1])
        if child := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])  # noqa: ASYNC222 - it ends at once
            await connection.execute(NOTED, [code])
        else:
            _leave_child(how)


@queue.task(retry=AT_ONCE)
def fork_and_enqueue_in_transaction(ctx: Context) -> None:
    """Enqueue a job in a child, and in the child's parent undo the transaction."""
    with ctx.transaction():
        if (child := os.fork()) == 0:
            where.using(delay=3600).enqueue()
            os._exit(0)
        os.waitpid(child, 0)
        raise psycopg.Rollback


@queue.batch_task(Item, size=1, retry=AT_ONCE)
def fork_together(batch: Batch[Item]) -> list[int]:
    """As before."""
    return [fork.function("return") for _ in batch]


@queue.task(retry=AT_ONCE, max_attempts=4)
async def exit_in_a_child_task() -> None:
    """End the event loop, as asyncio has it."""
    await asyncio.gather(_exit(), asyncio.sleep(3600))


@queue.task(retry=AT_ONCE)
async def freeze(path: str) -> None:
    """Stop the process, as Ctrl-Z does: no signal but one ends it."""
    _write(path)
    os.kill(os.getpid(), signal.SIGSTOP)


@queue.task(retry=AT_ONCE, timeout=0.3, max_attempts=3)
async def freeze_shortly(path: str) -> None:
    """As before; the time is over soon."""
    await freeze.function(path)


@queue.task(retry=AT_ONCE)
def shout() -> str:
    """Write 4 MB of anything but text to standard output and standard error."""
    noise = bytes(range(256)) * 8_000
    os.write(1, noise)
    os.write(2, noise)
    return "done\n"


@queue.task(retry=AT_ONCE)
def grumble_in_binary() -> None:
    """Raise an error whose message no encoding takes."""
    raise ValueError("\0\ud800" + "x" * 10_000_000)


@queue.task(retry=AT_ONCE)
async def close_everything() -> None:
    """Close what the process has open, and leave it to that."""
    os.closerange(0, 4096)


@queue.task(retry=AT_ONCE)
def answer_for_itself(noise: bytes) -> None:
    """Write to everything that may be the pipe to the worker, and end."""
    numbers = [int(one.name) for one in Path("/proc/self/fd").iterdir()]  # the pipe has the worker's number
    for one in numbers:
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(one).st_mode):
                os.write(one, noise)
    os._exit(0)


@queue.task(retry=AT_ONCE)
async def commit(ctx: Context) -> None:
    """Complete the job in its own transaction, and note."""
    await ctx.acheckpoint(os.getpid())
    async with ctx.transaction() as connection:
        await connection.execute("create table witness as select 1 as it")


@queue.task(retry=AT_ONCE)
async def hang(ctx: Context, path: str) -> None:
    """Report, write the process's id, and never end."""
    ctx.progress(1, 2, "half")
    _write(path)
    await asyncio.sleep(3600)


@queue.task(retry=AT_ONCE)
def hang_plain(path: str) -> None:
    """Write the process's id, and never end, and hold on to everything."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _write(path)
    time.sleep(3600)


@queue.task(retry=AT_ONCE, timeout=0.3, max_attempts=3)
async def hang_shortly(path: str) -> None:
    """Write the process's id; the time is over soon."""
    _write(path)
    await asyncio.sleep(3600)


@queue.task(retry=AT_ONCE, timeout=0.3, max_attempts=3)
def hang_shortly_plain(path: str) -> None:
    """As before, and no signal but one ends it."""
    _write(path)
    threading.Event().wait(3600)


def _leave_child(how: str) -> int:
    if how == "raise":
        raise LookupError("of the child")
    if how == "exit":
        sys.exit(7)
    if how == "exit with words":
        sys.exit("of the child")
    return 0


async def _exit() -> None:
    sys.exit(3)


def _write(path: str) -> None:
    with open(path + ".new", "w", encoding="utf-8") as file:  # noqa: PTH123 - short
        file.write(str(os.getpid()))
    os.replace(path + ".new", path)  # noqa: PTH105 - short
