"""Who is told what happens to jobs in this process: the log, metrics, traces.

An observer is told of batches, as they occur: never job by job where the queue has a batch. An observer that
raises is logged, and nothing else changes: neither the job, nor the worker, nor the other observers.
"""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import suppress

from pgqueue.values.job import Claim, Enqueued, NewJob
from pgqueue.values.verdict import Verdict

log = logging.getLogger("pgqueue.observer")


class Observer:
    """Subclass it, and override the events to be told of. An event that no observer overrides costs nothing.

    A call may come in any thread, and it holds up the work: do not block in it.
    """

    def enqueued(self, jobs: Sequence[NewJob], results: Sequence[Enqueued]) -> None:
        """The database has taken these enqueues; ``results`` says what became of each.

        An enqueue in a transaction of the caller is told of at once: a rollback afterwards is not. Jobs that the database adds
        itself are not told of: those of schedules, and of the SQL function ``pgqueue.enqueue``. No ``NewJob`` of them passes
        through Python. Their claims, starts and ends are told of.
        """

    def claimed(self, claims: Sequence[Claim]) -> None:
        """A worker or a take of this process has claimed these jobs. They have not started."""

    def started(self, claims: Sequence[Claim]) -> None:
        """The attempts of these claims have started."""

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """The database has recorded these verdicts. Of a requeued job that never started there was no ``started``."""

    def lost(self, claims: Sequence[Claim]) -> None:
        """These jobs are no longer this process's: the lease was lost, or another attempt superseded this one.

        Nothing that the attempts did is recorded, and no ``ended`` follows.
        """


class Event:
    """One event, which is called with a batch. It is false if no observer is told of it."""

    __slots__ = ("_name", "_told")

    def __init__(self, name: str) -> None:
        """An event that no observer is told of."""
        self._name = name
        self._told: tuple[Callable[..., object], ...] = ()

    def __bool__(self) -> bool:
        """Whether an observer is told of it."""
        return bool(self._told)

    def __call__(self, *batch: Sequence[object]) -> None:
        """Tell the observers. Never raises."""
        for tell in self._told:
            try:
                tell(*batch)
            except (
                Exception,
                CancelledError,
                SystemExit,
            ):  # these would end the part of the worker that calls
                with suppress(Exception):  # a filter of the program's logging may raise, too
                    told = {"observer": repr(tell), "event": self._name}
                    log.exception("an observer failed; jobs are not affected", extra=told)

    def add(self, observer: Observer) -> None:
        """Tell this observer, if it overrides the event."""
        if getattr(type(observer), self._name) is not getattr(Observer, self._name):
            self._told = (*self._told, getattr(observer, self._name))


class Observers:
    """The observers of a queue, and one :class:`Event` for each method of :class:`Observer`."""

    def __init__(self, *observers: Observer) -> None:
        """Tell these observers."""
        self._all: list[Observer] = []
        self.enqueued = Event("enqueued")
        self.claimed = Event("claimed")
        self.started = Event("started")
        self.ended = Event("ended")
        self.lost = Event("lost")
        for one in observers:
            self.add(one)

    def add(self, observer: Observer) -> None:
        """Tell this observer, too."""
        self._all.append(observer)
        for event in (self.enqueued, self.claimed, self.started, self.ended, self.lost):
            event.add(observer)

    def and_also(self, observer: Observer) -> "Observers":
        """These observers, and one that is told before them."""
        return Observers(observer, *self._all)
