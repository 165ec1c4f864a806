"""A worker of a queue over several databases: one :class:`~pgqueue.worker.worker.Worker` for each, which share the slots.

Each has its own lease, claims and connections, so a shard that does not answer stops no other: its worker is started again
until it does. Twice a second the slots are divided anew: a worker without jobs keeps one, with which it finds the next job,
and the others have the rest.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.shards import on_database, sharded_database
from pgqueue.errors import ConfigurationError, ConnectionFailed, SchemaError, ShardDown
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.shards import require_movable, slots_of
from pgqueue.values.workers.health import Vitals
from pgqueue.values.workers.load import Bounds, checked_bounds
from pgqueue.worker.attempt_process import place_of
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.worker import Worker

if TYPE_CHECKING:
    from pgqueue.values.workers.worker import End

log = worker_log()

AGAIN_AFTER = 3.0
"""Seconds until a shard that does not answer is tried again."""
DIVIDE_EVERY = 0.5
"""Seconds."""


class ShardedWorker:
    """Runs the jobs of all shards, up to ``concurrency`` at a time, until it is stopped.

    Attributes:
        queue: whose tasks it runs.
        supervised: as of :class:`~pgqueue.worker.worker.Worker`.
        app: as of :class:`~pgqueue.worker.worker.Worker`.
        workers: those that run now, by the place of their database in the list.
        asked_to_end: how one of its workers was asked from outside to end; then all end. None: none was.
        own_end: why the worker of a shard ended by itself; each does so for its own shard. None: none has.
        died: how many jobs of their attempts are dead.
    """

    supervised = False
    app: str | None = None

    def __init__(self, queue: PgQueue, *, concurrency: int | tuple[int, int] = 20, **options: Any) -> None:  # noqa: ANN401, D417 - Worker's own
        """Describe the workers; :meth:`run` starts them. The other options are those of :class:`~pgqueue.worker.worker.Worker`.

        Args:
            queue: whose tasks to run; it has shards.
            concurrency: how many jobs of all shards to run at a time; of a minimum and a maximum, the maximum.

        Raises:
            InvalidOption: a value is out of its range, or a schedule's job has a key.
            ConfigurationError: the queue has no shards, or there are fewer slots than shards.
        """
        self.queue = queue
        self.workers: dict[int, Worker] = {}
        self.asked_to_end: End | None = None
        self.own_end: str | None = None
        self.died = 0
        self._databases = sharded_database(queue).databases
        self._total = checked_bounds(concurrency).maximum
        if self._total < len(self._databases):
            raise ConfigurationError(
                f"concurrency={self._total}: use at least {len(self._databases)}, one for each shard"
            )
        for schedule in queue.schedules.declared():
            require_movable(schedule)
        self._options = options
        self._stops = 0
        self._stopping = asyncio.Event()
        Worker(
            on_database(queue, self._databases[0]), concurrency=self._total, **options
        )  # refuses wrong options

    def vitals(self) -> Vitals:
        """How the worker is that renewed its lease last. From any thread.

        Raises:
            ShardDown: no shard answers, so there is none.
        """
        found = [one.vitals() for one in list(self.workers.values())]
        if not found:
            raise ShardDown("no shard answers")
        return min(found, key=lambda one: float("inf") if one.renewed is None else one.renewed)

    def stop(self) -> None:
        """Stop all gracefully; called again, at once. Call it in the event loop."""
        self._stops += 1
        self._stopping.set()
        for one in self.workers.values():
            one.stop()

    async def run(self) -> None:
        """Run the jobs of every shard that answers, until stopped.

        Raises:
            ConnectionFailed: no shard answers at the start.
            ConfigurationError: no database that answers is a shard.
        """
        await sharded_database(self.queue).ashards()  # raises the errors
        keepers = [
            asyncio.create_task(self._keep(place), name=f"pgqueue shard {place}")
            for place in range(len(self._databases))
        ]
        dividing = asyncio.create_task(self._divide(), name="pgqueue slots of shards")
        try:
            await asyncio.gather(*keepers)
        finally:
            for task in (dividing, *keepers):
                task.cancel()
            await asyncio.gather(dividing, *keepers, return_exceptions=True)

    async def _keep(self, place: int) -> None:
        """Keep a worker on one database; start it again while its shard does not answer."""
        queue = on_database(self.queue, self._databases[place])
        told = False
        while not self._stopping.is_set():
            share = self._total // len(self._databases)
            worker = Worker(queue, concurrency=share, **self._options)
            worker.supervised, worker.app = self.supervised, self.app or place_of(self.queue)
            self.workers[place] = worker
            try:
                await worker.run()
            except (ConnectionFailed, SchemaError) as error:
                if not told:
                    log.warning(
                        "a shard does not answer; its jobs wait", extra={"shard": place, "error": str(error)}
                    )
                told = True
            else:
                if worker.asked_to_end:
                    self.asked_to_end = worker.asked_to_end
                    self.stop()
                told = False
            finally:
                self.died += worker.died
                del self.workers[place]
            if worker.own_end:
                self.own_end = worker.own_end
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_AFTER):
                    await self._stopping.wait()

    async def _divide(self) -> None:
        while True:
            divide([*self.workers.values()], self._total)
            await asyncio.sleep(DIVIDE_EVERY)


def divide(workers: Sequence[Worker], total: int) -> None:
    """Give the workers of all shards their slots.

    Args:
        workers: they.
        total: how many slots there are.
    """
    if not workers:
        return
    wants = []
    for one in workers:
        claims = one.parts.claims
        full = claims.taken >= claims.size or any(True for _ in claims.unstarted())
        wants.append(total if full else claims.taken + 1)
    for one, slots in zip(workers, slots_of(total, wants), strict=True):
        bounds = Bounds(slots, slots)
        if one.parts.slots.bounds != bounds:
            one.parts.slots.bounds = bounds
            one.parts.signals.slots.set()


def worker_of(queue: PgQueue, **options: Any) -> Worker | ShardedWorker:  # noqa: ANN401 - Worker's own
    """The worker of a queue, of one database or several."""
    sharded = isinstance(queue.database.itself, ShardedDatabase)
    return ShardedWorker(queue, **options) if sharded else Worker(queue, **options)
