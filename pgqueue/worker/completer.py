"""Keeps verdicts until the database has them: records how attempts ended, in batches.

A batch is what ended while the last batch was written. It is bounded in number and in bytes: a message that is too
large would be refused each time. A verdict that could not be recorded is kept, and tried again for as long as the worker
runs; when the worker leaves, a sweep of another worker ends the job's attempt. How a batch is written, and what is written
if a row is locked or a verdict refused, is in :mod:`pgqueue.worker.recorder`.

While a task blocks the event loop, the heartbeat's thread writes in its place, on a connection of its own
(:meth:`Completer.stand_in`). It cannot know how much of a batch on its way was recorded, so it writes that batch again:
the fence makes the second write harmless.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from pgqueue.app.hooks.observer import Observers
from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.jobs.notifications import wake
from pgqueue.values.jobs.verdict import Died, Succeeded, Verdict, as_recorded
from pgqueue.worker.claims import Claims
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.recorder import LOCKED_FOR, Recorder, WriteResult, log_fields
from pgqueue.worker.served_tasks import ServedTasks
from pgqueue.worker.signals import Signals

if TYPE_CHECKING:
    from pgqueue.store.jobs.ending import States

log = worker_log()

LARGEST_BATCH = 1_000
MOST_BYTES = 8_000_000
"""Of the results in a batch. Errors are bounded in themselves."""
GATHER_FOR = 0.005
"""Seconds from the beginning of one batch to the next, while jobs wait for slots: a statement costs as much as some dozen jobs."""
ENOUGH = 50
"""Verdicts that are worth a batch of their own."""
NAP = 0.001
"""Seconds between two looks at how many there are."""
_JOB = attrgetter("claim.id")
_RESULT = attrgetter("result")
_WORKER = attrgetter("claim.worker_id")


class Completer:
    """Records verdicts soon after attempts end. A verdict is kept until the database has it.

    Attributes:
        died: how many jobs are dead by what it recorded.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        claims: Claims,
        queue: PgQueue,
        *,
        tasks: ServedTasks | None = None,
        signals: Signals | None = None,
        observers: Observers | None = None,
    ) -> None:
        """The connection has ``LOCK_TIMEOUT`` set. The lock of ``claims`` guards what is kept here, too.

        ``signals`` is told, in the event loop, of each batch that has been dealt with.
        """
        self._connection = connection
        self._claims = claims
        self._tasks = tasks or ServedTasks(queue.tasks)
        self._queue = queue
        self._signals = signals or Signals()
        self._recorder = Recorder(connection.run, connection, queue, claims=self._claims_jobs)
        self._observers = observers or Observers()
        self._writing: list[Verdict] = []
        self._standing_in: list[Verdict] = []
        self._written_twice: list[Verdict] = []  # the loop's batch that the stand-in has written again …
        self._recorded: States = {}  # … and those of its jobs that were recorded by that
        self._later: list[tuple[float, Verdict]] = []
        self.died = 0
        self._doubts: list[Verdict] = []
        self._wrote_at = 0.0
        self._dealt_with: set[int] | None = None
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def _claims_jobs(self) -> bool:
        return not (self._signals.stopping.is_set() or self._claims.quiet)

    @property
    def backlog(self) -> int:
        """How many verdicts the database does not have yet."""
        return len(self._claims.verdicts) + len(self._writing) + len(self._standing_in) + len(self._later)

    @property
    def put_off(self) -> tuple[Verdict, ...]:
        """The verdicts that were locked or refused, and are tried again."""
        return tuple(verdict for _, verdict in self._later)

    def known(self) -> list[int]:
        """The ids of all jobs that the worker knows to be in its name. May be called in any thread."""
        claims = self._claims
        with claims.lock:
            unrecorded = [*claims.verdicts, *self._writing, *self._standing_in, *self.put_off]
            waiting = [claim.id for claim in claims.unstarted()]
            return [*claims.running, *waiting, *(verdict.claim.id for verdict in unrecorded)]

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Have verdicts recorded soon."""
        with self._claims.lock:
            self._claims.verdicts += verdicts
        self.look()

    def look(self) -> None:
        """Go on if there is more to record. Called in the worker's event loop."""
        if self._claims.verdicts:
            self._idle.clear()
            self._added.set()
        elif not self.backlog:
            self._idle.set()

    def forget(self, worker: UUID) -> list[Verdict]:
        """Drop what was put off for a worker id that lost its lease: nothing of it would be recorded. In any thread."""
        with self._claims.lock:
            dropped = [verdict for verdict in self.put_off if verdict.claim.worker_id == worker]
            self._later = [one for one in self._later if one[1].claim.worker_id != worker]
        self._signals.call(self.look)
        return dropped

    def take_doubts(self) -> list[Verdict]:
        """Hand over the verdicts that were refused, or that changed nothing."""
        with self._claims.lock:
            doubts, self._doubts = self._doubts, []
            return doubts

    def collect_dealt_with(self, job_ids: set[int] | None) -> None:
        """From now on, add to this set the jobs of every batch that has been dealt with; None: no longer."""
        self._dealt_with = job_ids

    async def run(self) -> None:
        """Record batches for ever; look every second after those that have to wait, while there are any."""
        while True:
            with suppress(TimeoutError):  # not wait_for, which may lose a cancellation to an addition
                async with asyncio.timeout(LOCKED_FOR if self._later else None):
                    await self._added.wait()
            await self._gather()
            await self.run_once()

    async def _gather(self) -> None:
        """While jobs wait for slots, let some time pass between two batches, if nothing waits for what is to be recorded."""
        claims, looked_at = self._claims, 0
        while self._wrote_at + GATHER_FOR > time.monotonic() and claims.queued:
            new = claims.verdicts[looked_at:ENOUGH]
            looked_at += len(new)
            if (
                looked_at >= ENOUGH
                or self._signals.stopping.is_set()
                or not all(map(_is_awaited_by_none, new))
            ):
                break
            await asyncio.sleep(NAP)

    async def run_once(self) -> None:
        """Record one batch: verdicts of one worker id, as many as have gathered."""
        self._added.clear()
        with self._claims.lock:
            batch = self._writing = self._next_batch()
        if batch:
            self._wrote_at = time.monotonic()
            written = await self._recorder.write(batch)
            with self._claims.lock:
                written.done |= self._recorded
                self._writing, self._recorded = [], {}
            self._note(batch, written)
            self._end_batch(batch)
            if not self._claims_jobs() and any(one.claim.lane is not None for one in batch):
                await self._connection.run(wake())  # other workers may have the places of their limits
        self.look()

    async def stand_in(
        self, connection: WorkerConnection, *, tell_started: Callable[[], object] = lambda: None
    ) -> None:
        """Record what there is, in the place of :meth:`run`, whose event loop is blocked. In another thread's loop.

        Args:
            connection: one of that loop, which raises if a row is locked.
            tell_started: tells observers of starts; called for each batch, before its ends are told.

        Raises:
            psycopg.Error: the database is away. Nothing is lost: it waits here as before.
            ConnectionFailed: the same.
        """
        recorder = Recorder(connection.once, connection, self._queue, claims=lambda: False)
        try:
            await self._write_again(recorder)
            while await self._write_next(recorder, tell_started):
                pass
        finally:  # the loop may wait for an addition, though what it is to write has come back meanwhile
            self._signals.call_soon(self._added.set)

    async def _write_again(self, recorder: Recorder) -> None:
        """Write the batch that the blocked loop had sent."""
        on_its_way = self._writing
        if on_its_way and on_its_way is not self._written_twice:
            written = await recorder.write(on_its_way)
            with self._claims.lock:
                self._written_twice = on_its_way
                self._recorded |= written.done if self._writing is on_its_way else {}

    async def _write_next(self, recorder: Recorder, tell_started: Callable[[], object]) -> bool:
        """Write a batch that waits, in another thread's loop; return whether there was one."""
        with self._claims.lock:
            batch = self._standing_in = self._next_batch()
        if not batch:
            return False
        try:
            tell_started()
            written = await recorder.write(batch)
        except BaseException:
            with self._claims.lock:
                self._claims.verdicts[:0] = batch
            raise
        finally:
            self._standing_in = []
        self._note(batch, written)
        self._signals.call_soon(partial(self._end_batch, batch))
        return True

    async def flushed(self) -> None:
        """Wait until the database has every verdict."""
        await self._idle.wait()

    def _end_batch(self, batch: Sequence[Verdict]) -> None:
        """Note that a batch has been dealt with. Called in the worker's event loop."""
        if self._dealt_with is not None:
            self._dealt_with.update(verdict.claim.id for verdict in batch)
        self._signals.recorded(batch)

    def _next_batch(self) -> list[Verdict]:
        """Take from what waits: verdicts of one worker id, few enough and small enough for one message, one for each job."""
        waiting = self._claims.verdicts
        if self._later:
            now = time.monotonic()
            waiting[:0] = [verdict for due, verdict in self._later if due <= now]
            self._later = [one for one in self._later if one[0] > now]
        batch = waiting[:LARGEST_BATCH]
        if batch and not _are_alike_and_small(batch):
            batch = batch[: _count_fitting(batch)]
        del waiting[: len(batch)]
        return batch

    def _note(self, batch: Sequence[Verdict], written: WriteResult) -> None:
        """Keep what has to wait, and look for verdicts that changed nothing."""
        done, now = written.done, time.monotonic()
        if len(done) == len(batch) and not written.refused and {*map(type, batch)} == {Succeeded}:
            self._observers.ended(batch)
            return
        if done:
            recorded = [written.fallbacks.get(one.claim.id, one) for one in batch if one.claim.id in done]
            ended = [as_recorded(one, done[one.claim.id]) for one in recorded]
            self._observers.ended(ended)
            dead = [one for one in ended if isinstance(one, Died)]
            self.died += len(dead)
            for task in {one.claim.task for one in dead if one.reason == "unknown"}:
                self._tasks.try_again(task)
        later = [(now + seconds, one) for seconds, one in written.later if one.claim.id not in done]
        expected = done.keys() | {one.claim.id for _, one in later}
        passed_over = [verdict for verdict in batch if verdict.claim.id not in expected]
        with self._claims.lock:
            self._later += later
            self._doubts += [*passed_over, *written.refused]
        if passed_over and written.certain:
            self._tell_superseded(passed_over)

    def _tell_superseded(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            log.warning(
                "attempt superseded: it no longer held its job, and nothing was recorded",
                extra={**log_fields(verdict), "attempt": verdict.claim.attempt},
            )
        self._observers.lost([verdict.claim for verdict in verdicts])


def _count_fitting(verdicts: Sequence[Verdict]) -> int:
    """How many of them, from the first on, make a batch: of one worker id, small enough, and one for each job; at least one.

    A server that crashes may forget a claim. Then this worker may claim the job again while the verdict on the first attempt
    waits. In one batch with the second one, both would seem to be recorded, though one fence is out of date.
    """
    worker, size, jobs = verdicts[0].claim.worker_id, 0, set[int]()
    for count, verdict in enumerate(verdicts):
        size += len(verdict.result) if type(verdict) is Succeeded and verdict.result else 0
        fits = size <= MOST_BYTES and verdict.claim.worker_id == worker and verdict.claim.id not in jobs
        if count and not fits:
            return count
        jobs.add(verdict.claim.id)
    return len(verdicts)


def _are_alike_and_small(batch: Sequence[Verdict]) -> bool:
    """Whether all are successes of one worker id without a result, each of another job, as in most batches.

    It takes no step of Python for each verdict.
    """
    if {*map(type, batch)} != {Succeeded} or len({*map(_JOB, batch)}) != len(batch):
        return False
    return not any(map(_RESULT, batch)) and len({*map(id, map(_WORKER, batch))}) == 1


def _is_awaited_by_none(verdict: Verdict) -> bool:
    """Whether no program waits for the job's end, no flow goes on with it, and it frees no place of a limit."""
    claim = verdict.claim
    return isinstance(verdict, Succeeded) and not claim.flags and claim.lane is None
