"""Batches as observers are told of them: by queue and task, with their times in order, computed once for all observers.

In Python 3.11 a comprehension reads an attribute of each job in half the time that ``map`` and ``attrgetter`` take.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Succeeded, Verdict

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
