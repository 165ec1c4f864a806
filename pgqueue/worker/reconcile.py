"""What the database holds in a worker's name, compared with what the worker knows.

They can differ: the answer to a claim was lost with its connection, or a verdict changed nothing or was refused. A job
in the name of a living worker that does not know of it would be nobody's, so they are compared whenever something of
that kind has happened, and always when the worker leaves. What never started goes back unspent; an attempt that ran
and left no verdict is spent, and so is one that may have ended the worker.

Running jobs are in no index: the jobs are read from end to end, on a connection that is opened for that, so that
neither claims nor verdicts wait. A claim that is answered while they are read is none of the unknown ones.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from pgqueue.store import claim
from pgqueue.store.database import Database
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Returned, Unknown, Verdict, describe, failed, lost
from pgqueue.worker.connection import LONG_READ, WorkerConnection
from pgqueue.worker.joblog import worker_log

log = worker_log()

UNRECORDED = "ran this attempt, and could not record how it ended"


class Reconciler:
    """Finds jobs that are in a worker's name without its knowing, and ends their claims."""

    def __init__(
        self,
        database: Database,
        claims: WorkerConnection,
        *,
        worker: Callable[[], UUID],
        known: Callable[[], Iterable[int]],
        record: Callable[..., object],
    ) -> None:
        """Begin without doubts.

        Args:
            database: where the jobs are.
            claims: the link on which jobs are claimed.
            worker: the worker's id.
            known: every job it knows to be in its name.
            record: takes verdicts to be recorded.
        """
        self._database = database
        self._claims = claims
        self._worker = worker
        self._known = known
        self._record = record
        self._losses_seen = 0
        self._doubtful = False
        self._ran: set[int] = set()
        self._ended: set[int] | None = None
        self._one_at_a_time = asyncio.Lock()

    def doubt(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts were refused or changed nothing. May be called in any thread."""
        current = self._worker()
        ours = [verdict for verdict in verdicts if verdict.claim.worker_id == current]
        if ours:
            self._ran.update(
                verdict.claim.id for verdict in ours if not isinstance(verdict, Returned | Unknown)
            )
            self._doubtful = True

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts were dealt with: their jobs are not unknown, even if they were claimed a moment ago."""
        if self._ended is not None:
            self._ended.update(verdict.claim.id for verdict in verdicts)

    async def run_once(self) -> None:
        """Compare, if there is a reason."""
        if self._doubtful or self._claims.losses != self._losses_seen:
            await self.compare()

    async def compare(self, failure: BaseException | None = None) -> None:
        """Compare, and have the claims of unknown jobs ended.

        Args:
            failure: what ended this worker: a job that is unknown now may be the cause, so its attempt is spent.
        """
        async with self._one_at_a_time:  # that of a leaving worker may come while another is under way
            await self._compare(failure)

    async def _compare(self, failure: BaseException | None) -> None:
        losses, worker = self._claims.losses, self._worker()
        self._doubtful, ran = False, set(self._ran)
        before = set(self._known())
        self._ended = set(before)
        try:
            async with WorkerConnection("compare", self._database, bound=LONG_READ) as link:
                held = await link.run(claim.unknown_claims(worker, sorted(before)))
            await self._claims.settled()
            known = self._ended.union(self._known())
        finally:
            self._ended = None
        self._losses_seen = losses
        self._ran -= ran
        unknown = [one for one in held if one.id not in known] if worker == self._worker() else []
        if unknown:
            log.warning("jobs were in this worker's name without its knowing", extra={"jobs": len(unknown)})
            self._record(*(_verdict(one, failure, ran=one.id in ran) for one in unknown))


def _verdict(one: Claim, failure: BaseException | None, *, ran: bool) -> Verdict:
    if failure is not None:
        return failed(one, describe(failure, one.attempt))
    return lost(one, seconds=0.0, how=UNRECORDED) if ran else Returned(one)
