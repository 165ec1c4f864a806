"""How steps and transactions run on psycopg's connections. :mod:`pgqueue.store.connections.asyncpg` does so for asyncpg's.

psycopg ends a block of ``transaction()`` in silence where the connection was lost in two cases: it cannot roll back, or the
block's own code caught the loss. ``checked`` and ``achecked`` raise an error in both.

Which class is used for a user's connection is decided in :mod:`pgqueue.store.connections.drivers`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Self, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import AsyncTransaction, Rollback, Transaction
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from pgqueue.errors import DatabaseError, SchemaMissing, UnsupportedConnection
from pgqueue.errors import NotGranted as RightMissing
from pgqueue.store.catalogue import Catalogue, missing_grant
from pgqueue.store.connections.adapters import AsyncStepCursor, StepCursor
from pgqueue.store.connections.answering import Answering
from pgqueue.store.plan import Copy, Row, Statement, Step
from pgqueue.values.jobs.options import check_text

T = TypeVar("T")
NOT_THERE = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)
EXPLAINED = (*NOT_THERE, psycopg.errors.InsufficientPrivilege)
# The server no longer runs what it has prepared: the tables were altered, or dropped and made again.
STALE = (psycopg.errors.FeatureNotSupported, psycopg.errors.InternalError_)
# A schema without these was never migrated; without others it is of another release.
FIRST_TABLES = ("alembic_version", "jobs")
# A cursor keeps what it has read in memory until its next statement, which may be long in coming.
FEW = 100
# psycopg sends the transaction's own BEGIN before the first statement, whichever that is.
BEGIN = "select"
# psycopg has the server forget all that is prepared. A transaction that fails is rolled back anyway.
FORGET = "rollback"
# What a session can keep beyond its transactions; not DISCARD ALL, which would forget our prepared statements, too.
CLEAN = "reset session authorization; reset all; discard temp; unlisten *; select pg_catalog.pg_advisory_unlock_all()"


class StepRunner:
    """Runs steps on a psycopg connection, one after the other, on one cursor: to make one costs 10 µs and more."""

    __slots__ = ("_connection", "_cursor", "catalogue")

    def __init__(self, connection: psycopg.Connection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection. Its row factory is not changed."""
        self._connection = connection
        self.catalogue = catalogue
        self._renew_cursor()

    def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql, cursor = self.catalogue[step.name], self._cursor
        try:
            if isinstance(step, Copy):
                _require_no_pipeline(self._connection)
                with cursor.copy(sql) as copy:
                    for chunk in step.chunks:
                        copy.write(chunk)
                return ()
            try:
                cursor.execute(sql, step.params, binary=True)
            except STALE:
                if not _is_idle(self._connection):
                    raise
                self._connection.execute(FORGET)
                cursor.execute(sql, step.params, binary=True)
            return self._rows() if step.returns else ()
        except EXPLAINED as error:
            raise _explained(step, self.catalogue, error) from error
        except (UnicodeEncodeError, psycopg.DataError):
            check_texts(step)
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the user's."""
        if _is_to_begin(self._connection):
            self._connection.execute(BEGIN)
        with checked(self._connection.transaction()):
            yield

    def _rows(self) -> Sequence[Row]:
        rows = self._cursor.fetchall()
        if len(rows) > FEW:
            self._renew_cursor()
        return rows

    def _renew_cursor(self) -> None:
        self._cursor = StepCursor(self._connection, row_factory=tuple_row)


class OwnConnection(Answering, psycopg.Connection[Any]):
    """A connection of ours, which keeps what runs steps on it."""

    _steps: StepRunner | None = None

    @classmethod
    def connect(  # type: ignore[override]  # psycopg names its options, which are passed on
        cls,
        conninfo: str = "",
        *,
        made: list[Self] | None = None,
        **options: Any,  # noqa: ANN401 - psycopg's
    ) -> Self:
        """Connect as psycopg does, or take one of the connections that were made before: a pool's first one was."""
        return _pop(made) or super().connect(conninfo, **options)

    @contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - psycopg's signature
    ) -> Iterator[psycopg.Transaction]:
        """A block of psycopg's, which raises an error wherever the connection is lost."""
        with checked(super().transaction(savepoint_name, force_rollback)) as block:
            yield block

    def clean(self) -> None:
        """Undo what a task did to the session, so that the next user of the connection finds it as new, or close it."""
        try:
            if _is_as_new(self):
                self.row_factory = tuple_row
                self.execute(CLEAN)
            else:
                self.close()
        except psycopg.Error:
            self.close()  # the transaction has ended as it has: this changes nothing of it

    def steps(self, catalogue: Catalogue) -> StepRunner:
        """What runs steps here. One thread or task has the connection at a time."""
        if self._steps is None or self._steps.catalogue is not catalogue:
            self._steps = StepRunner(self, catalogue)
        return self._steps


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status is TransactionStatus.IDLE


def _pop(made: list[T] | None) -> T | None:
    try:
        return made.pop() if made else None
    except IndexError:
        # Another thread of the pool has taken the last one.
        return None


class AsyncStepRunner:
    """Runs steps on a psycopg AsyncConnection as :class:`StepRunner` does."""

    __slots__ = ("_connection", "_cursor", "catalogue")

    def __init__(self, connection: psycopg.AsyncConnection[Any], catalogue: Catalogue) -> None:
        """Wrap a connection. Its row factory is not changed."""
        self._connection = connection
        self.catalogue = catalogue
        self._renew_cursor()

    async def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""
        sql, cursor = self.catalogue[step.name], self._cursor
        try:
            if isinstance(step, Copy):
                _require_no_pipeline(self._connection)
                async with cursor.copy(sql) as copy:
                    for chunk in step.chunks:
                        await copy.write(chunk)
                return ()
            try:
                await cursor.execute(sql, step.params, binary=True)
            except STALE:
                if not _is_idle(self._connection):
                    raise
                await self._connection.execute(FORGET)
                await cursor.execute(sql, step.params, binary=True)
            return await self._rows() if step.returns else ()
        except EXPLAINED as error:
            raise _explained(step, self.catalogue, error) from error
        except (UnicodeEncodeError, psycopg.DataError):
            check_texts(step)
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the user's."""
        if _is_to_begin(self._connection):
            await self._connection.execute(BEGIN)
        async with achecked(self._connection.transaction()):
            yield

    async def _rows(self) -> Sequence[Row]:
        rows = await self._cursor.fetchall()
        if len(rows) > FEW:
            self._renew_cursor()
        return rows

    def _renew_cursor(self) -> None:
        self._cursor = AsyncStepCursor(self._connection, row_factory=tuple_row)


class OwnAsyncConnection(Answering, psycopg.AsyncConnection[Any]):
    """An awaitable connection of ours, which keeps what runs steps on it."""

    _steps: AsyncStepRunner | None = None

    @classmethod
    async def connect(  # type: ignore[override]  # as there
        cls,
        conninfo: str = "",
        *,
        made: list[Self] | None = None,
        opened: WeakSet[Self] | None = None,
        **options: Any,  # noqa: ANN401 - psycopg's
    ) -> Self:
        """As :meth:`OwnConnection.connect`, awaited; the connection is added to ``opened``."""
        connection = _pop(made) or await super().connect(conninfo, **options)
        if opened is not None:
            opened.add(connection)
        return connection

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - psycopg's signature
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """As :meth:`OwnConnection.transaction`, awaited."""
        async with achecked(super().transaction(savepoint_name, force_rollback)) as block:
            yield block

    async def clean(self) -> None:
        """Undo what a task did to the session; see :meth:`OwnConnection.clean`."""
        try:
            if _is_as_new(self):
                self.row_factory = tuple_row
                await self.execute(CLEAN)
            else:
                await self.close()
        except psycopg.Error:
            await self.close()  # the transaction has ended as it has: this changes nothing of it
        except asyncio.CancelledError:
            await self.close()
            raise

    def steps(self, catalogue: Catalogue) -> AsyncStepRunner:
        """What runs steps here. One thread or task has the connection at a time."""
        if self._steps is None or self._steps.catalogue is not catalogue:
            self._steps = AsyncStepRunner(self, catalogue)
        return self._steps


class NotGranted(RightMissing, psycopg.errors.InsufficientPrivilege):
    """As both: a worker treats it as each error of the server, and an app as each error of pgqueue."""


def _explained(step: Step, catalogue: Catalogue, error: psycopg.Error) -> DatabaseError:
    return explained(step, catalogue, error.sqlstate, error.diag.message_primary, error.diag.message_hint)


def explained(
    step: Step, catalogue: Catalogue, sqlstate: str | None, reason: str | None, hint: str | None
) -> DatabaseError:
    """What to raise when the server says that something of ours is not there, or not for the connection's role."""
    if sqlstate != psycopg.errors.InsufficientPrivilege.sqlstate:
        return _schema_missing(catalogue, sqlstate, reason)
    # Only our own triggers and functions give a hint.
    return NotGranted(f"{reason}: {hint or missing_grant(step.name)}")


def _schema_missing(catalogue: Catalogue, sqlstate: str | None, reason: str | None) -> SchemaMissing:
    first = any(f"{catalogue.schema}.{name}" in (reason or "") for name in FIRST_TABLES)
    if first or sqlstate == psycopg.errors.InvalidSchemaName.sqlstate:
        return SchemaMissing(f'schema "{catalogue.schema}" has no tables yet; {catalogue.migrate_hint}')
    return SchemaMissing(f'schema "{catalogue.schema}" is not complete ({reason}); {catalogue.migrate_hint}')


def _is_as_new(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether nothing is left of a transaction, so that resetting the session's settings is enough."""
    return not connection.closed and connection.autocommit and _is_idle(connection)


def check_texts(step: Step) -> None:
    """Refuse the text that PostgreSQL cannot hold, if one is why a step could not be sent.

    Raises:
        InvalidOption: it has NUL or half a surrogate pair in it.
    """
    if isinstance(step, Statement):
        for name, value in step.params.items():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    check_text(name, text)


def _require_no_pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise UnsupportedConnection(
            "the connection is in psycopg's pipeline mode, in which the server takes no COPY: "
            "leave connection.pipeline() before you enqueue many jobs at once"
        )


def _is_to_begin(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the user's transaction would begin with the next statement.

    Were that psycopg's ``transaction()`` block, the block would commit it, too, and not the user.
    """
    return not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


NOT_COMMITTED = "the connection was lost before the commit: nothing was committed"
NOT_ROLLED_BACK = "the connection was lost before the rollback: nothing was committed"


@contextmanager
def checked(block: AbstractContextManager[Transaction]) -> Iterator[Transaction]:
    """A block of psycopg's, which commits, or rolls back, or raises an error.

    Raises:
        psycopg.OperationalError: the connection was lost before the COMMIT or the ROLLBACK; nothing was committed.
    """
    try:
        with block as transaction:
            yield transaction
    except Rollback as error:
        _require_for_another(error, transaction)
        raise
    _require_committed(transaction)


@asynccontextmanager
async def achecked(block: AbstractAsyncContextManager[AsyncTransaction]) -> AsyncIterator[AsyncTransaction]:
    """As :func:`checked`, for an awaitable connection."""
    try:
        async with block as transaction:
            yield transaction
    except Rollback as error:
        _require_for_another(error, transaction)
        raise
    _require_committed(transaction)


def _require_for_another(error: Rollback, transaction: Transaction | AsyncTransaction) -> None:
    """A Rollback may leave a block only on its way to the block that it names."""
    if error.transaction is None or error.transaction is transaction:
        raise psycopg.OperationalError(NOT_ROLLED_BACK) from error


def _require_committed(transaction: Transaction | AsyncTransaction) -> None:
    if transaction.status is transaction.Status.FAILED and not transaction.force_rollback:
        raise psycopg.OperationalError(NOT_COMMITTED)
