"""Writes down how attempts ended, in batches: whatever has gathered while the last batch was written.

A batch can be held up: somebody's open transaction has one of its rows locked (an enqueue that found its
unique key taken counts itself on that row). The link waits a tenth of a second for locks; then the batch is
written verdict by verdict, and the one that is held up waits apart while the others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from uuid import UUID

import psycopg

from pgqueue.store import finish
from pgqueue.values.verdict import Verdict
from pgqueue.worker.link import Link

log = logging.getLogger("pgqueue.worker")

LARGEST_BATCH = 1_000
LOCK_TIMEOUT = "set lock_timeout = '100ms'"
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

    def add(self, verdict: Verdict) -> None:
        """Have a verdict recorded soon."""
        self._waiting.append(verdict)
        self._added.set()
        self._idle.clear()

    def forget(self, worker: UUID) -> None:
        """Drop what is waiting for a worker that lost its lease: the database would not hear it."""
        self._waiting = [verdict for verdict in self._waiting if verdict.claim.worker_id != worker]
        self._held_up = [verdict for verdict in self._held_up if verdict.claim.worker_id != worker]

    async def run(self) -> None:
        """Record batches for ever; look after held-up verdicts every second while there are any."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._added.wait(), HELD_UP_FOR if self._held_up else None)
            await self.run_once()

    async def run_once(self) -> None:
        """Record one batch: verdicts of one worker id, as many as have gathered, or else the held-up ones."""
        if self._added.is_set():
            self._added.clear()
            await self._write(self._next_batch())
        else:
            held_up, self._held_up = self._held_up, []
            self._writing = held_up
            await self._write_singly(held_up)
        if self._waiting:
            self._added.set()
        elif not self.backlog:
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until the database has every verdict."""
        await self._idle.wait()

    def _next_batch(self) -> list[Verdict]:
        if not self._waiting:
            return []
        worker = self._waiting[0].claim.worker_id
        alike = takewhile(lambda verdict: verdict.claim.worker_id == worker, self._waiting)
        self._writing = list(islice(alike, LARGEST_BATCH))
        del self._waiting[: len(self._writing)]
        return self._writing

    async def _write(self, batch: list[Verdict]) -> None:
        if not batch:
            return
        try:
            await self._record(batch)
        except psycopg.Error:
            await self._write_singly(batch)
        self._writing = []
        self._on_written(batch)

    async def _write_singly(self, batch: list[Verdict]) -> None:
        """Find out which verdict of a batch the database does not take, and let the others pass."""
        for verdict in batch:
            try:
                await self._record([verdict])
            except psycopg.errors.LockNotAvailable:
                self._held_up.append(verdict)
            except psycopg.Error:  # the next beat returns the job, for nobody here knows of it any more
                log.exception(
                    "verdict not recorded", extra={"job": verdict.claim.id, "task": verdict.claim.task}
                )
        self._writing = []

    async def _record(self, batch: list[Verdict]) -> None:
        worker = batch[0].claim.worker_id
        done = await self._link.run(lambda: finish.finish(worker, batch, keep=self._keep))
        for verdict in batch:
            if verdict.claim.id not in done:
                log.warning(
                    "attempt superseded: its outcome was not recorded",
                    extra={
                        "job": verdict.claim.id,
                        "task": verdict.claim.task,
                        "attempt": verdict.claim.attempt,
                    },
                )
