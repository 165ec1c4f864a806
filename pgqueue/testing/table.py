"""Jobs in a dict, and what they have noted, for tests without a database.

Each public method of :class:`JobTable`, of its :class:`JobAdder` and of its :class:`ClaimBook` answers the plan of its name, with the
same arguments, as PostgreSQL would to one client that has no other beside it. What is decided elsewhere is not decided here
again: what becomes of an attempt (:mod:`pgqueue.values.jobs.verdict`) comes in as a verdict, and arguments and results
(:mod:`pgqueue.values.payloads.signature`) as JSON.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from pgqueue.store.jobs.notes import NoteKey, StoredProgress, noted_of
from pgqueue.store.queues.queues import RATED
from pgqueue.store.results.job_end import EndLook
from pgqueue.testing.claims import ClaimBook, QueueState
from pgqueue.testing.flows import FlowBook
from pgqueue.testing.job_adder import JobAdder
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.lanes import LaneBook
from pgqueue.testing.mailbox import Mailbox
from pgqueue.testing.row import JobRow
from pgqueue.testing.why import facts_of
from pgqueue.values.bulk.operation import BlockedRetry, Retried
from pgqueue.values.insight.why import Why, explain
from pgqueue.values.jobs.job import Claim, Job, JobState, QueueCount
from pgqueue.values.jobs.note import StoredReport
from pgqueue.values.limits.limit import LimitNumbers
from pgqueue.values.limits.task_limits import TaskLimits
from pgqueue.values.queues.standing import QueueHead, QueueStanding, StandingSample, standings


class JobTable:
    """All jobs of a queue: shows them, cancels them, and makes them ready again.

    Attributes:
        queues: what is known of their queues.
        lanes: the limits under which they wait.
        adding: adds jobs.
        flows: the chains, groups and workflows that they are of.
        mailbox: the signals for which they wait.
        claims: the workers that hold them.
    """

    def __init__(
        self,
        limits: Callable[[], Mapping[str, LimitNumbers]],
        limiting: Callable[[], Mapping[str, TaskLimits | None]],
    ) -> None:
        self._rows: dict[int, JobRow] = {}
        self.queues = KnownQueues(lambda: {row.new.queue for row in self._rows.values()})
        self.lanes = LaneBook(limits)
        self.adding = JobAdder(
            self._rows, self.queues, self.lanes, lambda one, now: self.cancel(one, now=now)
        )
        self.flows = FlowBook(self.adding.insert, self.adding.holder, self.adding.require_rooms)
        self.mailbox = Mailbox(self._rows, self.flows)
        self._around = QueueState(self._rows, self.queues, self.lanes, self.flows, self.mailbox)
        self.claims = ClaimBook(self._around, limiting)

    def clock(self, *, now: datetime) -> datetime:
        """What time it is."""
        return now

    def rows(self) -> list[JobRow]:
        """All jobs, in the order of their ids."""
        return list(self._rows.values())

    def show(self, job_id: int) -> Job | None:
        """One job."""
        row = self._rows.get(job_id)
        return None if row is None else row.shown()

    def look(self, job_id: int) -> EndLook | None:
        """One job, and its result as it is stored."""
        row = self._rows.get(job_id)
        if row is None:
            return None
        return EndLook(row.shown(), None if row.result is None else row.result.decode())

    def why(self, job_id: int, *, now: datetime) -> Why:
        """Why a job does not run; here none does until a test drains its queue."""
        row = self._rows.get(job_id)
        return explain(job_id, None if row is None else facts_of(self._around, row, now))

    def newest(self, *, limit: int) -> list[Job]:
        """The newest jobs in any state."""
        return [row.shown() for row in reversed(self._rows.values())][:limit]

    def counts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue wait, run or are dead; and the paused queues."""
        ended = {JobState.SUCCEEDED, JobState.CANCELLED}
        kinds = [(row.new.queue, row.shown_state) for row in self._rows.values() if row.state not in ended]
        return [QueueCount(*kind, kinds.count(kind)) for kind in sorted(set(kinds))], sorted(
            self.queues.paused
        )

    def queue_standings(self, *, now: datetime) -> list[QueueStanding]:
        """How every queue stands; jobs that ended in the last minute are counted as in the database."""
        ready: dict[str, datetime] = {}
        numbers: Counter[tuple[str, str]] = Counter()
        rates: Counter[str] = Counter()
        for row in self._rows.values():
            queue = row.new.queue
            if row.shown_state is JobState.READY:
                ready[queue] = min(row.run_at, ready.get(queue, row.run_at))
            if row.state in {JobState.SUCCEEDED, JobState.CANCELLED}:
                rates[queue] += row.ended_at is not None and row.ended_at > now - RATED
            else:
                numbers[queue, row.shown_state] += 1
        return standings(
            now=now,
            heads=[QueueHead(queue, oldest, numbers[queue, "ready"]) for queue, oldest in ready.items()],
            samples=[StandingSample(queue, state, count) for (queue, state), count in numbers.items()],
            live_percent=100.0,
            dead_percent=100.0,
            rates={queue: count / RATED.total_seconds() for queue, count in rates.items() if count},
            known=self.queues.known(),
        )

    def cancel(self, job_id: int, *, now: datetime) -> JobState | None:
        """End a waiting job, or ask a running one to."""
        row = self._rows.get(job_id)
        if row is None or row.state.ended:
            return None
        if row.state is JobState.RUNNING:
            row.cancel_requested = True
        else:
            row.end(JobState.CANCELLED, now)
            self.flows.ended(row, now)
        return row.state

    def retry(self, job_id: int, *, without_key: bool, now: datetime) -> Retried:
        """Make a dead job ready."""
        return self.revive([job_id], without_key=without_key, now=now)

    def run_now(self, job_id: int, *, now: datetime) -> bool:
        """Make a scheduled job ready."""
        row = self._rows.get(job_id)
        if row is None or row.state is not JobState.SCHEDULED:
            return False
        row.state, row.run_at, row.place_at = JobState.READY, row.place_at or now, None
        return True

    def purge_dead(self, job_ids: Collection[int]) -> int:
        """Forget those of these jobs that are dead."""
        found = self._dead(job_ids)
        for row in found:
            del self._rows[row.id]
        return len(found)

    def _dead(self, job_ids: Collection[int]) -> list[JobRow]:
        return [row for row in self._rows.values() if row.state is JobState.DEAD and row.id in job_ids]

    def revive(self, job_ids: Sequence[int], *, without_key: bool, now: datetime) -> Retried:
        """Make dead jobs ready, unless a live job has their key or another flow has their flow's."""
        revived, held = list[int](), list[BlockedRetry]()
        barred = {job_id for job_id in job_ids if self.flows.bars(job_id)}
        for row in self._dead([job_id for job_id in job_ids if job_id not in barred]):
            key = None if without_key else row.unique_key
            twin = self.adding.holder(key)
            if twin is not None and key is not None:
                held.append(BlockedRetry(row.id, twin.id, key))
                continue
            row.revive(JobState.READY, now)
            row.unique_key = key
            self.mailbox.revive(row.id)
            self.flows.reopen(row.id)
            revived.append(row.id)
        known = {*revived, *barred, *(one.id for one in held)}
        left = tuple(one for one in job_ids if one not in known)
        return Retried(tuple(revived), tuple(held), left, tuple(sorted(barred)))


class Notebook:
    """The notes of all jobs of a queue."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._notes: dict[int, dict[NoteKey, str]] = {}
        self._reports: dict[int, tuple[str, datetime, Claim]] = {}

    def recall(self, job_id: int) -> dict[NoteKey, str]:
        """The steps and the checkpoint of a job."""
        return dict(self._notes.get(job_id, {}))

    def recall_long(self, job_id: int, key: NoteKey) -> str | None:
        """One of them."""
        return self.recall(job_id).get(key)

    def keep(self, claim: Claim, key: NoteKey, value: str, *, now: datetime) -> bool:  # noqa: ARG002 - nothing asks when
        """Note a step's result or a checkpoint; False: the attempt no longer holds its job."""
        if not self._table.claims.holds(claim):
            return False
        self._notes.setdefault(claim.id, {})[key] = value
        return True

    def report(self, reports: Sequence[StoredReport], *, now: datetime) -> None:
        """Note how far jobs are."""
        self._reports |= {
            one.claim.id: (one.value, now, one.claim)
            for one in reports
            if self._table.claims.holds(one.claim)
        }

    def progress(self, job_id: int) -> StoredProgress | None:
        """How far a job is."""
        if job_id not in self._reports or self._table.show(job_id) is None:
            return None
        value, at, claim = self._reports[job_id]
        return noted_of(value, at, claim.task, claim.meta)
