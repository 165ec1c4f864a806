"""A take's heartbeat: a thread that renews its lease, learns which jobs are to be cancelled, and writes their progress.

The thread has a connection of its own, opened when it first asks: the take's own may wait for a row lock while the
lease runs out. It is a thread for ``atake``, too, because the user's code may block the event loop.

What becomes of a lost lease is decided in :mod:`pgqueue.app.takes.base`.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue.app.logger import bounded_logger
from pgqueue.app.notes import Board
from pgqueue.errors import PgQueueError
from pgqueue.store.connections.answering import cut_off, within
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.session import OWN
from pgqueue.store.jobs import notes
from pgqueue.store.plan import Plan, run
from pgqueue.store.workers import leases
from pgqueue.values.workers.lease import CANCEL_EVERY, renew_every

if TYPE_CHECKING:
    from pgqueue.store.connections.connection import OwnConnection

T = TypeVar("T")

SHORTEST_LIMIT = 1.0
LONGEST_JOIN = 1.0

log = bounded_logger("pgqueue.take")


class TakeHeartbeat:
    """Renews a lease every third of it, and asks for jobs to cancel, until it is stopped or the lease is lost."""

    def __init__(
        self,
        database: Database,
        worker: UUID,
        lease: timedelta,
        on_lost: Callable[[], None],
        *,
        held: Callable[[], Sequence[int]],
        on_cancel: Callable[[Sequence[int]], object],
        board: Board,
    ) -> None:
        """Nothing happens until :meth:`start`. ``on_lost`` and ``on_cancel`` are called in the heartbeat's thread."""
        self._database = database
        self._worker = worker
        self._lease = lease
        self._on_lost = on_lost
        self._held = held
        self._on_cancel = on_cancel
        self._board = board
        self._limit = max(SHORTEST_LIMIT, lease.total_seconds() / 6)
        self._stopping = threading.Event()
        self._dsn = ""
        self._connection: OwnConnection | None = None
        self._thread = threading.Thread(target=self._run, name="pgqueue-take", daemon=True)

    def start(self) -> None:
        """Begin; the first question comes after 0.8 s, the first renewal after a third of the lease."""
        timeout = max(2, math.ceil(self._limit))  # libpq takes whole seconds, two at least
        self._dsn = make_conninfo(self._database.dsn, connect_timeout=timeout)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more. A beat that waits for an answer is cut off."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            cut_off(connection)
        if self._thread.is_alive():
            self._thread.join(LONGEST_JOIN)

    def _run(self) -> None:
        every = renew_every(self._lease)
        due = time.monotonic() + every
        try:
            while not self._stopping.wait(max(0.0, min(CANCEL_EVERY, due - time.monotonic()))):
                if time.monotonic() < due:
                    self._ask()
                else:
                    due = time.monotonic() + (every if self._beat() else every / 4)
        finally:
            self._close()

    def _beat(self) -> bool:
        """Renew the lease once; return False to try again soon."""
        try:
            kept = self._answer(leases.renew(self._worker, self._lease)) is not None
        except (psycopg.Error, PgQueueError) as error:
            self._give_up_connection("lease not renewed", error)
            return False
        if not kept and not self._stopping.is_set():
            self._stopping.set()
            self._on_lost()
        if kept:
            self._ask()
        return True

    def _ask(self) -> None:
        """Read which of the jobs are to be cancelled, and write their progress."""
        if not (held := self._held()):
            return
        try:
            self._on_cancel(self._answer(leases.cancel_requests(self._worker, held)))
            with self._board.writing() as reports:
                if reports:
                    self._answer(notes.report(reports))
        except (psycopg.Error, PgQueueError) as error:
            self._give_up_connection("a take could not ask which of its jobs are to be cancelled", error)

    def _give_up_connection(self, what: str, error: Exception) -> None:
        self._close()
        if not self._stopping.is_set():
            log.warning("%s; the next beat uses a new connection", what, exc_info=error)

    def _answer(self, plan: Plan[T]) -> T:
        connection = self._connection = self._connection or self._database.connect(self._dsn, settings=OWN)
        with within(self._limit, connection):
            return run(plan, connection.steps(self._database.catalogue))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
