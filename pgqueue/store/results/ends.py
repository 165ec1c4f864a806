"""The callers of this process that wait for the ends of jobs: one thread and one connection serve all of a database.

A caller names a job and gets a future, whose result is the job when it has ended. It is None where the thread cannot
tell: no record of the job is visible on its connection, as while the job's transaction is not committed; or the server
refuses its statements. Then the caller looks itself, on its own connection.

The thread asks for each job whether it is live, and marks it in the same statement (``sql/results/await_ends.sql``): the
transaction that ends a marked job notifies ``pgqueue.ended``. That transaction and the mark change the same row, so either
the end is notified or the thread finds the job gone. It looks at the jobs that a notification names and at those that are
gone (``sql/jobs/show.sql``), many at a time. It asks again every ``poll``, since a notification may be lost with the
connection; and after 0.002 s, 0.003 s and so on where a job was not marked: another transaction has its row locked, or
LISTEN does not work, as behind a transaction pooler.
"""

import logging
import math
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from time import monotonic, sleep
from typing import Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import psycopg

from pgqueue.errors import ConnectionFailed, PgQueueError
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.answering import within
from pgqueue.store.connections.connection import OwnConnection
from pgqueue.store.connections.listener import ids_of, listen_ends_statement
from pgqueue.store.connections.session import OWN, PLANNER
from pgqueue.store.plan import Plan, run
from pgqueue.store.results import job_end
from pgqueue.store.results.job_end import EndLook

T = TypeVar("T")
End: TypeAlias = "Future[EndLook | None]"

LINGER = 3.0
"""Seconds for which the connection is kept after the last caller."""
LONGEST_JOIN = 1.0
"""Seconds for which :meth:`EndWaiters.close` waits for the thread."""
FIRST_PAUSE, POLL = 0.002, 1.0
"""Seconds until a job whose end is not notified is asked for again, growing by half each time, and one whose end is."""
AGAIN = 1.0
"""Seconds until a lost connection is opened again."""
ANSWER_WITHIN = 30.0
"""Seconds. A connection on which the server does not answer a statement within this time is closed."""
ASKED_AT_ONCE, LOOKED_AT_ONCE = 500, 50
"""Jobs in one statement. Claims skip jobs that are being marked; a look brings the jobs' results."""
SETTINGS: Mapping[str, str] = {**OWN, **PLANNER, "synchronous_commit": "off"}
"""The connection's. A mark that a crash of the server undoes costs one poll, and rows are locked for less time."""

AWAY = (psycopg.OperationalError, psycopg.InterfaceError, ConnectionFailed)

log = logging.getLogger("pgqueue")


class EndSource(Protocol):
    """The database in which the jobs are."""

    @property
    def catalogue(self) -> Catalogue:
        """The statements, for its schema."""

    @property
    def listen_dsn(self) -> str | None:
        """Where LISTEN works; None: nowhere."""

    def connect(self, dsn: str | None = None, *, settings: Mapping[str, str]) -> OwnConnection:
        """A new connection."""


class EndWaiters:
    """Who waits in this process for which jobs of one database. Safe to use from any thread.

    Attributes:
        linger: seconds for which the connection is kept after the last caller.
        poll: seconds between two questions for a job whose end is notified.
    """

    def __init__(self, source: EndSource) -> None:
        """The connection is made when a caller waits for the first end."""
        self.linger = LINGER
        self.poll = POLL
        self.source = source
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Start again without callers: a forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._callers: dict[int, list[End]] = {}
        self._thread: EndThread | None = None

    @property
    def waits(self) -> bool:
        """Whether any caller waits."""
        return bool(self._callers)

    @property
    def connected(self) -> bool:
        """Whether there is a thread with a connection."""
        return self._thread is not None

    def enter(self, job_id: int) -> End:
        """The end of a job, as a future, for a caller that may call :meth:`ask`, and calls :meth:`leave` in the end."""
        end: End = Future()
        with self._lock:
            self._callers.setdefault(job_id, []).append(end)
        return end

    def ask(self, job_id: int) -> None:
        """Have the thread tell the end of a job to its callers."""
        with self._lock:
            if self._thread is not None:
                self._thread.new.append(job_id)
                self._thread.ring()
            elif self._callers:
                self._thread = EndThread(self)
                self._thread.start()

    def leave(self, job_id: int, end: End) -> None:
        """A caller has its answer, or waits no longer."""
        with self._lock:
            callers = self._callers.get(job_id, [])
            if end in callers:
                callers.remove(end)
            if not callers:
                self._callers.pop(job_id, None)

    def close(self) -> None:
        """Close the connection: now if no caller waits, else when none does any more."""
        with self._lock:
            thread, waits = self._thread, self.waits
            if thread is not None:
                thread.linger = 0.0
                thread.ring()
        if thread is not None and not waits:
            thread.join(LONGEST_JOIN)

    def awaited(self, job_ids: Iterable[int] | None = None) -> list[int]:
        """The jobs for which a caller waits, of these or of all, in the order of their ids."""
        with self._lock:
            return sorted(self._callers if job_ids is None else self._callers.keys() & set(job_ids))

    def settle(self, job_id: int, look: EndLook | None) -> None:
        """Give the callers of a job its end."""
        with self._lock:
            callers = self._callers.pop(job_id, ())
        _give(callers, look)

    def released(self, *, failed: bool = False) -> bool:
        """Whether the thread ends now: because no caller waits, or because it failed and its callers look themselves."""
        with self._lock:
            if self._callers and not failed:
                return False
            self._thread = None
            left, self._callers = self._callers, {}
        for callers in left.values():
            _give(callers, None)
        return True


class EndThread(threading.Thread):
    """Has a connection until no caller has waited for some seconds, and tells callers the ends of their jobs.

    Attributes:
        linger: seconds for which the connection is kept after the last caller.
        new: jobs that callers have just asked for.
    """

    def __init__(self, waiters: EndWaiters) -> None:
        super().__init__(name="pgqueue-ends", daemon=True)
        self.linger = waiters.linger
        self._waiters = waiters
        self.new: deque[int] = deque()
        self._heard: set[int] = set()
        self._due: dict[float, dict[int, float]] = {}
        """Which jobs are asked for at which instant, and after which pause again if they are not marked then."""
        self._has_served = False
        self._inside, self._outside = socket.socketpair()
        for end in (self._inside, self._outside):
            end.settimeout(0)

    def ring(self) -> None:
        """Wake the thread. If there is no room for a ring, others are there."""
        with suppress(OSError):
            self._outside.send(b"!")

    def run(self) -> None:
        """Tell ends for as long as callers wait."""
        with self._inside, self._outside:
            try:
                self._keep_connected()
            except Exception as error:
                if not isinstance(error, ReferenceError):  # the database was dropped, so no caller waits
                    unexpected = not isinstance(error, psycopg.Error | PgQueueError)
                    said = "no connection serves the callers that wait for jobs; each looks by itself: %s"
                    log.warning(said, error, exc_info=unexpected)
                self._waiters.released(failed=True)

    def _keep_connected(self) -> None:
        """Serve the callers. A connection that has served them is replaced when it is lost."""
        lost = False
        while not self._waiters.released():
            source = self._waiters.source
            where, self._catalogue = source.listen_dsn, source.catalogue
            self._marks, self._listens = where is not None, False
            try:
                with source.connect(where, settings=SETTINGS) as self._connection:
                    self._serve()
            except AWAY as error:
                if not self._has_served:
                    raise
                if not lost:
                    log.warning("callers wait for jobs; their connection is tried every second: %s", error)
                lost = True
                sleep(AGAIN)

    def _serve(self) -> None:
        """Serve the callers until none has waited for some seconds, or the connection is lost."""
        self._connection.add_notify_handler(lambda heard: self._hear(heard.payload))
        self._due = {}
        self.new.extend(self._waiters.awaited())  # what was notified meanwhile was missed
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(self._inside, selectors.EVENT_READ)
            idle_since = monotonic()
            while self._waiters.waits or monotonic() < idle_since + self.linger:
                if self._waiters.waits:
                    self._tell_ends()
                    idle_since = monotonic()
                next_due = min(self._due, default=monotonic() + self._waiters.poll)
                self._rest(selector, next_due if self._waiters.waits else idle_since + self.linger)

    def _tell_ends(self) -> None:
        """Ask for the jobs that are due, and look at those that are gone or that a notification named."""
        now, poll = monotonic(), self._waiters.poll
        due = {self.new.popleft(): FIRST_PAUSE for _ in range(len(self.new))}
        for at in [at for at in self._due if at <= now]:
            due |= self._due.pop(at)
        asked = self._waiters.awaited(due)
        live = {one for some in _portions(asked, ASKED_AT_ONCE) for one in self._ask(some)}
        marked = live.copy() if self._marks else set()
        heard, self._heard = self._heard, set()  # also of jobs that were marked a moment ago
        for some in _portions(self._waiters.awaited((set(asked) - live) | heard), LOOKED_AT_ONCE):
            live |= self._look(some)
        for job_id in live.intersection(asked):
            pause = poll if job_id in marked else min(due[job_id], poll)
            together = pause / 4  # jobs that are due within this time are asked for in one statement
            at = math.ceil((now + pause) / together) * together
            self._due.setdefault(at, {})[job_id] = pause * 1.5

    def _ask(self, job_ids: Sequence[int]) -> set[int]:
        """Return those of these jobs that are live, and marked if possible. Jobs that are locked are missing then."""
        if self._marks:
            try:
                if not self._listens:
                    with within(ANSWER_WITHIN, self._connection):
                        self._connection.execute(listen_ends_statement(self._catalogue).encode())
                    self._listens = True
                return self._answer(job_end.await_ends(job_ids))
            except psycopg.Error as error:
                if self._connection.closed:
                    raise
                self._marks = False  # the server or the role only reads, for example
                log.debug("the ends of jobs are not notified, so callers learn of them by polls: %s", error)
        return self._answer(job_end.live_ids(job_ids))

    def _look(self, job_ids: Sequence[int]) -> set[int]:
        """Give callers the jobs that have ended; return the others, which are live."""
        looks, live = self._answer(job_end.looks(job_ids)), set()
        for job_id in job_ids:
            look = looks.get(job_id)
            if look is not None and not look.job.state.ended:
                live.add(job_id)
            else:
                self._waiters.settle(job_id, look)
        return live

    def _answer(self, plan: Plan[T]) -> T:
        with within(ANSWER_WITHIN, self._connection):
            answer = run(plan, self._connection.steps(self._catalogue))
        self._has_served = True
        return answer

    def _hear(self, payload: str) -> None:
        self._heard |= ids_of(payload)

    def _rest(self, selector: selectors.BaseSelector, until: float) -> None:
        """Wait for a notification, a ring or an instant. A notification that comes with an answer reaches its handler."""
        if self.new or self._heard:
            return
        selector.select(max(0.0, until - monotonic()))
        with suppress(BlockingIOError):
            self._inside.recv(65_536)
        self._connection.pgconn.consume_input()
        while heard := self._connection.pgconn.notifies():
            self._hear(heard.extra.decode(errors="replace"))
        if self._connection.closed:
            raise psycopg.OperationalError("the server closed the connection")


def _portions(job_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(job_ids), size):
        yield job_ids[start : start + size]


def _give(callers: Iterable[End], look: EndLook | None) -> None:
    for end in callers:
        with suppress(InvalidStateError):  # the caller has just cancelled it
            end.set_result(look)


_all: WeakSet[EndWaiters] = WeakSet()


def _after_fork() -> None:
    for ends in list(_all):
        ends.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
