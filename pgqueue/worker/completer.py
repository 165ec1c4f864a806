"""Writes down how attempts ended, in batches: whatever has gathered while the last batch was written.

A batch can be held up: somebody's open transaction has one of its rows locked (an enqueue that found its
unique key taken counts itself on that row). The link waits a tenth of a second for locks; then those verdicts
are written whose rows are free, and the others wait apart while the work goes on.

A batch can be refused: a verdict in it cannot be stored. Then it is written verdict by verdict, and the one
that is refused is recorded in plainer words.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from uuid import UUID

import psycopg

from pgqueue.store import finish
from pgqueue.values.verdict import Verdict, plainer
from pgqueue.worker import joblog
from pgqueue.worker.link import Link

log = logging.getLogger("pgqueue.worker")

LARGEST_BATCH = 1_000
LOCK_TIMEOUT: Mapping[str, str] = {"lock_timeout": "100ms"}
HELD_UP_FOR = 1.0


class Completer:
    """Takes verdicts at once and records them soon. A verdict is kept until the database has it."""

    def __init__(self, link: Link, *, keep: bool, on_written: Callable[[Sequence[Verdict]], object]) -> None:
        """Begin with nothing.

        Args:
            link: the connection to write on, with ``LOCK_TIMEOUT`` set.
            keep: whether succeeded jobs go to the history.
            on_written: told of each batch that has been dealt with.
        """
        self._link = link
        self._keep = keep
        self._on_written = on_written
        self._waiting: list[Verdict] = []
        self._writing: list[Verdict] = []
        self._held_up: list[Verdict] = []
        self._held_until = 0.0
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        """How many verdicts the database does not have yet."""
        return len(self._waiting) + len(self._writing) + len(self._held_up)

    def known(self) -> list[int]:
        """The jobs of those verdicts."""
        return [verdict.claim.id for verdict in (*self._waiting, *self._writing, *self._held_up)]

    def add(self, *verdicts: Verdict) -> None:
        """Have verdicts recorded soon."""
        if verdicts:
            self._waiting += verdicts
            self._added.set()
            self._idle.clear()

    def forget(self, worker: UUID) -> None:
        """Drop what is waiting for a worker that lost its lease: the database would not hear it."""
        self._waiting = [verdict for verdict in self._waiting if verdict.claim.worker_id != worker]
        self._held_up = [verdict for verdict in self._held_up if verdict.claim.worker_id != worker]

    async def run(self) -> None:
        """Record batches for ever; look after held-up verdicts every second while there are any."""
        while True:
            with suppress(TimeoutError):  # not wait_for, which may lose a cancellation to an addition
                async with asyncio.timeout(HELD_UP_FOR if self._held_up else None):
                    await self._added.wait()
            await self.run_once()

    async def run_once(self) -> None:
        """Record one batch: verdicts of one worker id, as many as have gathered."""
        self._added.clear()
        self._writing = self._next_batch()
        if self._writing:
            await self._write(self._writing)
            written, self._writing = self._writing, []
            self._on_written(written)
        if self._waiting:
            self._added.set()
        elif not self.backlog:
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until the database has every verdict."""
        await self._idle.wait()

    def _next_batch(self) -> list[Verdict]:
        if self._held_up and time.monotonic() >= self._held_until:
            self._waiting, self._held_up = [*self._held_up, *self._waiting], []
        if not self._waiting:
            return []
        worker = self._waiting[0].claim.worker_id
        alike = takewhile(lambda verdict: verdict.claim.worker_id == worker, self._waiting)
        batch = list(islice(alike, LARGEST_BATCH))
        del self._waiting[: len(batch)]
        return batch

    async def _write(self, batch: list[Verdict]) -> None:
        worker = batch[0].claim.worker_id
        try:
            done = await self._link.run(lambda: finish.finish(worker, batch, keep=self._keep))
            _log_ended(batch, done)
        except psycopg.errors.LockNotAvailable:
            await self._write_unlocked(batch)
        except psycopg.Error as refusal:
            await self._write_plainer(batch, refusal)

    async def _write_unlocked(self, batch: list[Verdict]) -> None:
        """Somebody has locked a row: record the others."""
        worker = batch[0].claim.worker_id
        done, locked = await self._link.run(
            lambda: finish.finish_unlocked(worker, batch, keep=self._keep), whole=True
        )
        self._held_up += [verdict for verdict in batch if verdict.claim.id in locked]
        self._held_until = time.monotonic() + HELD_UP_FOR
        _log_ended([verdict for verdict in batch if verdict.claim.id not in locked], done)

    async def _write_plainer(self, batch: list[Verdict], refusal: psycopg.Error) -> None:
        """The database refused a verdict: find it by writing one at a time, and record it in plainer words."""
        if len(batch) > 1:
            for verdict in batch:
                await self._write([verdict])
            return
        log.error(
            "verdict refused", extra={"job": batch[0].claim.id, "task": batch[0].claim.task}, exc_info=refusal
        )
        plain = [plainer(batch[0], refusal)]
        try:
            done = await self._link.run(
                lambda: finish.finish(plain[0].claim.worker_id, plain, keep=self._keep)
            )
            _log_ended(plain, done)
        except psycopg.Error:  # the next beat returns the job, for nobody here knows of it any more
            log.exception("verdict not recorded", extra={"job": batch[0].claim.id})


def _log_ended(batch: list[Verdict], done: set[int]) -> None:
    if len(done) == len(batch):
        joblog.ended(batch)
        return
    joblog.ended([verdict for verdict in batch if verdict.claim.id in done])
    for verdict in batch:
        if verdict.claim.id not in done:
            log.warning(
                "attempt superseded: it no longer held its job, and nothing was recorded",
                extra={"job": verdict.claim.id, "task": verdict.claim.task, "attempt": verdict.claim.attempt},
            )
