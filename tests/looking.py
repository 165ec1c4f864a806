"""Looking at a database from outside, and waiting for what is to be seen there."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, LiteralString

import psycopg
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pgqueue import PgQueue

PAUSE = 0.01
"""Seconds between two looks."""
GUARD = 60.0
"""Seconds after which a wait fails; it only keeps a failing test from hanging."""


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
    with _connected(where) as connection:
        cursor = connection.execute(statement, params or named or None)
        return cursor.fetchall() if cursor.description else []


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    retrying = Retrying(
        retry=retry_if_result(lambda held: not held), wait=wait_fixed(PAUSE), stop=stop_after_delay(GUARD)
    )
    retrying(holds)


async def until(holds: Callable[[], object], *, guard: float = GUARD) -> None:
    """Wait until a condition holds, while the event loop turns."""
    async with asyncio.timeout(guard):
        while not holds():  # noqa: ASYNC110 - the database raises no events
            await asyncio.sleep(PAUSE)


def _connected(where: PgQueue | str) -> AbstractContextManager[psycopg.Connection[Any]]:
    if isinstance(where, PgQueue):
        return where.database.pooled()
    return psycopg.connect(where, autocommit=True)
