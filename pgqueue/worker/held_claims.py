"""Which claims a worker holds in memory before a runner may take them: until their instant, and for others of their batch.

A rate appoints the instant at which a claim starts. Claims of one batch task with equal values of its ``by`` arguments make a
*group*. A group is a batch once it has ``size`` claims, or once ``wait`` has passed since the first of them came. If more than
:data:`MOST` claims wait for others, the oldest groups are batches sooner.

:class:`pgqueue.worker.claims.Claims` calls this under its lock, and starts what is due.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from pgqueue.app.task import Task
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.options import BatchPolicy
from pgqueue.values.jobs.unique import derived_key
from pgqueue.values.payloads.codec import Codec, args_text

MOST = 1_000
"""Claims that wait for others, of all batch tasks."""


@dataclass(slots=True)
class GatheredBatch:
    """Claims that run in one call.

    Attributes:
        task: the name of their task.
        due: when they are a batch, in seconds of the monotonic clock.
        claims: in the order in which they came.
    """

    task: str
    due: float
    claims: list[Claim] = field(default_factory=list)


Startable: TypeAlias = Claim | GatheredBatch
"""What a runner takes."""


class HeldClaims:
    """The claims of one worker that may not start yet.

    Attributes:
        gathered: how many wait for others of their batch.
    """

    def __init__(
        self, tasks: Mapping[str, Task[..., Any]], batch_tasks: Collection[str], codec: Codec | None
    ) -> None:
        self.gathered = 0
        self._tasks = tasks
        self._batch_tasks = batch_tasks
        self._codec = codec
        self._appointed: list[tuple[float, int, Claim]] = []  # a heap
        self._numbers = count()  # claims of one instant start in the order in which they came
        self._groups: dict[object, GatheredBatch] = {}
        self._groups_due = math.inf  # no group is a batch before this because of its wait

    @property
    def count(self) -> int:
        """How many are held."""
        return len(self._appointed) + self.gathered

    @property
    def due(self) -> float:
        """No claim may start before this, in seconds of the monotonic clock; infinity: none waits for a time."""
        appointed = self._appointed[0][0] if self._appointed else math.inf
        return min(appointed, self._groups_due) if self._groups else appointed

    def claims(self) -> list[Claim]:
        """All that are held."""
        gathered = (claim for group in self._groups.values() for claim in group.claims)
        return [*(claim for _, _, claim in sorted(self._appointed)), *gathered]

    def missing(self) -> int:
        """How many more claims may make a batch of what waits; 0: no claim waits for others.

        One group lacks a known number. Of several, each next claim may be of any: as many again, so that few claims fill them.
        """
        if not self._groups:
            return 0
        group = next(iter(self._groups.values()))
        size = self._policy(group.task).size
        return size - len(group.claims) if len(self._groups) == 1 else max(size, self.gathered)

    def appoint(self, claim: Claim, due: float) -> None:
        """Hold a claim until an instant, in seconds of the monotonic clock."""
        heapq.heappush(self._appointed, (due, next(self._numbers), claim))

    def gather(self, claims: Iterable[Claim], now: float) -> list[Startable]:
        """Hold those of these claims that wait for others of their batch; return what may start, in order."""
        ready: list[Startable] = []
        for claim in claims:
            if claim.task not in self._batch_tasks or claim.task not in self._tasks:
                ready.append(claim)
            elif (batch := self._join_group(claim, now)) is not None:
                ready.append(batch)
        while self.gathered > MOST:
            ready.append(self._pop(next(iter(self._groups))))
        return ready

    def take_due(self, now: float) -> list[Startable]:
        """What may start by now, in order: claims whose instant has come, and batches that wait no longer."""
        claims: list[Claim] = []
        while self._appointed and self._appointed[0][0] <= now:
            claims.append(heapq.heappop(self._appointed)[2])
        ready = self.gather(claims, now)
        if now >= self._groups_due:
            ready += [self._pop(key) for key, group in [*self._groups.items()] if group.due <= now]
            self._groups_due = min((group.due for group in self._groups.values()), default=math.inf)
        return ready

    def drop(self, is_meant: Callable[[Claim], bool]) -> list[Claim]:
        """Take out these claims."""
        dropped = [claim for claim in self.claims() if is_meant(claim)]
        if dropped:
            self._appointed = [one for one in self._appointed if not is_meant(one[2])]
            heapq.heapify(self._appointed)
            for key, group in [*self._groups.items()]:
                without(group, dropped)
                if not group.claims:
                    del self._groups[key]
            self.gathered = sum(len(group.claims) for group in self._groups.values())
        return dropped

    def _policy(self, task: str) -> BatchPolicy:
        policy = self._tasks[task].batching
        assert policy is not None  # noqa: S101 - only claims of batch tasks are gathered
        return policy

    def _join_group(self, claim: Claim, now: float) -> GatheredBatch | None:
        """Put a claim into its group; return the batch that it completes."""
        policy = self._policy(claim.task)
        key = group_of(claim, policy.by, self._codec)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = GatheredBatch(claim.task, now + policy.wait)
            self._groups_due = min(self._groups_due, group.due)
        group.claims.append(claim)
        self.gathered += 1
        return self._pop(key) if len(group.claims) >= policy.size else None

    def _pop(self, key: object) -> GatheredBatch:
        group = self._groups.pop(key)
        self.gathered -= len(group.claims)
        return group


def group_of(claim: Claim, by: tuple[str, ...], codec: Codec | None) -> object:
    """What claims of one group have in common. A job whose arguments cannot be read is alone: it dies without the others."""
    if not by:
        return claim.task
    try:
        return derived_key(claim.task, args_text(codec, claim).encode(), by)
    except Exception:  # noqa: BLE001 - hostile JSON may raise anything, and the attempt tells of it
        return claim.id


def without(group: GatheredBatch, dropped: Iterable[Claim]) -> None:
    """Take these claims out of a group."""
    gone = {*map(id, dropped)}
    group.claims[:] = [claim for claim in group.claims if id(claim) not in gone]


def each_claim(waiting: Iterable[Startable]) -> Iterator[Claim]:
    """All claims, those of batches one by one."""
    for one in waiting:
        if isinstance(one, GatheredBatch):
            yield from one.claims
        else:
            yield one


def take_out(waiting: deque[Startable], dropped: Sequence[Claim]) -> int:
    """Take claims out of a line, and batches that have none left; how many claims of the batches that are left are not their first."""
    gone = {*map(id, dropped)}
    for one in waiting:
        if isinstance(one, GatheredBatch):
            without(one, dropped)
    kept = [one for one in waiting if (one.claims if isinstance(one, GatheredBatch) else id(one) not in gone)]
    waiting.clear()
    waiting += kept
    return sum(len(one.claims) - 1 for one in waiting if isinstance(one, GatheredBatch))
