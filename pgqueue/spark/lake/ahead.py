"""Reads small days in threads, before their turn: while one is sent by the database, another one is written or compared."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")

DAYS = 2
"""How many days are read at the same time. The result of one more may be kept in memory."""


@contextmanager
def ahead(
    read: Callable[[K], T], wanted: Iterable[K], interrupt: Callable[[], object] = lambda: None
) -> Iterator[Iterator[tuple[K, Callable[[], T]]]]:
    """Yields what was wanted, in order, each with what returns its result or raises its error.

    If the block raises, reads that have not begun are left out, and those that have begun are waited for.

    Args:
        read: is called in a thread.
        wanted: what it is called with, once for each.
        interrupt: makes running reads end; it is called if the block raises.
    """
    with ThreadPoolExecutor(DAYS, thread_name_prefix="pgqueue-ahead") as threads:
        try:
            yield _in_turn(threads, read, iter(wanted))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            interrupt()
            raise


def _in_turn(
    threads: ThreadPoolExecutor, read: Callable[[K], T], rest: Iterator[K]
) -> Iterator[tuple[K, Callable[[], T]]]:
    begun: deque[tuple[K, Future[T]]] = deque()
    while True:
        begun.extend((one, threads.submit(read, one)) for one in islice(rest, DAYS + 1 - len(begun)))
        if not begun:
            return
        one, reading = begun.popleft()
        yield one, reading.result
