"""Which claims wait in the worker's memory before a runner may take them: for others of their batch, or for their instant.

Claims of one task with equal values of its ``by`` arguments make a *group*. A group is a batch once it has ``size`` claims, or
once ``wait`` has passed since the first of them came. If more than :data:`MOST` claims wait, the oldest groups are batches sooner.

:class:`pgqueue.worker.claims.Claims` calls this under its lock, and starts the batches.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pgqueue.app.task import Task
from pgqueue.values.jobs.job import Claim
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


class BatchGroups:
    """The groups that wait for more claims.

    Attributes:
        count: how many claims wait in them.
        due: no group is a batch before this because of its wait, in seconds of the monotonic clock; infinity: there is none.
    """

    def __init__(self, codec: Codec | None) -> None:
        self.count = 0
        self.due = math.inf
        self._codec = codec
        self._groups: dict[object, GatheredBatch] = {}

    def missing(self, tasks: Mapping[str, Task[..., Any]]) -> int:
        """How many more claims may make a batch of what waits; 0: no claim waits.

        One group lacks a known number. Of several, each next claim may be of any: as many again, so that few claims fill them.
        """
        if not self._groups:
            return 0
        group = next(iter(self._groups.values()))
        policy = tasks[group.task].batching
        assert policy is not None  # noqa: S101 - only claims of batch tasks come here
        return policy.size - len(group.claims) if len(self._groups) == 1 else max(policy.size, self.count)

    def claims(self) -> list[Claim]:
        """All that wait."""
        return [claim for group in self._groups.values() for claim in group.claims]

    def add(self, claim: Claim, task: Task[..., Any], now: float) -> GatheredBatch | None:
        """Have a claim wait; or the batch that it completes."""
        policy = task.batching
        assert policy is not None  # noqa: S101 - only claims of batch tasks come here
        key = group_of(claim, policy.by, self._codec)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = GatheredBatch(claim.task, now + policy.wait)
            self.due = min(self.due, group.due)
        group.claims.append(claim)
        self.count += 1
        return self._pop(key) if len(group.claims) >= policy.size else None

    def take_due(self, now: float) -> list[GatheredBatch]:
        """The groups that wait no longer: their time has passed, or too many claims wait."""
        due: list[GatheredBatch] = []
        if now >= self.due:
            due += [self._pop(key) for key, group in [*self._groups.items()] if group.due <= now]
            self.due = min((group.due for group in self._groups.values()), default=math.inf)
        while self.count > MOST:
            due.append(self._pop(next(iter(self._groups))))
        return due

    def drop(self, is_meant: Callable[[Claim], bool]) -> list[Claim]:
        """Take out these claims."""
        dropped = [claim for claim in self.claims() if is_meant(claim)]
        for key, group in [*self._groups.items()] if dropped else ():
            without(group, dropped)
            if not group.claims:
                del self._groups[key]
        self.count -= len(dropped)
        return dropped

    def _pop(self, key: object) -> GatheredBatch:
        group = self._groups.pop(key)
        self.count -= len(group.claims)
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


class DelayedStarts:
    """Claims, each with the instant at which it starts, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Claim]] = []
        self._count = count()  # claims of one instant start in the order in which they came

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._heap)

    @property
    def due(self) -> float:
        """When the next one starts; infinity: none waits."""
        return self._heap[0][0] if self._heap else math.inf

    def claims(self) -> list[Claim]:
        """All that wait."""
        return [claim for _, _, claim in sorted(self._heap)]

    def add(self, claim: Claim, due: float) -> None:
        """Have a claim wait until then."""
        heapq.heappush(self._heap, (due, next(self._count), claim))

    def take_due(self, now: float) -> list[Claim]:
        """The claims whose instant has come, in order."""
        due: list[Claim] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def drop(self, is_meant: Callable[[Claim], bool]) -> list[Claim]:
        """Take out these claims."""
        dropped = [claim for claim in self.claims() if is_meant(claim)]
        if dropped:
            self._heap = [one for one in self._heap if not is_meant(one[2])]
            heapq.heapify(self._heap)
        return dropped
