"""Until when a server has to answer on a connection of ours, and whether it has closed it.

A server that is stopped, and a pooler in front of one that is away, keep a connection and do not answer: to TCP it is alive.
"""

import os
import select
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class NoAnswer(psycopg.OperationalError):
    """The connection was closed on this side, since no answer came in time."""


class Answering(psycopg.BaseConnection[Any]):
    """A connection on which an answer may be due. Its kind, blocking or awaitable, is the class beside this one.

    Attributes:
        answers_by: until when the server has to answer, by the monotonic clock.
    """

    answers_by = inf
    _heard: Callable[[], object] | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's, or its coroutine
        """Wait as psycopg does, until the answer is due."""
        bounded = gen if self.answers_by == inf else _in_time(gen, self)
        return super().wait(bounded, *args, **options)  # type: ignore[misc]  # of the class beside this one

    def is_cut_off(self) -> bool:
        """Whether the server has sent something since the last statement: then it has closed this idle connection.

        It may also be a notice or a changed setting. Those are rare, and the answer is the same: use another
        connection. This costs 1 µs, and asking the server costs a round trip.
        """
        if self.closed:
            return True
        if self._heard is None:
            self._heard = _ear(self.fileno())
        return bool(self._heard())


@contextmanager
def within(seconds: float, connection: Answering) -> Iterator[None]:
    """What is asked on a connection in this block has to be answered within ``seconds``, altogether."""
    connection.answers_by = monotonic() + seconds
    try:
        yield
    finally:
        connection.answers_by = inf


def cut_off(connection: psycopg.BaseConnection[Any]) -> None:
    """End a wait for an answer: it fails as if the server had closed the connection. From any thread.

    Only the traffic ends: the descriptor stays libpq's, so its number is not given to another connection meanwhile.
    """
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def _in_time(answer: Generator[Any, Any, T], connection: Answering) -> Generator[Any, Any, T]:
    """What psycopg waits for, until it is due. An answer that has begun to arrive is waited for."""
    begun, late = monotonic(), False
    try:
        awaited = next(answer)
        while True:
            ready = yield awaited  # psycopg sends 0 ten times a second while there is nothing to read
            if not ready and monotonic() > connection.answers_by:
                late = True
                cut_off(connection)
            awaited = answer.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # psycopg's
    except psycopg.OperationalError as error:
        if late:
            raise NoAnswer(
                f"no answer for {monotonic() - begun:.1f} s, so the connection was closed"
            ) from error
        raise


def _ear(descriptor: int) -> Callable[[], object]:
    """Return a function that says whether a socket has something to read."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return partial(poll.poll, 0)
    return lambda: select.select([descriptor], [], [], 0)[0]
