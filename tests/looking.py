"""Looking at a database from outside, and waiting for what is to be seen there."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, LiteralString

import psycopg
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pgqueue import PgQueue

PAUSE = 0.01
"""Seconds between two looks."""
GUARD = 60.0
"""Seconds after which a wait fails; it only keeps a failing test from hanging."""
_kept: ContextVar[dict[str, psycopg.Connection[Any]] | None] = ContextVar("kept", default=None)
"""During a wait, its connections by DSN: a new one for each look costs the server 5 ms of CPU."""


def ask(
    where: PgQueue | str, statement: LiteralString, *params: object, **named: object
) -> list[tuple[Any, ...]]:
    """Run a statement, committed at once, and return its rows, if it has any.

    Args:
        where: a queue, or the DSN of its database.
        statement: what to run.
        params: of the statement, by place.
        named: of the statement, by name.
    """
    try:
        return _asked(where, statement, params or named or None)
    except psycopg.OperationalError:
        kept = _kept.get() or {}
        if isinstance(where, PgQueue) or where not in kept or not kept[where].closed:
            raise
        # The server has closed the connection that was kept.
        return _asked(where, statement, params or named or None)


def wait_until(holds: Callable[[], object]) -> None:
    retrying = Retrying(
        retry=retry_if_result(lambda held: not held), wait=wait_fixed(PAUSE), stop=stop_after_delay(GUARD)
    )
    with _connections_kept():
        retrying(holds)


async def until(holds: Callable[[], object], *, guard: float = GUARD) -> None:
    """Wait until a condition holds, while the event loop turns."""
    with _connections_kept():
        await _until(holds, guard)


async def _until(holds: Callable[[], object], guard: float) -> None:
    async with asyncio.timeout(guard):
        while not holds():  # noqa: ASYNC110 - the database raises no events
            await asyncio.sleep(PAUSE)


def _asked(where: PgQueue | str, statement: LiteralString, params: Any) -> list[tuple[Any, ...]]:
    with _connected(where) as connection:
        cursor = connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def _connected(where: PgQueue | str) -> AbstractContextManager[psycopg.Connection[Any]]:
    if isinstance(where, PgQueue):
        return where.database.pooled()
    kept = _kept.get()
    if kept is None:
        return psycopg.connect(where, autocommit=True)
    if where not in kept or kept[where].closed:
        kept[where] = psycopg.connect(where, autocommit=True, prepare_threshold=None)
    return nullcontext(kept[where])


@contextmanager
def _connections_kept() -> Iterator[None]:
    kept: dict[str, psycopg.Connection[Any]] = {}
    before = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(before)
        for connection in kept.values():
            connection.close()


def calls_while(work: Callable[[], object]) -> int:
    """How many calls of Python and of C this thread makes in that time."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
