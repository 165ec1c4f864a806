"""Reads small days in threads, before their turn: while one is sent by the database, another one is written or compared."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

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
            yield _in_turn(lambda one: (one, threads.submit(read, one)), iter(wanted), begun)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            while any(not reading.done() for _, reading in begun):
                interrupt()
                wait([reading for _, reading in begun], INTERRUPT_EVERY)
            raise


def _in_turn(
    begin: Callable[[K], tuple[K, Future[T]]], rest: Iterator[K], begun: deque[tuple[K, Future[T]]]
) -> Iterator[tuple[K, Callable[[], T]]]:
    while True:
        begun.extend(map(begin, islice(rest, DAYS + 1 - len(begun))))
        if not begun:
            return
        one, reading = begun[0]
        yield one, reading.result
        begun.popleft()
