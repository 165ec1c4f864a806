"""How a thread learns that jobs have ended for which callers wait.

It has one connection, and for each job it

1. marks the job (``sql/results/await_ends.sql``): the transaction that ends the job then notifies ``pgqueue.ended``. That
   transaction and the mark change the same row, so either the end is notified or the thread finds the job gone;
2. looks at the jobs that a notification names, and at those that are gone (``sql/jobs/show.sql``), many at a time;
3. checks every ``poll`` that the job is still there (``sql/jobs/live_ids.sql``): a notification may be lost with the
   connection.

A row that another transaction has locked cannot be marked at once. Such a job is checked after 0.002 s, 0.003 s and so on,
and so is each job where LISTEN does not work, as behind a transaction pooler.
"""

import heapq
import logging
import math
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import Protocol, TypeVar

import psycopg

from pgqueue.errors import ConnectionFailed, PgQueueError
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.connection import OwnConnection
from pgqueue.store.connections.listener import ids_of, listen_ends_statement
from pgqueue.store.connections.session import OWN, PLANNER
from pgqueue.store.plan import Plan, run
from pgqueue.store.results import job_end
from pgqueue.store.results.job_end import EndLook
from pgqueue.store.results.waker_and_watchdog import ConnectionWatchdog, ThreadWaker

T = TypeVar("T")

FIRST_PAUSE, POLL = 0.002, 1.0
"""Seconds between two checks of a job whose end is not notified, growing by half each time, and of one whose end is."""
AGAIN = 1.0
"""Seconds until a lost connection is opened again."""
MARKED_AT_ONCE, CHECKED_AT_ONCE, LOOKED_AT_ONCE = 500, 5_000, 50
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


class Callers(Protocol):
    """Who waits for which jobs."""

    @property
    def waits(self) -> bool:
        """Whether any caller waits."""

    def awaited(self, job_ids: Iterable[int] | None = None) -> list[int]:
        """The jobs for which a caller waits, of these or of all, in order."""

    def settle(self, job_id: int, look: EndLook | None) -> None:
        """Give the callers of a job its end."""

    def released(self, watch: "EndWatch", *, failed: bool = False) -> bool:
        """Whether the watch ends now."""


class EndWatch:
    """A thread and its connection. It ends when no caller has waited for some seconds."""

    def __init__(self, callers: Callers, source: EndSource, *, poll: float, linger: float) -> None:
        """``poll``: seconds between two checks of a job whose end is notified.

        ``linger``: seconds for which the connection is kept after the last caller.
        """
        self._callers = callers
        self._source = source
        self._poll = poll
        self._linger = linger
        self._new: deque[int] = deque()
        self._heard: set[int] = set()
        self._marked: set[int] = set()
        self._due = CheckTimes()
        self._marks = True
        self._has_served = False
        self._stopping = False
        self._bell = ThreadWaker()
        self._guard = ConnectionWatchdog()
        self._thread = threading.Thread(target=self._run, name="pgqueue-ends", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, job_id: int) -> None:
        """A caller waits for this job."""
        self._new.append(job_id)
        self.ring()

    def stop(self) -> None:
        """End as soon as no caller waits."""
        self._stopping = True
        self.ring()

    def ring(self) -> None:
        """Have the thread look who waits."""
        self._bell.ring()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, at most ``timeout`` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        self._guard.start()
        try:
            self._watch()
        except ReferenceError:
            pass  # the database was dropped, so no caller waits
        except (psycopg.Error, PgQueueError) as error:
            log.warning(
                "no connection serves the callers that wait for jobs; each looks by itself: %s", error
            )
        except Exception:
            log.exception(
                "the thread that serves the callers that wait for jobs failed; each looks by itself"
            )
        finally:
            self._callers.released(self, failed=True)
            self._guard.stop()
            self._bell.close()

    def _watch(self) -> None:
        """Stay connected for as long as callers wait. A connection that has served them is replaced when it is lost."""
        lost = False
        while not self._callers.released(self):
            try:
                self._serve_callers()
            except AWAY as error:
                if not self._has_served:
                    raise
                if self._callers.waits:
                    if not lost:
                        log.warning(
                            "callers wait for jobs; their connection is tried every second: %s", error
                        )
                    lost = True
                    sleep(AGAIN)

    def _serve_callers(self) -> None:
        """Serve the callers until none has waited for some seconds, or the connection is lost."""
        where = self._source.listen_dsn
        with (
            self._source.connect(where, settings=SETTINGS) as connection,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            connection.add_notify_handler(lambda heard: self._hear(heard.payload))
            self._marks = where is not None and self._listens(connection)
            self._due = CheckTimes()
            self._new.extend(self._callers.awaited())  # what was notified meanwhile was missed
            idle_since = monotonic()
            while self._callers.waits or not (self._stopping or monotonic() >= idle_since + self._linger):
                if self._callers.waits:
                    self._serve(connection)
                    self._has_served = True
                    idle_since = monotonic()
                self._rest(connection, selector, until=0.0 if self._stopping else idle_since + self._linger)

    def _listens(self, connection: OwnConnection) -> bool:
        """Listen; return False where the server only reads, and cannot."""
        try:
            with self._guard.over(connection):
                connection.execute(listen_ends_statement(self._source.catalogue).encode())
        except psycopg.Error:
            if connection.closed:
                raise
            return False
        return True

    def _hear(self, payload: str) -> None:
        self._heard |= ids_of(payload)

    def _serve(self, connection: OwnConnection) -> None:
        """Mark or check the jobs that are due, and look at those that are gone or that a notification named."""
        now = monotonic()
        while self._new:
            self._due.put(self._new.popleft(), now, FIRST_PAUSE)
        due = self._due.until(now)
        waited = self._callers.awaited(due)
        self._marked -= due.keys() - set(waited)
        there = self._still_there(waited, connection)
        heard, self._heard = self._heard, set()  # also of jobs that were marked a moment ago
        there |= self._look(self._callers.awaited(heard.union(set(waited) - there)), connection)
        for job_id in there.intersection(waited):
            pause = self._poll if job_id in self._marked else min(due[job_id], self._poll)
            self._due.put(job_id, _together(now + pause, pause), pause * 1.5)

    def _still_there(self, job_ids: Sequence[int], connection: OwnConnection) -> set[int]:
        """Return those of these jobs that are live, and mark them from now on, if possible. Jobs that are locked are missing."""
        known = self._marked.intersection(job_ids)
        marked = (
            self._mark([one for one in job_ids if one not in known], connection) if self._marks else set()
        )
        self._marked |= marked
        unsure = known if self._marks else known.union(job_ids) - marked
        checked = self._answers(job_end.live_ids, sorted(unsure), CHECKED_AT_ONCE, connection)
        return marked.union(*(there for _, there in checked))

    def _mark(self, job_ids: Sequence[int], connection: OwnConnection) -> set[int]:
        marked: set[int] = set()
        try:
            for _, there in self._answers(job_end.await_ends, job_ids, MARKED_AT_ONCE, connection):
                marked |= there
        except psycopg.Error as error:
            if connection.closed:
                raise
            self._marks = False  # this role may not write, for example
            log.debug("the ends of jobs are not notified, so callers learn of them by checks: %s", error)
        return marked

    def _look(self, job_ids: Sequence[int], connection: OwnConnection) -> set[int]:
        """Give callers the jobs that have ended; return the others, which are live."""
        live = set()
        for portion, looks in self._answers(job_end.looks, job_ids, LOOKED_AT_ONCE, connection):
            for job_id in portion:
                look = looks.get(job_id)
                if look is not None and not look.job.state.ended:
                    live.add(job_id)
                else:
                    self._marked.discard(job_id)
                    self._callers.settle(job_id, look)
        return live

    def _answers(
        self,
        plan: Callable[[Sequence[int]], Plan[T]],
        job_ids: Sequence[int],
        at_once: int,
        connection: OwnConnection,
    ) -> Iterator[tuple[Sequence[int], T]]:
        """Portions of these jobs, and what a plan returns for each."""
        for start in range(0, len(job_ids), at_once):
            portion = job_ids[start : start + at_once]
            with self._guard.over(connection):
                answer = run(plan(portion), connection.steps(self._source.catalogue))
            yield portion, answer

    def _rest(self, connection: OwnConnection, selector: selectors.BaseSelector, *, until: float) -> None:
        """Wait for a notification, for the bell, or until the next job is due; without callers, until an instant."""
        if self._callers.waits:
            until = self._due.next
        if self._new or self._heard:
            until = 0.0
        for key, _ in selector.select(max(0.0, until - monotonic())):
            if key.fileobj is self._bell:
                self._bell.hush()
            else:
                self._read(connection)

    def _read(self, connection: OwnConnection) -> None:
        """Read what the server has sent while no statement ran; a notification that comes with an answer reaches its handler."""
        connection.pgconn.consume_input()
        while heard := connection.pgconn.notifies():
            self._hear(heard.extra.decode(errors="replace"))
        if connection.closed:
            raise psycopg.OperationalError("the server closed the connection")


def _together(at: float, pause: float) -> float:
    """Return an instant, at most a quarter of the pause later, at which other jobs are checked, too: in one statement."""
    step = pause / 4
    return math.ceil(at / step) * step


class CheckTimes:
    """When to check which job next."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._jobs: dict[int, tuple[float, float]] = {}

    def put(self, job_id: int, at: float, pause: float) -> None:
        """Check a job at an instant, and after this pause if it was locked then; what was said of it before is void."""
        self._jobs[job_id] = at, pause
        heapq.heappush(self._heap, (at, job_id))

    def until(self, now: float) -> dict[int, float]:
        """Take out the jobs that are to be checked by now, with their pauses."""
        due = {}
        while self._heap and self._heap[0][0] <= now:
            at, job_id = heapq.heappop(self._heap)
            if job_id in self._jobs and self._jobs[job_id][0] == at:
                due[job_id] = self._jobs.pop(job_id)[1]
        return due

    @property
    def next(self) -> float:
        """When the next job is to be checked."""
        return self._heap[0][0] if self._heap else math.inf
