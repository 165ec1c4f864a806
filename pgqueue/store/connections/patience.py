"""How long a caller waits for the database, where it does not wait as long as the pools say.

How a wait for an answer ends is decided in :mod:`pgqueue.store.connections.answering`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import ceil, inf
from time import monotonic
from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from pgqueue.errors import ConnectionFailed
from pgqueue.store.connections.dsn import CONNECTION_DEFAULTS, LEAST_PATIENCE, hosts_of

ANSWER_WITHIN = 5.0
"""Seconds that the database has beyond the end of a caller's wait, to answer what was asked before."""
LONGEST = 1e6
"""Seconds that a caller waits at most: locks have no longer timeouts."""


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
    if end == inf:
        yield
        return
    patience = until(end, spare)
    latest = monotonic() + patience.altogether
    try:
        with waiting_at_most(patience):
            yield
    except (ConnectionFailed, psycopg.OperationalError) as error:
        if monotonic() < latest:
            raise
        if isinstance(error.__cause__, PoolTimeout):
            raise TimeoutError("no connection was free in time, or could be opened") from error
        raise TimeoutError(f"the database has not answered for {spare:g} s") from error


def until(end: float, spare: float = ANSWER_WITHIN) -> Patience:
    """The patience of a caller that waits until an instant of the monotonic clock, and ``spare`` seconds more."""
    within = min(max(0.0, end - monotonic()) + spare, LONGEST)
    return Patience(within, within, altogether=within)


def answer_due() -> float:
    """Until when the caller waits for the answer to one plan, by the monotonic clock."""
    waiting = _waiting.get()
    return inf if waiting is None else monotonic() + waiting.left(waiting.patience.answer)


def connect_patience(dsn: str) -> dict[str, int]:
    """The option of a new connection that makes each host of a DSN fail within its part of the caller's patience."""
    wait = longest_wait()
    if wait is not None:
        with suppress(psycopg.ProgrammingError):  # connecting says what is wrong with the DSN
            if "connect_timeout" not in conninfo_to_dict(dsn):
                each = min(CONNECTION_DEFAULTS["connect_timeout"], ceil(wait / hosts_of(dsn)))
                return {"connect_timeout": max(LEAST_PATIENCE, each)}
    return {}


def longest_wait() -> float | None:
    """Seconds for which the caller waits for a connection; None: as long as the pool says."""
    waiting = _waiting.get()
    return None if waiting is None else waiting.left(waiting.patience.connection)
