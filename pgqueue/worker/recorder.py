"""Writes one batch of verdicts, as far as the database takes it; the completer keeps what has to wait.

Two things can go wrong with a batch.

- A transaction of another program has locked one of its rows (an enqueue that found its unique key taken counts itself
  on that row). The connection waits 0.1 s for locks; then the verdicts are written whose rows are free, and the others
  are tried again after 1 s.
- The database refuses a verdict. Then the batch is written verdict by verdict, and the refused one is replaced by its
  fallback verdict. If that is refused, too, the verdict is tried again every minute.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import sample
from typing import Any

import psycopg

from pgqueue.app.pgqueue import PgQueue
from pgqueue.store.jobs import finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.verdict import Verdict, fallbacks
from pgqueue.values.payloads.codec import with_encoded_errors
from pgqueue.worker.connection import WorkerConnection, passes
from pgqueue.worker.joblog import worker_log

log = worker_log()

MOST_MET = 4
"""How many locks one batch waits for, 0.1 s each."""
LOCKED_FOR = 1.0
REFUSED_FOR = 60.0
"""Seconds until a verdict is tried again whose row was locked, or that was refused together with its fallbacks."""


@dataclass(slots=True)
class WriteResult:
    """What became of a batch.

    Attributes:
        done: the state of each job for which the database took a verdict.
        later: verdicts to try again, and in how many seconds.
        refused: verdicts that the database did not take as they were.
        fallbacks: what was recorded in place of a refused verdict, by job.
        certain: whether no other try can have recorded them: a verdict that changed nothing was superseded.
    """

    done: States = field(default_factory=dict)
    later: list[tuple[float, Verdict]] = field(default_factory=list)
    refused: list[Verdict] = field(default_factory=list)
    fallbacks: dict[int, Verdict] = field(default_factory=dict)
    certain: bool = True


class Recorder:
    """Writes one batch at a time, as far as the database takes it."""

    def __init__(
        self,
        run: Callable[[Plan[Any]], Awaitable[Any]],
        connection: WorkerConnection,
        queue: PgQueue,
        *,
        claims: Callable[[], bool],
    ) -> None:
        """The connection has ``LOCK_TIMEOUT`` set, so that ``run`` raises if a row is locked.

        ``claims`` returns whether this worker claims jobs: then no other one is told of those that it returns.
        """
        self._run = run
        self._connection = connection
        self._keep = queue.keeps_history
        self._claims = claims
        self._codec = queue.codec

    async def write(self, batch: Sequence[Verdict]) -> WriteResult:
        """Record a batch of verdicts of one worker id."""
        before = self._connection.losses  # a plan that was cut off may have been done all the same
        try:
            done = await self._run(self._finish(batch))
        except psycopg.errors.LockNotAvailable:
            return await self._write_unlocked(batch)
        except psycopg.Error as refusal:
            if passes(refusal):
                raise
            return await (self._write_each(batch) if len(batch) > 1 else self._fall_back(batch[0], refusal))
        return WriteResult(done, certain=self._connection.losses == before)

    def _finish(self, batch: Sequence[Verdict]) -> Plan[States]:
        encoded = with_encoded_errors(self._codec, batch)
        return finish.finish(batch[0].claim.worker_id, encoded, keep=self._keep, tell=not self._claims())

    async def _write_unlocked(self, batch: Sequence[Verdict]) -> WriteResult:
        """Another transaction has locked a row: record the others. If it has locked the table, all wait."""
        before = self._connection.losses
        done: States = {}
        locked = {verdict.claim.id for verdict in batch}
        todo, met = [batch], 0
        while todo and met < MOST_MET:
            some = todo.pop()
            encoded = with_encoded_errors(self._codec, some)
            plan = finish.finish_unlocked(batch[0].claim.worker_id, encoded, keep=self._keep)
            try:
                recorded, held = await self._run(plan)
            except psycopg.errors.LockNotAvailable:
                met += 1
                todo += _apart(some)
            except psycopg.Error:
                if not done:
                    raise
                break  # what is left is tried again like the locked ones
            else:
                done |= recorded
                locked -= {verdict.claim.id for verdict in some} - held
        later = [(LOCKED_FOR, verdict) for verdict in batch if verdict.claim.id in locked]
        # Of several kinds, the first may have been recorded before the lock was met.
        certain = self._connection.losses == before and len({*map(type, batch)}) == 1
        return WriteResult(done, later, certain=certain)

    async def _write_each(self, batch: Sequence[Verdict]) -> WriteResult:
        """The database refused one of these verdicts: find it by writing one at a time."""
        # verdicts of another kind than the refused one may be recorded already
        written = WriteResult(certain=False)
        for one in batch:
            alone = await self.write([one])
            written.done |= alone.done
            written.later += alone.later
            written.refused += alone.refused
            written.fallbacks |= alone.fallbacks
        return written

    async def _fall_back(self, verdict: Verdict, refusal: psycopg.Error) -> WriteResult:
        fields = log_fields(verdict)
        log.error(
            "outcome refused by the database; a simpler one is recorded", extra=fields, exc_info=refusal
        )
        for fallback in fallbacks(verdict, refusal):
            try:
                done = await self._run(self._finish([fallback]))
            except psycopg.Error as again:
                if passes(again):
                    raise
                refusal = again
            else:
                return WriteResult(
                    done, refused=[verdict], fallbacks={verdict.claim.id: fallback}, certain=False
                )
        log.error(
            "outcome not recorded: the database refuses it in any words; the worker keeps it and tries again",
            extra={**fields, "seconds": REFUSED_FOR},
            exc_info=refusal,
        )
        return WriteResult(later=[(REFUSED_FOR, verdict)], refused=[verdict], certain=False)


def _apart(batch: Sequence[Verdict]) -> list[Sequence[Verdict]]:
    """Divide a batch that met a lock which is no job's own: each job of a flow alone, in any order, and first the others.

    The lock may be on the row of a job that is to be released, or on the count of a group.
    """
    in_flows = [verdict for verdict in batch if finish.is_in_flow(verdict)]
    if len(batch) == 1:
        return []
    others = [verdict for verdict in batch if not finish.is_in_flow(verdict)]
    return [*([one] for one in sample(in_flows, len(in_flows))), *([others] if others else [])]


def log_fields(verdict: Verdict) -> dict[str, object]:
    """What a log line tells of a verdict's job."""
    return {"job": verdict.claim.id, "task": verdict.claim.task}
