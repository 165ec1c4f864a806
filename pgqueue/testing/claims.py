"""Claims: the plan by which a drain claims, in memory and in PostgreSQL; and who holds which job in memory.

:class:`ClaimBook` answers the plans by which a worker claims a job, starts it, and records how it ended.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, assert_never
from uuid import UUID

import msgspec

from pgqueue.store import signals
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs import claim, finish
from pgqueue.store.jobs.claim import Portions
from pgqueue.store.jobs.ending import States
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.workers import leases, upkeep
from pgqueue.store.workers.leases import WorkerInfo
from pgqueue.testing.flows import FlowBook
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.mailbox import Mailbox
from pgqueue.testing.row import JobRow
from pgqueue.values.jobs.job import AttemptError, Claim, JobFlags, JobState
from pgqueue.values.jobs.verdict import (
    Again,
    Cancelled,
    Died,
    Returned,
    Succeeded,
    Unknown,
    Verdict,
    Waits,
    as_recorded,
    expired_words,
    lost_verdict,
)
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.values.queues.shares import Split
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.values.workers.lease import LEASE


class DrainClaim(msgspec.Struct, frozen=True):
    """What a drain finds.

    Attributes:
        claim: the next job; None: none is due.
        timeouts: how long an attempt may take whose task names no timeout, by queue.
    """

    claim: Claim | None
    timeouts: Mapping[str, timedelta]


@plan(transaction=True)
def next_claim(
    worker: leases.WorkerInfo,
    served: ServedQueues,
    split: Split | None,
    lanes: ServedLanes,
    left_out: Sequence[str] = (),
    *,
    now: datetime | None = None,
) -> Steps[DrainClaim]:
    """All that a worker does between two jobs, in one plan.

    It ends the jobs that have expired, registers the worker or renews its lease, makes due jobs ready, and claims the next
    job: from the first queue that has one, in the order of the names, in the order that is given, or as the split says; where no queue has one, from
    the lanes of limited jobs, those that may start at this instant.

    Args:
        worker: who claims.
        served: from which queues.
        split: whose turn it is, where queues have weights or a strict order; it learns what was claimed.
        lanes: which lanes it serves.
        left_out: tasks whose jobs are not claimed.
        now: the instant; the database's own by default.
    """
    while (yield from finish.expire(now=now)):
        pass
    polled = yield from upkeep.arrive(worker, LEASE, seldom=True, now=now)
    while polled.wait_in == 0 and (yield from signals.admit_due(now=now)).handled:
        pass
    while polled.flow_work and (yield from flow_progress.work(now=now)):
        pass
    if "age" in polled.seldom:
        yield from queues.age(now=now)
    claims = yield from claim.look(
        worker.id, served, 1, portions=Portions(), split=split, left_out=left_out, now=now
    )
    lanes.learn(limited=polled.limited, weighted=polled.weighted, seen=polled.in_lanes)
    if not claims and (polled.in_lanes or polled.limited):
        claims = [*(yield from lanes.claim(worker.id, 1, horizon=0, now=now)).claims]
    timeouts = {queue: timedelta(seconds=seconds) for queue, seconds in polled.timeouts.items()}
    return DrainClaim(claims[0] if claims else None, timeouts)


class QueueState(NamedTuple):
    """The jobs of a queue in memory, by id, and their queues, flows and signals."""

    rows: dict[int, JobRow]
    queues: KnownQueues
    flows: FlowBook
    mailbox: Mailbox


class ClaimBook:
    """The claims of workers, and the leases under which they hold them. No limit holds a job back: a drain runs one at a time."""

    def __init__(self, around: QueueState) -> None:
        self._rows = around.rows
        self._queues = around.queues
        self._flows = around.flows
        self._mailbox = around.mailbox
        self._leases: dict[UUID, datetime] = {}
        self._reclaimed: list[Verdict] = []

    def next_claim(
        self,
        worker: WorkerInfo,
        served: ServedQueues,
        split: Split | None,
        lanes: object,  # noqa: ARG002 - of PostgreSQL
        left_out: Sequence[str] = (),
        *,
        now: datetime,
    ) -> DrainClaim:
        """Take back what was lost, put in line what is due, and claim the next job."""
        self._leases[worker.id] = now + LEASE
        self._expire(now)
        self._reclaim(now)
        self._mailbox.admit_lapsed(now=now)
        for row in self._rows.values():
            if row.state is JobState.SCHEDULED and row.run_at <= now:
                row.state = JobState.READY
        ready = [
            row for row in self._rows.values() if row.state is JobState.READY and row.new.task not in left_out
        ]
        line = self._turn({row.new.queue for row in ready}, served, split)
        first = min((row for row in ready if row.new.queue == line), key=lambda row: row.place, default=None)
        return DrainClaim(None if first is None else first.claimed(worker.id, now), self._queues.timeouts())

    def leave_without_jobs(self, worker: UUID) -> None:
        """Forget a worker that holds nothing."""
        self._leases.pop(worker, None)

    def record(
        self,
        worker: UUID,
        verdicts: Sequence[Verdict],
        *,
        keep: bool,
        tell: bool,  # noqa: ARG002 - memory has no idle workers
        now: datetime,
    ) -> States:
        """Record verdicts on jobs that the worker still holds; the ids of those."""
        done: States = {}
        for verdict in verdicts:
            if verdict.claim.worker_id == worker and self.holds(verdict.claim):
                row = self._rows[verdict.claim.id]
                self._record(row, verdict, now)
                done[row.id] = row.state
                if row.state.ended:
                    self._flows.ended(row, now, skipped=isinstance(verdict, Cancelled) and verdict.skipped)
                if row.state is JobState.SUCCEEDED and not keep and row.id not in self._flows:
                    del self._rows[row.id]
        return done

    def start(self, claim: Claim, *, now: datetime) -> CrashCount | None:  # noqa: ARG002 - nothing asks when
        """Note that an attempt of a suspect starts; None: it no longer holds its job."""
        if not self.holds(claim):
            return None
        row = self._rows[claim.id]
        row.started_fence = row.fence
        since_revival = row.errors[max(0, len(row.errors) - (row.attempts - 1)) :]
        return CrashCount(sum(error.crashed for error in since_revival))

    def holds(self, claim: Claim) -> bool:
        """Whether an attempt holds its job."""
        row = self._rows.get(claim.id)
        if row is None or row.state is not JobState.RUNNING:
            return False
        return (row.worker_id, row.fence) == (claim.worker_id, claim.fence)

    def take_reclaimed(self) -> list[Verdict]:
        """What was recorded of lost workers' jobs since the last call."""
        reclaimed, self._reclaimed = self._reclaimed, []
        return reclaimed

    def _turn(self, waiting: Collection[str], served: ServedQueues, split: Split | None) -> str | None:
        queues = served.filtered(sorted(waiting) if served.is_open else served.names)
        return self._queues.turn(queues, {*waiting}, split)

    def _expire(self, now: datetime) -> None:
        late = {JobState.BLOCKED, JobState.SCHEDULED, JobState.READY}
        for row in [row for row in self._rows.values() if row.expires_at is not None]:
            if row.state in late and row.expires_at is not None and row.expires_at <= now:
                row.note(AttemptError(0, "Expired", expired_words(str(row.expires_at))), now)
                row.end(JobState.DEAD, now)
                row.reason = "expired"
                self._flows.ended(row, now)

    def _record(self, row: JobRow, verdict: Verdict, now: datetime) -> None:
        if isinstance(verdict, Again | Cancelled | Died | Succeeded) and verdict.error is not None:
            row.note(verdict.error, now)
        match verdict:
            case Succeeded(seconds=seconds, result=result):
                row.end(JobState.SUCCEEDED, now, seconds=seconds)
                row.result = result
            case Cancelled():
                row.end(JobState.CANCELLED, now)
            case _ if row.cancel_requested:
                row.end(JobState.CANCELLED, now)
            case Waits(awaited=awaited):
                self._mailbox.wait(row, awaited, now=now)
            case Died(seconds=seconds, reason=reason):
                row.end(JobState.DEAD, now, seconds=seconds)
                row.reason = reason
                row.attempts -= reason == "expired"
            case Again(delay=delay) | Returned(delay=delay) | Unknown(delay=delay):
                row.run_at = now + delay if delay else row.run_at
                row.wait(JobState.SCHEDULED if delay else JobState.READY)
                row.attempts -= not verdict.spends
            case _:
                assert_never(verdict)

    def _reclaim(self, now: datetime) -> None:
        self._leases = {worker: until for worker, until in self._leases.items() if until >= now}
        for row in self._rows.values():
            if row.state is not JobState.RUNNING or row.worker_id in self._leases:
                continue
            assert row.worker_id is not None  # noqa: S101 - a running job's
            claim = msgspec.structs.replace(row.claim(row.worker_id, now), args="{}")
            seconds = 0.0 if row.started_at is None else (now - row.started_at).total_seconds()
            suspect = bool((row.flags or 0) & JobFlags.SUSPECT)
            verdict = lost_verdict(
                claim, seconds=seconds, crashed=not suspect or row.started_fence == row.fence
            )
            row.flags = (row.flags or 0) | JobFlags.SUSPECT
            self._record(row, verdict, now)
            self._reclaimed.append(as_recorded(verdict, row.state))
            if row.state.ended:
                self._flows.ended(row, now)
