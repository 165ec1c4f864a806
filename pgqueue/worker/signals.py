"""How the parts of a worker tell one another that there is something to do.

One value, :class:`Signals`, is passed down to every part. A part that has work for another part sets an event here and
does not need to know that part. Threads reach the worker's event loop through it, and so do notifications of the database
(:func:`listen_for_ever`). :class:`Activity` knows how often a worker looks for jobs that no notification announced.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from pgqueue.errors import ConnectionFailed
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.listener import ASKED, CANCEL, FLOW, listen
from pgqueue.store.connections.session import OWN
from pgqueue.store.jobs.finish import any_in_flow
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Unknown, Verdict
from pgqueue.worker.connection import passes

LISTEN_AGAIN = 1.0
"""Seconds until a worker that lost its LISTEN connection opens it again."""
IDLE_AFTER = 10.0
"""Seconds. A transaction that began before the worker was set idle notifies no one of its jobs. The worker looks every
``poll`` for this long after the last activity, to find such jobs soon."""
ENDS = frozenset({Succeeded, Died, Cancelled})
"""A job with another verdict may be due again, sooner than the poll knows."""


class Signals:
    """The events of one worker, and its event loop.

    Attributes:
        look: the fetcher looks for jobs to claim.
        poll: the upkeep makes due jobs ready; one may be due sooner than it knew.
        cancel: the upkeep asks which running jobs are to be cancelled.
        cancel_heard: a notification said that a running job of some worker is to be cancelled.
        unknown: the upkeep looks at tasks that were found to be unknown.
        slots: the upkeep chooses the number of slots, and says what the worker does now; it may have been asked to.
        asked: the ids of workers that a notification named: they are asked to do something.
        stopping: no job is claimed or started any more.
        hurry: the grace is over.
        activity: when something happened last, and whether notifications arrive.
        listens: tells whether this worker has a connection for notifications: it is not behind a transaction pooler without one past that.
        looked_at: when this worker last looked for jobs, in seconds of the monotonic clock: it claimed, found nothing to
            claim, or had no free slot.
        look_within: within how many seconds it should look again.
        filled: whether the last claim found as many jobs as it asked for, so that more may be ready.
        in_lanes: the fetcher claims from lanes: the end of a limited job is a reason to look.
        room_at: the fetcher waits for room, and looks when at most this many claims wait; -1: it does not wait for it.
        loop: the event loop in which coroutines of tasks run; None before the worker runs.
        thread: the identity of that loop's thread; None before the worker runs.
        program: the asyncio task that runs the worker; None before that.
    """

    def __init__(self, *, listens: Callable[[], bool] = lambda: True, look_within: float = math.inf) -> None:
        self.look = asyncio.Event()
        self.poll = asyncio.Event()
        self.cancel = asyncio.Event()
        self.cancel_heard = False
        self.unknown = asyncio.Event()
        self.slots = asyncio.Event()
        self.asked: set[str] = set()
        self.stopping = asyncio.Event()
        self.hurry = asyncio.Event()
        self.activity = Activity(on_end_of_idleness=self.poll.set)
        self.listens = listens
        self.looked_at = time.monotonic()
        self.look_within = look_within
        self.filled = False
        self.in_lanes = False
        self.room_at = -1
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: int | None = None
        self.program: asyncio.Task[Any] | None = None

    @property
    def torn_down(self) -> bool:
        """Whether the asyncio task that runs the worker was cancelled: the program may be ending, and cancel every task."""
        return self.program is not None and self.program.cancelling() > 0

    def here(self) -> None:
        """The running event loop is the worker's."""
        self.looked()
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()

    def looked(self) -> None:
        """The worker claimed jobs, found nothing to claim, or has no free slot."""
        self.looked_at = time.monotonic()

    def not_listening(self) -> float | None:
        """For how many seconds notifications have not arrived; None: they do, or are not expected to."""
        since = self.activity.cannot_listen_since
        return time.monotonic() - since if since is not None and self.listens() else None

    def call(self, what: Callable[[], object]) -> None:
        """Call something in the loop: at once in the loop's own thread, from another thread soon."""
        if self.thread in (None, threading.get_ident()):
            what()
        else:
            self.call_soon(what)

    def call_soon(self, what: Callable[[], object]) -> None:
        """Call something in the loop, at its next turn. From any thread."""
        if self.loop is not None:
            own = self.thread == threading.get_ident()  # else the loop would be woken by two system calls
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                (self.loop.call_soon if own else self.loop.call_soon_threadsafe)(what)

    def waiting(self, claims: int) -> None:
        """This many claims wait to start: the fetcher looks if it waited for that."""
        if claims <= self.room_at:
            self.look.set()

    def recorded(self, verdicts: Sequence[Verdict]) -> None:
        """The database has these verdicts: there is room, and the requeued jobs may run here again."""
        if (
            self.room_at >= 0
            or any_in_flow(verdicts)
            or (self.in_lanes and any(one.claim.lane is not None for one in verdicts))
        ):  # what follows in a flow may be ready
            self.look.set()
        if ENDS.issuperset(map(type, verdicts)):  # most often; this takes no step of Python for each verdict
            return
        self.poll.set()
        if any(isinstance(one, Again | Returned | Unknown) and not one.delay for one in verdicts):
            self.look.set()

    def heard(self, payload: str) -> None:
        """A notification arrived."""
        self.activity.can_listen = True
        if payload == CANCEL:
            self.cancel_heard = True
            self.cancel.set()
            return
        if payload.startswith(ASKED):
            self.asked.add(payload.removeprefix(ASKED))
            self.slots.set()
            return
        if payload == FLOW:
            self.poll.set()
            return
        self.activity.touch()
        self.look.set()

    def cannot_listen(self) -> None:
        """Notifications do not arrive any more: what was missed is found by looking."""
        self.activity.can_listen = False
        self.look.set()


class Activity:
    """When something happened last, and whether notifications arrive.

    While jobs come, or where notifications cannot arrive, a worker looks every ``poll``. Else looks every ``sweep``
    are enough, and an idle worker costs next to nothing.

    Attributes:
        cannot_listen_since: since when notifications have not arrived, on this object's clock; None: they do.
    """

    def __init__(
        self, on_end_of_idleness: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start active, and without a LISTEN connection.

        ``on_end_of_idleness`` is called when something happens after the worker was idle.
        """
        self.cannot_listen_since: float | None = clock()
        self._on_end_of_idleness = on_end_of_idleness
        self._clock = clock
        self._until = clock() + IDLE_AFTER

    def touch(self) -> None:
        """Something happened: a notification, or a job."""
        was_idle = self.idle
        self._until = self._clock() + IDLE_AFTER
        if was_idle:
            self._on_end_of_idleness()

    @property
    def can_listen(self) -> bool:
        """Whether notifications arrive."""
        return self.cannot_listen_since is None

    @can_listen.setter
    def can_listen(self, can: bool) -> None:
        if can:
            self.cannot_listen_since = None
        elif self.cannot_listen_since is None:
            self.cannot_listen_since = self._clock()

    @property
    def idle(self) -> bool:
        """Whether nothing has happened for :data:`IDLE_AFTER`, and a notification would arrive if it had."""
        return self.can_listen and self._clock() >= self._until


async def listen_for_ever(database: Database, signals: Signals) -> None:
    """Pass notifications on to the signals; while the connection is away, the worker looks every ``poll``."""
    while True:
        try:
            async with await database.aconnect(database.listen_dsn, settings=OWN) as connection:
                await listen(connection, database.catalogue, signals.heard)
        except (psycopg.Error, ConnectionFailed) as error:
            if not passes(error):
                raise
        signals.cannot_listen()
        await listen_again()


async def listen_again() -> None:
    """Wait until the connection is opened again."""
    await asyncio.sleep(LISTEN_AGAIN)
