"""Jobs in a dict, and what they have noted, for tests without a database.

Each public method of :class:`JobTable`, of its :class:`JobAdder` and of its :class:`ClaimBook` answers the plan of its name, with the
same arguments, as PostgreSQL would to one client that has no other beside it. What is decided elsewhere is not decided here
again: what becomes of an attempt (:mod:`pgqueue.values.jobs.verdict`) comes in as a verdict, and arguments and results
(:mod:`pgqueue.values.payloads.signature`) as JSON.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from pgqueue.store.jobs.notes import NotedLog, NoteKey, StoredProgress, noted_of
from pgqueue.store.results.job_end import EndLook
from pgqueue.testing.claims import ClaimBook, QueueState
from pgqueue.testing.flows import FlowBook
from pgqueue.testing.job_adder import JobAdder
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.mailbox import Mailbox
from pgqueue.testing.row import JobRow
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import BlockedRetry, Retried
from pgqueue.values.insight.now import SearchPage
from pgqueue.values.jobs.attempt_log import StoredLog
from pgqueue.values.jobs.job import Claim, Job, JobState, QueueCount
from pgqueue.values.jobs.note import StoredReport
from pgqueue.values.payloads.codec import JobPart


class JobTable:
    """All jobs of a queue: shows them, cancels them, and makes them ready again.

    Attributes:
        queues: what is known of their queues.
        adding: adds jobs.
        flows: the chains, groups and workflows that they are of.
        mailbox: the signals for which they wait.
        claims: the workers that hold them.
    """

    def __init__(self) -> None:
        self._rows: dict[int, JobRow] = {}
        self.queues = KnownQueues(lambda: {row.new.queue for row in self._rows.values()})
        self.adding = JobAdder(self._rows, self.queues, lambda one, now: self.cancel(one, now=now))
        self.flows = FlowBook(self.adding.insert, self.adding.holder, self.adding.require_rooms)
        self.mailbox = Mailbox(self._rows, self.flows)
        self.claims = ClaimBook(QueueState(self._rows, self.queues, self.flows, self.mailbox))

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

    def run_now(self, job_id: int, *, now: datetime) -> bool:
        """Make a scheduled job ready."""
        row = self._rows.get(job_id)
        if row is None or row.state is not JobState.SCHEDULED:
            return False
        row.state, row.run_at = JobState.READY, now
        return True

    def retry(self, job_id: int, *, without_key: bool, now: datetime) -> Retried:
        """Make a dead job ready, unless a live job has its key or another flow has its flow's."""
        row = self._rows.get(job_id)
        if self.flows.bars(job_id):
            return Retried((), (), (), (job_id,))
        if row is None or row.state is not JobState.DEAD:
            return Retried((), (), (job_id,), ())
        key = None if without_key else row.unique_key
        twin = self.adding.holder(key)
        if twin is not None and key is not None:
            return Retried((), (BlockedRetry(job_id, twin.id, key),), (), ())
        row.revive(JobState.READY, now)
        row.unique_key = key
        self.mailbox.revive(job_id)
        self.flows.reopen(job_id)
        return Retried((job_id,), (), (), ())

    def search(
        self,
        wanted: JobFilter,
        *,
        states: Collection[JobState] | None,
        unique_key: str | None,
        before: int | None,
        limit: int,
    ) -> SearchPage:
        """The jobs that match, newest first."""
        found = [
            job
            for job in (row.shown() for row in reversed(self._rows.values()))
            if (states is None or job.state in states)
            and unique_key in (None, job.unique_key)
            and (before is None or job.id < before)
            and wanted.matches(job)
        ]
        return SearchPage(
            tuple(msgspec.structs.replace(job, errors=job.errors[-1:], result=None) for job in found[:limit])
        )


class Notebook:
    """The notes of all jobs of a queue."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._notes: dict[int, dict[NoteKey, str]] = {}
        self._reports: dict[int, tuple[str, datetime, Claim]] = {}
        self._logs: dict[int, dict[str, NotedLog]] = {}

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

    def keep_logs(self, logs: Sequence[StoredLog], *, now: datetime) -> None:
        """Note the last log lines of attempts."""
        for one in logs:
            part = JobPart("note", one.claim.task, one.claim.meta)
            self._logs.setdefault(one.claim.id, {})[one.name] = NotedLog(one.value, now, part)

    def logs(self, job_id: int) -> list[NotedLog]:
        """The last log lines of the attempts of a job, the oldest first."""
        found = self._logs.get(job_id, {}).values()
        return [] if self._table.show(job_id) is None else sorted(found, key=lambda one: one.at)
