"""How steps run on asyncpg's connections, a pool's and SQLAlchemy's included. asyncpg itself is not imported here.

The statements of ``sql/`` are written once for all drivers and rewritten here once a process: ``%(name)s::type``
becomes ``$1::text::type``. Each parameter travels as text, as PostgreSQL itself would write it, and the cast in the
statement makes of it what it is to be. What comes back is of types that asyncpg and psycopg read in the same way; JSON,
which they do not, is cast to text, by the statement or here. Codecs that the user has set for a type are not used.
"""

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from pgqueue.store.arrays import texts
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.connection import EXPLAINED, check_texts, explained
from pgqueue.store.plan import Copy, Row, Step

EXPLAINED_STATES = frozenset(error.sqlstate for error in EXPLAINED)
SAVEPOINT = "pgqueue_whole"
_PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|%)")
_JSON = "::pg_catalog.json"
"""In a statement: the JSON comes as its text, and the server need not make a text of it."""
_COPY = re.compile(r"copy (\w+)\.(\w+) \((\w+(?:, \w+)*)\) from stdin with \(encoding 'utf8'\)")


class AsyncpgConnection(Protocol):
    """What is used of an asyncpg ``Connection``, or of what a pool lends in its place."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction has begun, by a block or by a statement."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction as a block."""

    async def execute(self, query: str, /) -> str:
        """Run a statement that returns nothing."""

    async def copy_to_table(
        self,
        table_name: str,
        /,
        *,
        schema_name: str,
        columns: Sequence[str],
        source: AsyncIterable[bytes],
        format: str,  # noqa: A002 - asyncpg's own name
        encoding: str,
    ) -> str:
        """Send rows with COPY."""


class AsyncpgStepRunner:
    """Runs steps on an asyncpg connection."""

    __slots__ = ("_catalogue", "_connection")

    def __init__(self, connection: AsyncpgConnection, catalogue: Catalogue) -> None:
        """Wrap a connection. Its codecs and its statement cache are not changed."""
        self._connection = connection
        self._catalogue = catalogue

    async def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql = self._catalogue[step.name]
        try:
            if isinstance(step, Copy):
                await self._copy(copy_target(sql), step.chunks)
                return ()
            query, names = rewritten(sql)
            rows = await _fetch(self._connection, query, _in_order(names, step.params))
            return [tuple(row) for row in rows] if step.returns else ()
        except Exception as error:
            check_texts(step)
            if (state := getattr(error, "sqlstate", None)) in EXPLAINED_STATES:
                reason, hint = getattr(error, "message", None), getattr(error, "hint", None)
                raise explained(step, self._catalogue, state, reason, hint) from error
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the user's.

        The savepoint is not asyncpg's own block, which refuses a transaction that was begun by a statement.
        """
        if not self._connection.is_in_transaction():
            async with self._connection.transaction():
                yield
            return
        await self._connection.execute(f"savepoint {SAVEPOINT}")
        try:
            yield
        except (Exception, asyncio.CancelledError):
            with suppress(
                Exception
            ):  # the connection may be lost; what ended the block is what the caller has to know
                await self._connection.execute(f"rollback to {SAVEPOINT}; release {SAVEPOINT}")
            raise
        await self._connection.execute(f"release {SAVEPOINT}")

    async def _copy(self, target: "CopyTarget", chunks: Iterable[bytes]) -> None:
        await self._connection.copy_to_table(
            target.table,
            schema_name=target.schema,
            columns=target.columns,
            source=_awaitable(chunks),
            format="text",
            encoding="utf8",
        )


async def _fetch(
    connection: AsyncpgConnection, query: str, params: Sequence[str | None]
) -> Sequence[Iterable[object]]:
    """As the connection's ``fetch``, without the codecs of the user's. asyncpg can do so and offers no public way."""
    private: Any = connection
    rows: Sequence[Iterable[object]] = await private._execute(  # noqa: SLF001 - see above
        query, params, 0, None, ignore_custom_codec=True
    )
    return rows


@cache
def rewritten(sql: bytes) -> tuple[str, tuple[str, ...]]:
    """A statement as asyncpg takes it, and which parameter is which: ``$1``, ``$2``, …."""
    names: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        name = found[1]
        return "%" if name is None else names.setdefault(name, f"${len(names) + 1}::text")

    return _PLACEHOLDER.sub(numbered, sql.decode()).replace(_JSON, "::text"), tuple(names)


class CopyTarget(NamedTuple):
    """Where rows are copied to."""

    schema: str
    table: str
    columns: Sequence[str]


@cache
def copy_target(sql: bytes) -> CopyTarget:
    """What a COPY statement names; asyncpg takes no COPY as it is written.

    Raises:
        ValueError: it says more than that, which would be lost.
    """
    found = _COPY.fullmatch(sql.decode())
    if found is None:
        raise ValueError(
            f"{sql.decode()!r}: write copy schema.table (columns) from stdin with (encoding 'utf8')"
        )
    return CopyTarget(found[1], found[2], found[3].split(", "))


def as_text(value: object) -> str | None:
    """A parameter in PostgreSQL's own spelling.

    Raises:
        TypeError: there is none for it.
    """
    if value is None or isinstance(value, str):
        return value
    for kind, spelling in SPELLINGS:
        if isinstance(value, kind):
            return spelling(value)
    raise TypeError(f"{value!r}: a parameter of type {type(value).__name__} cannot be sent to asyncpg")


SPELLINGS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (int, str),  # and bool: PostgreSQL reads True
    (float, str),
    (UUID, str),
    (datetime, datetime.isoformat),
    (timedelta, lambda value: f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"),
    (list, lambda values: texts(map(as_text, values))),
)


def _in_order(names: Iterable[str], params: Mapping[str, object]) -> list[str | None]:
    return [as_text(params[name]) for name in names]


async def _awaitable(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
