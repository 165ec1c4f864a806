"""How many slots the worker has while it runs, and the connections that its jobs may need at the same time.

:func:`pgqueue.values.load.next_size` decides the number. Slots are added at once, after the pools of connections have room
for their jobs. When slots go, no attempt is cut short: a runner leaves when its attempt has ended.
"""

from collections.abc import Callable

from pgqueue.store.pools import Pools
from pgqueue.values.load import Bounds, Load, next_size
from pgqueue.worker.claims import Claims
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.runners import Runners

log = worker_log()


class Slots:
    """The slots of one worker.

    Attributes:
        bounds: between which numbers the worker chooses.
        measure: returns the load of the last second. Tests set another one.
    """

    def __init__(
        self, bounds: Bounds, claims: Claims, runners: Runners, pools: Pools, measure: Callable[[], Load]
    ) -> None:
        """Have the slots that the claims have.

        Args:
            bounds: between which numbers to choose.
            claims: have the slots.
            runners: start attempts in new slots.
            pools: have a connection for the job of each slot.
            measure: returns the load of the last second; asked only where there is a choice.
        """
        self.bounds = bounds
        self.measure = measure
        self._claims = claims
        self._runners = runners
        self._pools = pools
        self._connections = 0

    async def run_once(self) -> None:
        """Choose the number of slots for the next second."""
        before = self._claims.size
        load = Load() if self.bounds.fixed else self.measure()
        size = next_size(load, before, self.bounds)
        await self._have_connections(max(size, self._claims.taken))
        if size == before:
            return
        self._runners.resize(size)
        log.debug("number of slots changed", extra={"slots": size, "before": before, "load": str(load)})

    async def open(self) -> None:
        """The worker starts: else jobs with a transaction each could wait for one another's connections."""
        await self._have_connections(self._claims.size)

    async def close(self) -> None:
        """The worker has stopped: its jobs need no connections."""
        await self._have_connections(0)

    async def _have_connections(self, needed: int) -> None:
        if needed != self._connections:
            await self._pools.fit(needed - self._connections)
            self._connections = needed
