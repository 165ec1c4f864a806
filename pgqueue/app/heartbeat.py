"""A take's heartbeat: a thread that renews its lease, and the limits on how long a connection may be silent.

The thread has a connection of its own, opened at the first beat: the take's own may wait for a row lock while the
lease runs out. It is a thread for ``atake`` too, since the user's code may block the event loop.

What becomes of a lost lease is decided in :mod:`pgqueue.app.hold`.
"""

import logging
import math
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue.errors import PgQueueError
from pgqueue.store import claim
from pgqueue.store.database import Database
from pgqueue.store.plan import run

if TYPE_CHECKING:
    from pgqueue.store.connection import OwnConnection

SHORTEST_LIMIT = 1.0
LONGEST_JOIN = 1.0

log = logging.getLogger("pgqueue.take")


class Heartbeat:
    """Renews a lease every third of it until it is stopped, or the lease is lost."""

    def __init__(
        self,
        database: Database,
        worker: UUID,
        lease: timedelta,
        on_lost: Callable[[], None],
        *,
        held: Callable[[], Sequence[int]],
        on_cancel: Callable[[Sequence[int]], object],
    ) -> None:
        """Nothing happens until :meth:`start`.

        Args:
            database: where the lease is.
            worker: whose lease it is.
            lease: for how long to renew it.
            on_lost: called in the heartbeat's thread when the database says that the lease is lost.
            held: the jobs that the take holds.
            on_cancel: told in the heartbeat's thread which of them somebody asked to cancel.
        """
        self._database = database
        self._worker = worker
        self._lease = lease
        self._on_lost = on_lost
        self._held = held
        self._on_cancel = on_cancel
        self._limit = max(SHORTEST_LIMIT, lease.total_seconds() / 6)
        self._stopping = threading.Event()
        self._dsn = ""
        self._connection: OwnConnection | None = None
        self._thread = threading.Thread(target=self._run, name="pgqueue-take", daemon=True)

    def start(self) -> None:
        """Begin; the first beat comes after a third of the lease."""
        patience = max(2, math.ceil(self._limit))  # libpq takes whole seconds, two at least
        self._dsn = make_conninfo(self._database.dsn, connect_timeout=patience)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more. A beat that waits for an answer is cut off."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            cut_off(connection)
        if self._thread.is_alive():
            self._thread.join(LONGEST_JOIN)

    def _run(self) -> None:
        beat = self._lease.total_seconds() / 3
        pause = beat
        try:
            while not self._stopping.wait(pause):
                pause = beat if self._beat() else beat / 4
        finally:
            self._close()

    def _beat(self) -> bool:
        """Renew the lease once; False: try again soon."""
        try:
            kept = self._renewed()
        except (psycopg.Error, PgQueueError) as error:
            self._close()
            if not self._stopping.is_set():
                log.warning("lease not renewed; the next beat uses a new connection", exc_info=error)
            return False
        if not kept and not self._stopping.is_set():
            self._stopping.set()
            self._on_lost()
        return True

    def _renewed(self) -> bool:
        connection = self._connection = self._connection or self._database.connect(self._dsn)
        with within(self._limit, connection):
            steps = connection.steps(self._database.catalogue)
            if not run(claim.renew(self._worker, self._lease), steps):
                return False
            if held := self._held():
                self._on_cancel(run(claim.cancel_requests(self._worker, held), steps))
        return True

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def within(seconds: float, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Cut a connection off if what is done on it in this block takes longer than ``seconds``."""
    watch = threading.Timer(seconds, cut_off, [connection])
    watch.name, watch.daemon = "pgqueue-take-limit", True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        watch.join()  # it must not come too late, when the socket's number may be another connection's


def cut_off(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """End a wait for an answer: it fails as if the server had closed the connection. From any thread."""
    with (
        suppress(psycopg.Error, OSError),
        socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)
