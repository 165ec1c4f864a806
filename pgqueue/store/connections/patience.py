"""How long a caller waits for the database, where it does not wait as long as the pools say.

A server that is stopped, and a pooler in front of one that is away, keep a connection and do not answer: to TCP it is alive.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgqueue.errors import ConnectionFailed
from pgqueue.store.connections.connection import OwnAsyncConnection, OwnConnection
from pgqueue.store.connections.dsn import LEAST_PATIENCE, hosts_of
from pgqueue.store.connections.session import cut_off

ANSWER_WITHIN = 5.0
"""Seconds that the database has beyond the end of a caller's wait, to answer what was asked before."""
LONGEST = 1e6
"""Seconds. Who waits for longer waits without an end, since locks have no longer timeouts."""


class Patience(NamedTuple):
    """How long a caller waits, in seconds.

    Attributes:
        connection: for a connection.
        answer: for the answer to one plan.
        altogether: for all that it asks.
    """

    connection: float
    answer: float
    altogether: float = inf


class _Waiting(NamedTuple):
    """A caller's patience, and when it ends, by the monotonic clock."""

    patience: Patience
    until: float

    def left(self, most: float) -> float:
        """This number of seconds, or fewer if the caller waits for less."""
        return max(0.0, min(most, self.until - monotonic()))


_waiting: ContextVar[_Waiting | None] = ContextVar("pgqueue_waiting", default=None)


@contextmanager
def waiting_at_most(patience: Patience) -> Iterator[None]:
    """Within this block no call waits longer, however long the pool's other callers may wait."""
    before = _waiting.set(_Waiting(patience, monotonic() + patience.altogether))
    try:
        yield
    finally:
        _waiting.reset(before)


@contextmanager
def answered_by(end: float, spare: float = ANSWER_WITHIN) -> Iterator[None]:
    """Within this block the database has to answer until an instant of the monotonic clock, and ``spare`` seconds more.

    It bounds what blocks and what is awaited.

    Raises:
        TimeoutError: it has not answered; the message says so.
    """
    begun = monotonic()
    within = max(0.0, end - begun) + spare
    if within > LONGEST:
        yield
        return
    try:
        with waiting_at_most(Patience(within, within, altogether=within)):
            yield
    except (ConnectionFailed, psycopg.OperationalError) as error:
        if monotonic() < begun + within:
            raise
        raise TimeoutError(f"the database has not answered for {spare:g} s") from error


def cut_in_time(connection: OwnConnection | OwnAsyncConnection) -> Callable[[], object]:
    """Have a connection cut that does not answer in time, if the caller does not wait without an end; the function returned calls it off."""
    if (waiting := _waiting.get()) is None:
        return _nothing
    left = waiting.left(waiting.patience.answer)
    if isinstance(connection, OwnAsyncConnection):
        return asyncio.get_running_loop().call_later(left, cut_off, connection).cancel
    bound = within(left, connection)
    bound.__enter__()
    return partial(bound.__exit__, None, None, None)


def _nothing() -> None: ...


@contextmanager
def within(seconds: float, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Cut a connection off if what is done on it in this block takes longer than ``seconds``."""
    deciding, over = threading.Lock(), False

    def cut() -> None:
        with deciding:
            if not over:
                cut_off(connection)

    watch = threading.Timer(seconds, cut)
    watch.name, watch.daemon = "pgqueue-limit", True
    try:
        watch.start()  # an interruption may come in it, when the thread runs already
        yield
    finally:
        watch.cancel()
        with deciding:  # a cut must not come later, when the socket's number may be another connection's
            over = True


def connect_patience(dsn: str) -> dict[str, int]:
    """The option of a new connection that makes each host of a DSN fail within its part of the caller's patience."""
    wait = longest_wait()
    if wait is not None:
        with suppress(psycopg.ProgrammingError):  # connecting says what is wrong with the DSN
            if "connect_timeout" not in conninfo_to_dict(dsn):
                return {"connect_timeout": max(LEAST_PATIENCE, int(wait / hosts_of(dsn)))}
    return {}


def longest_wait() -> float | None:
    """Seconds for which the caller waits for a connection; None: as long as the pool says."""
    waiting = _waiting.get()
    return None if waiting is None else waiting.left(waiting.patience.connection)
