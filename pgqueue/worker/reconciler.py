"""What the database holds in a worker's name, compared with what the worker knows: claims of unknown jobs are ended.

Such jobs exist if the answer to a claim was lost with its connection, or if a verdict changed nothing or was refused. No
sweep finds a job that is in the name of a living worker which does not know of it. So the database and the worker are
compared after each event of that kind, and always when the worker leaves. A claim that never started is requeued unspent.
An attempt that ran and left no verdict is spent, and so is one that may have ended the worker.

Running jobs are in no index: the jobs are read from end to end, on a connection that is opened for that, so that neither
claims nor verdicts wait. A claim that is answered while they are read does not count as unknown.

When to compare is decided in :mod:`pgqueue.worker.upkeep` and :mod:`pgqueue.worker.worker`; the completer records the
verdicts.
"""

import asyncio

from pgqueue.store.jobs import claim
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Verdict, failed_verdict, lost_verdict
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import LONG_READ, Connections
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.joblog import worker_log

log = worker_log()

UNRECORDED = "ran this attempt, and could not record how it ended"


class Reconciler:
    """Finds jobs that are in a worker's name and that it does not know of, and ends their claims."""

    def __init__(self, connections: Connections, *, heartbeat: Heartbeat, completer: Completer) -> None:
        self._connections = connections
        self._claiming = connections.claiming
        self._heartbeat = heartbeat
        self._completer = completer
        self._losses_seen = 0
        self._ran: set[int] = set()
        self._one_at_a_time = asyncio.Lock()

    async def run_once(self) -> None:
        """Compare, if there is a reason."""
        if self._doubtful() or self._claiming.losses != self._losses_seen:
            await self.compare()

    async def compare(self, failure: BaseException | None = None) -> None:
        """Compare, and have the claims of unknown jobs ended.

        Args:
            failure: what ended this worker: a job that is unknown now may be the cause, so its attempt is spent.
        """
        async with self._one_at_a_time:  # that of a leaving worker may come while another is under way
            await self._compare(failure)

    def _doubtful(self) -> bool:
        """Whether verdicts of this worker were refused or changed nothing; it notes which of their attempts ran."""
        ours = [one for one in self._completer.take_doubts() if one.claim.worker_id == self._heartbeat.id]
        self._ran.update(one.claim.id for one in ours if one.spends)
        return bool(ours)

    async def _compare(self, failure: BaseException | None) -> None:
        self._doubtful()
        losses, worker, ran = self._claiming.losses, self._heartbeat.id, set(self._ran)
        before = set(self._completer.known())
        ended = set(before)
        self._completer.collect_dealt_with(ended)  # they may have been claimed a moment ago
        try:
            async with self._connections.for_once("compare") as own:
                held = await own.run(claim.unknown_claims(worker, sorted(before)), bound=LONG_READ)
            await self._claiming.settled()
            known = ended.union(self._completer.known())
        finally:
            self._completer.collect_dealt_with(None)
        self._losses_seen = losses
        self._ran -= ran
        unknown = [one for one in held if one.id not in known] if worker == self._heartbeat.id else []
        if unknown:
            log.warning("jobs were in this worker's name without its knowing", extra={"jobs": len(unknown)})
            self._completer.add([_verdict(one, failure, ran=one.id in ran) for one in unknown])


def _verdict(one: Claim, failure: BaseException | None, *, ran: bool) -> Verdict:
    if failure is not None:
        return failed_verdict(one, describe(failure, one.attempt))
    return lost_verdict(one, seconds=0.0, how=UNRECORDED) if ran else Returned(one)
