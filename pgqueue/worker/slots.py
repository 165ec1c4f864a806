"""How many slots the worker has while it runs, and what it was asked to do from outside: another number, to be quiet, stop, restart.

:func:`pgqueue.values.workers.load.next_size` decides the number. Slots are added at once, after the pools of connections have room
for their jobs. When slots go, no attempt is cut short: a runner leaves when its attempt has ended. What is asked is in the
worker's row: the heartbeat reads it, and says what the worker does.
"""

from collections.abc import Callable

from pgqueue.store.connections.pools import Pools
from pgqueue.values.workers.load import Bounds, WorkerLoad, next_size
from pgqueue.values.workers.worker import CANNOT_RESTART, End, WorkerReport, WorkerRequest
from pgqueue.worker.claims import Claims
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.runners import Runners
from pgqueue.worker.signals import Signals

log = worker_log()


class Slots:
    """The slots of one worker.

    Attributes:
        bounds: between which numbers the worker chooses.
        measure: returns the load of the last second; asked only where there is a choice. Tests set another one.
        end: how it was asked to end; None: it was not.
    """

    def __init__(
        self,
        bounds: Bounds,
        claims: Claims,
        runners: Runners,
        pools: Pools,
        *,
        measure: Callable[[], WorkerLoad],
        signals: Signals,
        supervised: Callable[[], bool],
    ) -> None:
        """``supervised`` tells whether a supervisor starts this worker again."""
        self.bounds = bounds
        self.measure = measure
        self.end: End | None = None
        self._unsaid = False
        self._claims = claims
        claims.largest = bounds.maximum
        self._runners = runners
        self._pools = pools
        self._signals = signals
        self._supervised = supervised
        self._connections = 0
        self._obeyed = WorkerRequest()
        self._answer: str | None = None

    @property
    def unsaid(self) -> bool:
        """Whether the worker does something that its row does not say."""
        return self._unsaid or self._claims.unsaid

    def doing(self) -> WorkerReport:
        """What the worker does now. May be called in any thread."""
        claims = self._claims
        self._unsaid = claims.unsaid = False
        return WorkerReport(self.bounds, claims.size, claims.quiet, self._supervised(), self._answer)

    async def run_once(self) -> None:
        """Choose the number of slots for the next second."""
        before = self._claims.size
        load = WorkerLoad() if self.bounds.fixed else self.measure()
        size = next_size(load, before, self.bounds)
        await self._have_connections(max(size, self._claims.taken))
        if size == before:
            return
        self._runners.resize(self.bounds.nearest(size))
        self._unsaid |= (
            self.bounds.fixed
        )  # it was asked; a heartbeat may have said the former number meanwhile
        log.debug("number of slots changed", extra={"slots": size, "before": before, "load": str(load)})

    def replace(self, why: str) -> None:
        """End, so that a supervisor starts a new process; say why. Called in the loop."""
        self.end, self._answer, self._unsaid = "restart", f"replaced: {why}", True
        log.info("worker process is to be replaced", extra={"why": why})
        self._signals.slots.set()
        self._signals.stopping.set()

    def obey(self, ask: WorkerRequest) -> None:
        """Do what was asked, once. Called in the heartbeat's thread, so that it works while the event loop is blocked."""
        if ask in (
            self._obeyed,
            WorkerRequest(),
        ):  # a new row, after a lost lease, asks nothing: the worker stays as it is
            return
        self._obeyed = ask
        self._answer = None
        asked = {"by": ask.by, "at": str(ask.at)}
        if ask.bounds is not None and ask.bounds != self.bounds:
            log.info("asked to change the number of slots", extra={**asked, "concurrency": str(ask.bounds)})
            self._have(ask.bounds)
        if ask.quiet is not None and ask.quiet is not self._claims.quiet:
            log.info("asked to be quiet" if ask.quiet else "asked to claim jobs again", extra=asked)
            self._set_quiet(on=ask.quiet)
        if ask.end is not None and ask.end != self.end:
            self._end(ask.end, asked)
        self._unsaid = True
        self._signals.call_soon(self._signals.slots.set)

    async def open(self) -> None:
        """The worker starts: else jobs with a transaction each could wait for one another's connections."""
        await self._have_connections(self._claims.size)

    async def close(self) -> None:
        """The worker has stopped: its jobs need no connections."""
        await self._have_connections(0)

    def _have(self, bounds: Bounds) -> None:
        """Remove slots now; slots are added in the event loop, when there are connections for them."""
        self.bounds = bounds
        self._claims.largest = bounds.maximum
        if self._claims.size > bounds.maximum:
            self._claims.resize(bounds.maximum)

    def _set_quiet(self, *, on: bool) -> None:
        self._claims.set_quiet(on=on)
        if on:
            self._runners.return_waiting()
        self._signals.call_soon(lambda: self._runners.resize(self._claims.size))

    def _end(self, how: End, asked: dict[str, str | None]) -> None:
        if how == "restart" and not self._supervised():
            self._answer = f"cannot restart: {CANNOT_RESTART}"
            log.warning(self._answer, extra=asked)
            return
        log.info("asked to restart" if how == "restart" else "asked to stop", extra=asked)
        self.end = how
        self._signals.call_soon(self._signals.stopping.set)

    async def _have_connections(self, needed: int) -> None:
        if needed != self._connections:
            await self._pools.fit(needed - self._connections)
            self._connections = needed
