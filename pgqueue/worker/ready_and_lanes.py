"""How a worker with weights or a strict order claims where limited jobs wait, too: ready jobs and lanes in one division.

Ready jobs and the jobs of lanes are claimed by different statements. If each divided its room by itself, a queue would have its
weight among ready jobs only, and a strict order would not hold between the two kinds. So one division (:mod:`pgqueue.values.queues.shares`)
says how many jobs each queue may have; they are claimed of both kinds; and the division learns what was claimed of both.

Each queue has a look at lanes of its own (:class:`ServedLanes`), so that a queue with many lanes does not keep another waiting.
Where jobs wait in the lanes of more than ``MOST_QUEUES`` queues, or where the worker goes around its queues, the two kinds take
turns instead, and a division holds among ready jobs only.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias

from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.values.jobs.job import Claim
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.values.queues.shares import Split, StrictOrder
from pgqueue.worker.queues import Queues

MOST_QUEUES = 20
"""Each queue with lanes costs a look a transaction."""
MOST = 60
"""Jobs of one look. They start in the order of their statements: with more of them a stretch of 1,000 jobs would be uneven."""

ClaimAnswer: TypeAlias = list[Claim] | None
"""None: the answer to a claim could not be handled."""
ClaimReady: TypeAlias = Callable[[Mapping[str, int], int], Awaitable[ClaimAnswer]]
"""Claims ready jobs: up to a number of each queue, and up to a number in all."""
ClaimFromLanes: TypeAlias = Callable[[ServedLanes, int], Awaitable[ClaimAnswer]]
"""Claims up to a number of jobs from lanes."""


class CombinedDivision:
    """Divides the room of one worker among its queues, for ready jobs and those of lanes together."""

    def __init__(self, queues: Queues, lanes: ServedLanes, served: ServedQueues) -> None:
        """``queues`` claims ready jobs, and knows how room is divided among queues."""
        self._queues = queues
        self._lanes = lanes
        self._served = served
        self._lanes_first = False

    def among(self, waiting: Collection[str]) -> Collection[str] | None:
        """The queues from whose lanes to claim; None: each kind has its turn instead, in a division of its own.

        Args:
            waiting: where jobs wait in lanes, if the worker serves queues that no entry names.
        """
        names = self._served.filtered(self._served.names)
        if self._served.is_open:
            names = [
                *dict.fromkeys([*self._served.filtered(waiting), *self._served.filtered(self._lanes.limited)])
            ]
        return names if len(names) <= MOST_QUEUES and self._queues.split is not None else None

    async def claim(
        self, room: int, of_lanes: Collection[str], *, ready: ClaimReady, lanes: ClaimFromLanes
    ) -> ClaimAnswer:
        """Claim from both until there is no room, or nothing may start.

        Args:
            room: at most how many.
            of_lanes: the queues from whose lanes to claim.
            ready: how ready jobs are claimed.
            lanes: how jobs of lanes are.
        """
        split = self._queues.split
        found: list[Claim] = []
        names = [*dict.fromkeys([*self._queues.starts(), *of_lanes])]
        while names and split is not None and len(found) < room:
            quotas = split.quotas(_next(split, names, of_lanes), room - len(found))
            claims = await self._claim_quotas(quotas, room - len(found), of_lanes, ready, lanes)
            if claims is None:
                return None
            served = Counter(one.queue for one in claims)
            split.learn(quotas, served, room - len(found))
            found += claims
            names = [one for one in names if one not in quotas or served[one] >= quotas[one]]
        return found

    async def _claim_quotas(
        self,
        quotas: Mapping[str, int],
        room: int,
        of_lanes: Collection[str],
        ready: ClaimReady,
        lanes: ClaimFromLanes,
    ) -> ClaimAnswer:
        """Claim up to these numbers. The two kinds are claimed first in turn, so that none waits for the other's end."""
        self._lanes_first = not self._lanes_first
        left = Counter(quotas)
        found: list[Claim] = []
        for is_lanes in (self._lanes_first, not self._lanes_first):
            if is_lanes:
                claims = await self._of_lanes(
                    [name for name in quotas if name in of_lanes], left, room, lanes
                )
            else:
                claims = await ready(+left, room) if room > 0 and +left else []
            if claims is None:
                return None
            left.subtract(one.queue for one in claims)
            room -= len(claims)
            found += claims
        return found

    async def _of_lanes(
        self, names: Collection[str], left: Mapping[str, int], room: int, lanes: ClaimFromLanes
    ) -> ClaimAnswer:
        found: list[Claim] = []
        for name in names:
            if (most := min(left[name], room - len(found))) > 0:
                claims = await lanes(self._lanes.of(name), most)
                if claims is None:
                    return None
                found += claims
        return found


def _next(split: Split, names: Collection[str], of_lanes: Collection[str]) -> list[str]:
    """Which of these queues are divided among now.

    In a strict order: one with lanes alone, as its jobs of both kinds go before those of the next queue; or the ones before it.
    """
    if not isinstance(split, StrictOrder):
        return [*names]
    chosen: list[str] = []
    for name in split.sorted(names):
        if name in of_lanes:
            return chosen or [name]
        chosen.append(name)
    return chosen
