"""Writes down how attempts ended, in batches: whatever has gathered while the last batch was written."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from pgqueue.store import finish
from pgqueue.values.verdict import Verdict
from pgqueue.worker.link import Link

log = logging.getLogger("pgqueue.worker")

LARGEST_BATCH = 1_000


class Completer:
    """Takes verdicts at once and records them soon. A verdict is kept until the database has it."""

    def __init__(self, link: Link, *, keep: bool, on_written: Callable[[Sequence[Verdict]], object]) -> None:
        """Begin with nothing.

        Args:
            link: the connection to write on.
            keep: whether succeeded jobs go to the history.
            on_written: told of each batch that has been recorded.
        """
        self._link = link
        self._keep = keep
        self._on_written = on_written
        self._waiting: list[Verdict] = []
        self._writing: list[Verdict] = []
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        """How many verdicts the database does not have yet."""
        return len(self._waiting) + len(self._writing)

    def known(self) -> list[int]:
        """The jobs of those verdicts."""
        return [verdict.claim.id for verdict in (*self._waiting, *self._writing)]

    def add(self, verdict: Verdict) -> None:
        """Have a verdict recorded soon."""
        self._waiting.append(verdict)
        self._added.set()
        self._idle.clear()

    def forget(self, worker: UUID) -> None:
        """Drop what is waiting for a worker that lost its lease: the database would not hear it."""
        self._waiting = [verdict for verdict in self._waiting if verdict.claim.worker_id != worker]

    async def run(self) -> None:
        """Record batches for ever."""
        while True:
            await self._added.wait()
            await self.run_once()

    async def run_once(self) -> None:
        """Record one batch: verdicts of one worker id, as many as have gathered."""
        self._added.clear()
        if self._waiting:
            worker = self._waiting[0].claim.worker_id
            self._writing = [one for one in self._waiting[:LARGEST_BATCH] if one.claim.worker_id == worker]
            del self._waiting[: len(self._writing)]
            batch = self._writing
            done = await self._link.run(lambda: finish.finish(worker, batch, keep=self._keep))
            self._writing = []
            self._on_written(batch)
            if len(done) < len(batch):
                _log_superseded(batch, done)
        if self._waiting:
            self._added.set()
        else:
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until the database has every verdict."""
        await self._idle.wait()


def _log_superseded(batch: list[Verdict], done: set[int]) -> None:
    for verdict in batch:
        if verdict.claim.id not in done:
            log.warning(
                "attempt superseded: its outcome was not recorded",
                extra={"job": verdict.claim.id, "task": verdict.claim.task, "attempt": verdict.claim.attempt},
            )
