"""Reads small days in threads, before their turn: while one is sent by the database, another one is written or compared.

The main thread can end the plans that threads run: an interrupt of the user reaches no other thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import psycopg

from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import failure
from pgqueue.store.plan import Plan, run

if TYPE_CHECKING:
    from pgqueue.store.connections.connection import OwnConnection

K = TypeVar("K")
T = TypeVar("T")

DAYS = 2
"""How many days are read at the same time. The result of one more may be kept in memory."""
INTERRUPT_EVERY = 0.2
"""Seconds."""


@contextmanager
def ahead(
    read: Callable[[K], T], wanted: Iterable[K], interrupt: Callable[[], object] = lambda: None
) -> Iterator[Iterator[tuple[K, Callable[[], T]]]]:
    """Yields what was wanted, in order, each with what returns its result or raises its error.

    If the block raises, reads that have not begun are left out, and those that have begun are interrupted.

    Args:
        read: is called in a thread.
        wanted: what it is called with, once for each.
        interrupt: makes running reads fail. It is called again until they have ended: a read may have been between two
            statements.
    """
    begun: deque[tuple[K, Future[T]]] = deque()
    with ThreadPoolExecutor(DAYS, thread_name_prefix="pgqueue-ahead") as threads:
        try:
            yield _in_turn(threads, read, iter(wanted), begun)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            _end([reading for _, reading in begun], interrupt)
            raise


def _end(reads: Sequence[Future[T]], interrupt: Callable[[], object]) -> None:
    """Interrupt reads until they have ended, however often the user presses Ctrl-C meanwhile."""
    while not all(reading.done() for reading in reads):
        with suppress(KeyboardInterrupt):
            interrupt()
            wait(reads, INTERRUPT_EVERY)


def _result(reading: Future[T]) -> T:
    """What a read has returned, when it has ended.

    The system may hand a Ctrl-C to any thread, and Python raises it in this one when a wait of it ends. So each wait is short.
    """
    while not wait([reading], INTERRUPT_EVERY).done:
        pass
    return reading.result()


def _in_turn(
    threads: ThreadPoolExecutor,
    read: Callable[[K], T],
    rest: Iterator[K],
    begun: deque[tuple[K, Future[T]]],
) -> Iterator[tuple[K, Callable[[], T]]]:
    while True:
        for one in islice(rest, DAYS + 1 - len(begun)):
            begun.append((one, threads.submit(read, one)))
        if not begun:
            return
        one, reading = begun[0]
        yield one, partial(_result, reading)
        begun.popleft()


class ThreadedDatabase:
    """A database as several threads use it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: set[OwnConnection] = set()

    def run(self, plan: Plan[T]) -> T:
        """Run a plan on a connection of its own: those of the pool are the caller's, who may keep few.

        Raises:
            DatabaseError: as :meth:`Database.run`, or it was interrupted.
        """
        with closing(self._database.connect()) as connection:
            self._asked.add(connection)
            try:
                return run(plan, connection.steps(self._database.catalogue))
            except psycopg.OperationalError as error:
                raise failure(error) from error
            finally:
                self._asked.discard(connection)

    def interrupt(self) -> None:
        """Have the statements fail that threads wait for."""
        for connection in tuple(self._asked):
            with suppress(psycopg.Error):  # what waits on a lost connection fails by itself
                connection.cancel_safe()
