"""Writes down how attempts ended, in batches: what has gathered while the last batch was written.

A batch is bounded in number and in bytes: a message that is too large would be refused for ever.

A batch can be held up: a transaction of another program has one of its rows locked (an enqueue that found its unique
key taken counts itself on that row). The link waits 0.1 s for locks; then those verdicts are written whose rows are
free, and the others wait apart while the work goes on.

A batch can be refused: a verdict in it cannot be stored. Then it is written verdict by verdict, and the one that is
refused is recorded in plainer words. If those are refused as well, the verdict is kept and tried again every minute,
for as long as the worker runs; when it leaves, a sweep of another worker ends the job's attempt.

While a task blocks the event loop, the heartbeat's thread writes in its place, on a link of its own
(:meth:`Completer.stand_in`). Of a batch that was on its way then, nobody knows how far it came, so it is written once
more: the fence makes the second write harmless.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg

from pgqueue.store import finish
from pgqueue.store.finish import States
from pgqueue.store.plan import Plan
from pgqueue.values.verdict import Succeeded, Verdict, plainer
from pgqueue.worker import joblog
from pgqueue.worker.connection import WorkerConnection, passes
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.signals import TaskLoop

log = worker_log()

LARGEST_BATCH = 1_000
MOST_BYTES = 8_000_000
"""Of the results in a batch. Errors are bounded in themselves."""
LOCK_TIMEOUT: Mapping[str, str] = {"lock_timeout": "100ms"}
_RESULT = attrgetter("result")
_WORKER = attrgetter("claim.worker_id")
HELD_UP_FOR = 1.0
REFUSED_FOR = 60.0
"""Seconds until a verdict is tried again whose row was locked, or that was refused in every way of saying it."""


class Completer:
    """Takes verdicts at once and records them soon. A verdict is kept until the database has it."""

    def __init__(
        self,
        link: WorkerConnection,
        *,
        keep: bool,
        on_written: Callable[[Sequence[Verdict]], object],
        on_doubt: Callable[[Sequence[Verdict]], object] = lambda _: None,
        home: TaskLoop | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            link: the connection to write on, with ``LOCK_TIMEOUT`` set.
            keep: whether succeeded jobs go to the history.
            on_written: told, in the event loop, of each batch that has been dealt with.
            on_doubt: told of verdicts that were refused or changed nothing, in any thread.
            home: the worker's event loop.
        """
        self._link = link
        self._keep = keep
        self._on_written = on_written
        self._on_doubt = on_doubt
        self._home = home or TaskLoop()
        self._lock = threading.Lock()
        self._waiting: list[Verdict] = []
        self._writing: list[Verdict] = []
        self._standing_in: list[Verdict] = []
        self._seconded: list[Verdict] = []  # the loop's batch that the stand-in has written once more …
        self._recorded: States = {}  # … and those of its jobs that were recorded by that
        self._later: list[tuple[float, Verdict]] = []
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        """How many verdicts the database does not have yet."""
        return len(self._waiting) + len(self._writing) + len(self._standing_in) + len(self._later)

    def known(self, others: Callable[[], Iterable[int]] = tuple) -> list[int]:
        """The jobs of those verdicts, and others: of whatever comes here next, for none to be missed on its way."""
        with self._lock:
            later = (verdict for _, verdict in self._later)
            ours = [*self._waiting, *self._writing, *self._standing_in, *later]
            return [*others(), *(verdict.claim.id for verdict in ours)]

    def add(self, *verdicts: Verdict) -> None:
        """Have verdicts recorded soon."""
        if verdicts:
            with self._lock:
                self._waiting += verdicts
            self._added.set()
            self._idle.clear()

    def forget(self, worker: UUID) -> None:
        """Drop what waits for a worker id that lost its lease: nothing of it would be recorded. In any thread."""
        with self._lock:
            self._waiting = [verdict for verdict in self._waiting if verdict.claim.worker_id != worker]
            self._later = [one for one in self._later if one[1].claim.worker_id != worker]
        self._home.call(self._look_after)

    async def run(self) -> None:
        """Record batches for ever; look every second after those that have to wait, while there are any."""
        while True:
            with suppress(TimeoutError):  # not wait_for, which may lose a cancellation to an addition
                async with asyncio.timeout(HELD_UP_FOR if self._later else None):
                    await self._added.wait()
            await self.run_once()

    async def run_once(self) -> None:
        """Record one batch: verdicts of one worker id, as many as have gathered."""
        self._added.clear()
        with self._lock:
            batch = self._writing = self._next_batch()
        if batch:
            written = await self._write(partial(_patiently, self._link), batch)
            with self._lock:
                written.done |= self._recorded
                self._writing, self._recorded = [], {}
            self._note(batch, written)
            self._on_written(batch)
        self._look_after()

    async def stand_in(self, link: WorkerConnection, more: Callable[[], Iterable[Verdict]]) -> None:
        """Record what there is, in the place of :meth:`run`, whose event loop is blocked. In another thread's loop.

        Args:
            link: a link of that loop, of which it is told when a row is locked.
            more: verdicts that have not come here yet.

        Raises:
            psycopg.Error: the database is away. Nothing is lost: it waits here as before.
            ConnectionFailed: the same.
        """
        write = partial(_once, link)
        with self._lock:
            self._waiting += more()
            on_its_way = self._writing
        if on_its_way and on_its_way is not self._seconded:
            written = await self._write(write, on_its_way)
            with self._lock:
                self._seconded = on_its_way
                self._recorded |= written.done if self._writing is on_its_way else {}
        while batch := self._stand_in_batch():
            try:
                written = await self._write(write, batch)
            except BaseException:
                with self._lock:
                    self._waiting = [*batch, *self._waiting]
                raise
            finally:
                self._standing_in = []
            self._note(batch, written)
            self._home.call_soon(partial(self._on_written, batch))
        self._home.call_soon(self._look_after)

    def _stand_in_batch(self) -> list[Verdict]:
        with self._lock:
            self._standing_in = self._next_batch()
            return self._standing_in

    async def flushed(self) -> None:
        """Wait until the database has every verdict."""
        await self._idle.wait()

    def _look_after(self) -> None:
        """Go on if there is more to do."""
        if self._waiting:
            self._idle.clear()
            self._added.set()
        elif not self.backlog:
            self._idle.set()

    def _next_batch(self) -> list[Verdict]:
        """Take from what waits: verdicts of one worker id, few enough and small enough for one message."""
        if self._later:
            self._take_up_later()
        if not self._waiting:
            return []
        batch = self._waiting[:LARGEST_BATCH]
        if _are_alike_and_small(batch):
            del self._waiting[:LARGEST_BATCH]
            return batch
        worker, size = self._waiting[0].claim.worker_id, 0
        count = 0
        for verdict in self._waiting:
            size += len(verdict.result) if type(verdict) is Succeeded and verdict.result else 0
            one = verdict.claim.worker_id
            if count and (size > MOST_BYTES or (one is not worker and one != worker)):
                break
            count += 1
            if count == LARGEST_BATCH:
                break
        batch = self._waiting[:count]
        del self._waiting[:count]
        return batch

    def _take_up_later(self) -> None:
        now = time.monotonic()
        self._waiting = [*(verdict for due, verdict in self._later if due <= now), *self._waiting]
        self._later = [one for one in self._later if one[0] > now]

    async def _write(self, ask: "Ask", batch: Sequence[Verdict]) -> "Written":
        """Record a batch, as far as the database takes it."""
        worker = batch[0].claim.worker_id
        try:
            done, cut = await ask(finish.finish(worker, batch, keep=self._keep))
        except psycopg.errors.LockNotAvailable:
            return await self._write_unlocked(ask, batch)
        except psycopg.Error as refusal:
            if passes(refusal):
                raise
            return await self._write_plainer(ask, batch, refusal)
        return Written(done, certain=not cut)

    async def _write_unlocked(self, ask: "Ask", batch: Sequence[Verdict]) -> "Written":
        """Another transaction has locked a row: record the others. If it has locked the table, all wait."""
        worker = batch[0].claim.worker_id
        try:
            (done, locked), cut = await ask(finish.finish_unlocked(worker, batch, keep=self._keep))
        except psycopg.errors.LockNotAvailable:
            done, locked, cut = {}, {verdict.claim.id for verdict in batch}, False
        held_up = [(HELD_UP_FOR, verdict) for verdict in batch if verdict.claim.id in locked]
        kinds = {
            type(verdict) for verdict in batch
        }  # of several, the first may have been recorded before the lock
        return Written(done, held_up, certain=not cut and len(kinds) == 1)

    async def _write_plainer(self, ask: "Ask", batch: Sequence[Verdict], refusal: psycopg.Error) -> "Written":
        """The database refused a verdict: find it by writing one at a time, and record it in plainer words."""
        written = Written(
            certain=False
        )  # those of another kind than the refused one's may be recorded already
        if len(batch) > 1:
            for one in batch:
                alone = await self._write(ask, [one])
                written.done |= alone.done
                written.later += alone.later
                written.plainer |= alone.plainer
            return written
        (verdict,) = batch
        fields = {"job": verdict.claim.id, "task": verdict.claim.task}
        log.error("verdict refused; it is recorded in plainer words", extra=fields, exc_info=refusal)
        self._on_doubt(batch)
        for words in plainer(verdict, refusal):
            try:
                written.done, _ = await ask(finish.finish(words.claim.worker_id, [words], keep=self._keep))
            except psycopg.Error as again:
                if passes(again):
                    raise
                refusal = again
            else:
                written.plainer[verdict.claim.id] = words
                return written
        log.error(
            "verdict not recorded: the database refuses it in any words; the worker keeps it and tries again",
            extra={**fields, "seconds": REFUSED_FOR},
            exc_info=refusal,
        )
        written.later.append((REFUSED_FOR, verdict))
        return written

    def _note(self, batch: Sequence[Verdict], written: "Written") -> None:
        """Keep what has to wait, and look for verdicts that changed nothing."""
        done, now = written.done, time.monotonic()
        if len(done) == len(batch) and not written.plainer:
            joblog.ended(batch)
            return
        joblog.ended([written.plainer.get(one.claim.id, one) for one in batch if one.claim.id in done])
        later = [(now + seconds, one) for seconds, one in written.later if one.claim.id not in done]
        with self._lock:
            self._later += later
        expected = done.keys() | {one.claim.id for _, one in later}
        passed_over = [verdict for verdict in batch if verdict.claim.id not in expected]
        if passed_over:
            self._on_doubt(passed_over)
        for verdict in passed_over if written.certain else ():
            log.warning(
                "attempt superseded: it no longer held its job, and nothing was recorded",
                extra={
                    "job": verdict.claim.id,
                    "task": verdict.claim.task,
                    "attempt": verdict.claim.attempt,
                },
            )


@dataclass(slots=True)
class Written:
    """What became of a batch.

    Attributes:
        done: the state of each job for which the database took a verdict.
        later: verdicts to try again, and in how many seconds.
        plainer: what was recorded in place of a verdict that was refused, by job.
        certain: that no other try has recorded them: what changed nothing then was superseded.
    """

    done: States = field(default_factory=dict)
    later: list[tuple[float, Verdict]] = field(default_factory=list)
    plainer: dict[int, Verdict] = field(default_factory=dict)
    certain: bool = True


Ask = Callable[[Plan[Any]], Awaitable[tuple[Any, bool]]]
"""Runs a plan; its result, and whether a try was cut off after which the statement may have been done."""


def _are_alike_and_small(batch: Sequence[Verdict]) -> bool:
    """Whether all are successes without a result of one worker id, as most often: decided without a step of Python for each."""
    if {*map(type, batch)} != {Succeeded}:
        return False
    return not any(map(_RESULT, batch)) and len({*map(id, map(_WORKER, batch))}) == 1


async def _patiently(link: WorkerConnection, plan: Plan[Any]) -> tuple[Any, bool]:
    before = link.losses
    return await link.run(plan), link.losses != before


async def _once(link: WorkerConnection, plan: Plan[Any]) -> tuple[Any, bool]:
    return await link.once(plan), False
