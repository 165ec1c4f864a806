"""A small blocking driver on libpq alone: what it takes to add one, and a row of the conformance suite.

:class:`Connection` is the driver, as another author would have written it; it knows nothing of pgqueue. :class:`Libpq`
runs steps on it. ``opened`` gives it a row in :data:`pgqueue.store.connections.drivers.DRIVERS` for as long as a test takes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, PGconn, TransactionStatus

from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.asyncpg import EXPLAINED_STATES, as_text, rewritten
from pgqueue.store.connections.connection import explained
from pgqueue.store.connections.drivers import DRIVERS, Driver
from pgqueue.store.plan import Copy, Row, Step

GOOD = {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.COPY_IN}


class Refused(Exception):
    """The server refused a statement."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Connection:
    """The driver: statements with numbered parameters in text, and COPY."""

    def __init__(self, dsn: str) -> None:
        self._libpq = PGconn.connect(dsn.encode())
        self.query("set timezone = 'UTC'")

    def query(self, sql: str, *params: str | None) -> list[Row]:
        sent = [None if one is None else one.encode() for one in params]
        result = self._libpq.exec_params(sql.encode(), sent)
        self._require_good(result)
        rows = Transformer()
        rows.set_pgresult(result)
        return rows.load_rows(0, result.ntuples, tuple)

    def copy(self, sql: bytes, chunks: Iterable[bytes]) -> None:
        self._require_good(self._libpq.exec_(sql))
        for chunk in chunks:
            self._libpq.put_copy_data(chunk)
        self._libpq.put_copy_end()
        while (result := self._libpq.get_result()) is not None:
            self._require_good(result)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        return bool(self._libpq.transaction_status != TransactionStatus.IDLE)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        begin, undo, end = (
            ("savepoint s", "rollback to s", "release s")
            if self.in_transaction
            else ("begin", "rollback", "commit")
        )
        self.query(begin)
        try:
            yield
        except BaseException:
            self.query(undo)
            raise
        self.query(end)

    def close(self) -> None:
        self._libpq.finish()

    def _require_good(self, result: Any) -> None:
        if result.status not in GOOD:
            state = result.error_field(ord("C")) or b""
            raise Refused(state.decode(), result.error_message.decode())


class Libpq:
    """Runs steps on it: all that a new blocking driver needs of pgqueue, with its row in ``DRIVERS``."""

    def __init__(self, connection: Connection, catalogue: Catalogue) -> None:
        self._connection = connection
        self._catalogue = catalogue

    def execute(self, step: Step, /) -> Sequence[Row]:
        sql = self._catalogue[step.name]
        try:
            if isinstance(step, Copy):
                self._connection.copy(sql, step.chunks)
                return ()
            query, names = rewritten(sql)
            rows = self._connection.query(query, *(as_text(step.params[name]) for name in names))
        except Refused as error:
            if error.sqlstate in EXPLAINED_STATES:
                raise explained(step, self._catalogue, error.sqlstate, str(error).strip(), None) from error
            raise
        return rows if step.returns else ()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The steps within are done all or none."""
        with self._connection.transaction():
            yield


@contextmanager
def opened(dsn: str) -> Iterator[Connection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DRIVERS, "store.libpq.Connection", Driver(Libpq))
        connection = Connection(dsn)
        try:
            yield connection
        finally:
            connection.close()
