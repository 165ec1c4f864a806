"""Running the command in tests: in this process for its words, as a process of its own for its signals."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from click.testing import CliRunner, Result
from programs import Program

from pgqueue.cli.main import main

SHOP = """
import asyncio
from datetime import datetime
from pathlib import Path

from pgqueue import Context, PgQueue

queue = PgQueue()
declared = PgQueue(queues=["mail", "default"])
not_a_queue = 42

@queue.task(queue="mail")
async def send(order_id: int, at: datetime | None = None) -> str:
    return f"sent {order_id}"

@queue.task
async def wait_for_ever(ctx: Context) -> None:
    ctx.logger.info("begun")
    await asyncio.Event().wait()

@queue.task
def read_pipe(ctx: Context, path: str) -> None:
    ctx.logger.info("begun")
    Path(path).read_bytes()

@queue.task(max_attempts=1)
async def leave() -> None:
    await asyncio.gather(asyncio.sleep(3600), asyncio.create_task(leave_at_once()))

async def leave_at_once() -> None:
    raise SystemExit(3)

@queue.task
async def refuse_to_stop(ctx: Context) -> None:
    ctx.logger.info("begun")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


def pgqueue(*words: str, dsn: str | None = None, answer: str | None = None, **env: str) -> Result:
    """Run the command here; ``dsn`` None: nothing says where the database is."""
    names = dict.fromkeys(("PGQUEUE_DSN", "DATABASE_URL", "PGQUEUE_APP")) | {"PGQUEUE_DSN": dsn} | env
    return CliRunner().invoke(main, list(words), env=names, input=answer, catch_exceptions=False)


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def cells(result: Result) -> list[list[str]]:
    """The words of the table it printed, without the heads."""
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()[1:]]


def only_row(dsn: str, query: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        (row,) = connection.execute(query.encode()).fetchall()
        return tuple(row)


class Process:
    """The command as a process of its own; its log can be waited for."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen
        self.pid = popen.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def until(self, words: str) -> str:
        """Read the log up to a line with these words in it, and return the line."""
        assert self._popen.stderr is not None
        seen = []
        for line in self._popen.stderr:
            if words in line:
                return line
            seen.append(line)
        raise AssertionError(f"{words!r} was never logged:\n{''.join(seen)}")

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def rest(self) -> str:
        """What else it logs until it ends."""
        assert self._popen.stderr is not None
        return self._popen.stderr.read()

    def code(self, *, within: float) -> int:
        """Wait for the end without reading the log; its exit code."""
        return self._popen.wait(within)

    def ended(self) -> int:
        """Wait for the end; its exit code."""
        self.rest()
        return self._popen.wait()


@contextmanager
def started(
    *words: str, dsn: str, folder: Path, stderr: int = subprocess.PIPE, app: str = SHOP
) -> Iterator[Process]:
    """Start the command in a folder where ``shop.py`` is the app; it is ended with the block."""
    command = ["-m", "pgqueue", "--app", "shop:queue", *words]
    env = os.environ | {"PGQUEUE_DSN": dsn}
    (folder / "shop.py").write_text(app)
    with Program(command, cwd=folder, env=env, stderr=stderr) as popen:
        try:
            yield Process(popen)
        finally:
            popen.kill()
