"""A block of psycopg's ``transaction()`` that raises an error wherever its connection is lost.

psycopg is silent in two cases. Where it cannot roll back, a Rollback leaves the block as it is, although it should end in
the block. And a block without an error ends without one even if its connection was closed before the COMMIT.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)

import psycopg
from psycopg import AsyncTransaction, Rollback, Transaction

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
