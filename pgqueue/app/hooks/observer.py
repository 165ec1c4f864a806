"""Who is told what happens to jobs in this process: the log, metrics, traces.

An observer is told of batches, as they occur: never job by job where the queue has a batch. An observer that
raises is logged, and nothing else changes: neither the job, nor the worker, nor the other observers. What batches have in
common, by queue and task, is computed once for all observers.
"""

from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from pgqueue.app.logger import bounded_logger
from pgqueue.values.jobs.job import Claim, EnqueueAnswer, NewJob
from pgqueue.values.jobs.verdict import Succeeded, Verdict

log = bounded_logger("pgqueue.observer")

EVENTS = ("enqueued", "claimed", "started", "ended", "lost", "reclaimed")
"""The methods of :class:`Observer`."""


class Observer:
    """Subclass it, and override the events to be told of. An event that no observer overrides costs nothing.

    A call may come in any thread, and it holds up the work: do not block in it.
    """

    def enqueued(self, jobs: Sequence[NewJob], results: Sequence[EnqueueAnswer]) -> None:
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

    def reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """This process has taken over jobs of lost workers, and the database has recorded these verdicts on their attempts.

        The attempts started in other processes, so there was no ``started``, and no ``ended`` follows. The claims are
        without arguments.
        """


class ObserverChannel:
    """One event, which is called with a batch. It is false if no observer is told of it.

    Attributes:
        told: what is called with each batch.
    """

    __slots__ = ("_batch", "_name", "told")

    def __init__(self, name: str, batch: Callable[..., Sequence[object]] | None = None) -> None:
        """``name`` is the method of :class:`Observer`.

        ``batch`` makes of a batch what observers are told; None: the batch itself.
        """
        self._name = name
        self._batch = batch
        self.told: tuple[Callable[..., object], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.told)

    def __call__(self, *batch: Sequence[object]) -> None:
        """Tell the observers. Never raises."""
        if self._batch is not None:
            batch = (self._batch(*batch),)
        for tell in self.told:
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


class Observers:
    """The observers of a queue, and one :class:`ObserverChannel` for each method of :class:`Observer`."""

    def __init__(self) -> None:
        self.enqueued = ObserverChannel("enqueued")
        self.claimed = ObserverChannel("claimed", ClaimedBatch)
        self.started = ObserverChannel("started")
        self.ended = ObserverChannel("ended", EndedBatch)
        self.lost = ObserverChannel("lost")
        self.reclaimed = ObserverChannel("reclaimed", EndedBatch)
        self._of_workers: WeakSet[Observers] = WeakSet()

    def add(self, observer: Observer) -> None:
        """Tell this observer, too, of the events that it overrides."""
        for name in EVENTS:
            if getattr(type(observer), name) is not getattr(Observer, name):
                self.tell(name, getattr(observer, name))

    def tell(self, name: str, function: Callable[..., object]) -> None:
        """Call a function with the batches of one event. Workers that are running call it from now on."""
        for observers in [self, *self._of_workers]:
            event: ObserverChannel = getattr(observers, name)
            event.told = (*event.told, function)

    def of_worker(self, observer: Observer) -> "Observers":
        """These observers, with those that are added later, and one of a worker's own that is told before them."""
        observers = Observers()
        observers.add(observer)
        for name in EVENTS:
            event: ObserverChannel = getattr(observers, name)
            event.told += getattr(self, name).told
        self._of_workers.add(observers)
        return observers


T = TypeVar("T")


class ClaimedPart(NamedTuple):
    """The claims of a batch that are of one queue and task.

    Attributes:
        queue: their queue.
        task: their task.
        claims: the claims.
        due: from when on each could run, in ascending order; seconds since 1970, by the database's clock.
    """

    queue: str
    task: str
    claims: Sequence[Claim]
    due: Sequence[float]


class EndedPart(NamedTuple):
    """The verdicts of a batch that are of one queue and task.

    Attributes:
        queue: the queue of their jobs.
        task: the task of their jobs.
        verdicts: the verdicts.
        succeeded: how long each attempt that succeeded ran, in ascending order; seconds.
    """

    queue: str
    task: str
    verdicts: Sequence[Verdict]
    succeeded: Sequence[float]


class ClaimedBatch(list[Claim]):
    """Claims that observers are told of."""

    @cached_property
    def parts(self) -> Sequence[ClaimedPart]:
        """The claims by queue and task; most batches are one part."""
        return [
            ClaimedPart(queue, task, some, sorted([one.run_at_epoch for one in some]))
            for queue, task, some in _by_pair(self, self)
        ]


class EndedBatch(list[Verdict]):
    """Verdicts that observers are told of."""

    @cached_property
    def parts(self) -> Sequence[EndedPart]:
        """The verdicts by queue and task; most batches are one part."""
        return [
            EndedPart(queue, task, some, sorted([one.seconds for one in some if isinstance(one, Succeeded)]))
            for queue, task, some in _by_pair(self, [one.claim for one in self])
        ]


def claimed_parts(claims: Sequence[Claim]) -> Sequence[ClaimedPart]:
    """The parts of claims, which are computed once if an :class:`~pgqueue.app.hooks.observer.ObserverChannel` told of them."""
    return (claims if isinstance(claims, ClaimedBatch) else ClaimedBatch(claims)).parts


def ended_parts(verdicts: Sequence[Verdict]) -> Sequence[EndedPart]:
    """The parts of verdicts, as for :func:`claimed_parts`."""
    return (verdicts if isinstance(verdicts, EndedBatch) else EndedBatch(verdicts)).parts


def _by_pair(batch: Sequence[T], jobs: Sequence[Claim]) -> Iterator[tuple[str, str, Sequence[T]]]:
    queues, tasks = {one.queue for one in jobs}, {one.task for one in jobs}
    if len(queues) == len(tasks) == 1:
        yield queues.pop(), tasks.pop(), batch
        return
    parts = defaultdict[tuple[str, str], list[T]](list)
    for one, job in zip(batch, jobs, strict=True):
        parts[job.queue, job.task].append(one)
    for (queue, task), part in parts.items():
        yield queue, task, part
