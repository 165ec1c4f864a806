"""Jobs in a dict, for tests without a database.

Each public method of :class:`Table` answers the plan of its name, with the same arguments, as PostgreSQL would
to one client that has no other beside it. What is decided elsewhere is not decided here again: what becomes of an attempt
(:mod:`pgqueue.values.verdict`) comes in as a verdict, and arguments and results
(:mod:`pgqueue.values.payload`) as JSON.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from uuid import UUID

import msgspec

from pgqueue.errors import LimitFull, as_duration
from pgqueue.store.backlog import bounded
from pgqueue.store.copying import due_at
from pgqueue.store.ending import States
from pgqueue.store.leases import WorkerInfo
from pgqueue.store.standings import RATED
from pgqueue.store.waiting import Look
from pgqueue.testing.flows import Flows
from pgqueue.testing.known_queues import KnownQueues
from pgqueue.testing.lanes import Lanes
from pgqueue.testing.mailbox import Mailbox
from pgqueue.testing.plans import Found
from pgqueue.testing.row import Row
from pgqueue.testing.why import Around, facts_of
from pgqueue.values.crashes import Begun
from pgqueue.values.job import (
    ENDED,
    AtEnd,
    AttemptError,
    Claim,
    Enqueued,
    Job,
    JobState,
    NewJob,
    Outcome,
    QueueCount,
)
from pgqueue.values.lease import LEASE
from pgqueue.values.limit import Numbers, WhenFull, keys_of
from pgqueue.values.limiting import Limiting, limit_full
from pgqueue.values.queue_defaults import Known, full
from pgqueue.values.retried import Held, Retried
from pgqueue.values.serving import Serving
from pgqueue.values.shares import Split
from pgqueue.values.standing import Head, QueueStanding, Sample, standings
from pgqueue.values.verdict import (
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
    lost,
)
from pgqueue.values.why import Why, explain

log = logging.getLogger("pgqueue")

NOT_HELD = ENDED | {JobState.READY}
"""States in which a job counts under no limit."""


class Table:
    """All jobs of a queue, and what is known of its workers.

    Attributes:
        reclaimed: what was recorded of lost workers' jobs; a drain takes it.
        lanes: the limits under which jobs wait.
    """

    def __init__(
        self,
        limits: Callable[[], Mapping[str, Numbers]],
        limiting: Callable[[], Mapping[str, Limiting | None]],
    ) -> None:
        """Begin with no job.

        Args:
            limits: returns those of the queue's tasks, by name.
            limiting: returns which of them each task has.
        """
        self.lanes = Lanes(limits)
        self._limiting = limiting
        self._rows: dict[int, Row] = {}
        self._ids = count(1)
        self._leases: dict[UUID, datetime] = {}
        self.queues = KnownQueues(lambda: {row.new.queue for row in self._rows.values()})
        self._holds: dict[str, tuple[int, datetime]] = {}
        self.reclaimed: list[Verdict] = []
        self.flows = Flows(self.insert, self.holder, self.require_rooms)
        self.mailbox = Mailbox(self._rows, self.flows)
        self._around = Around(self._rows, self.queues, self.lanes, self.flows, self.mailbox)

    def clock(self, *, now: datetime) -> datetime:
        """What time it is."""
        return now

    def enqueue(self, job: NewJob, *, now: datetime, known: Known | None = None) -> Enqueued:  # noqa: ARG002 - all is known
        """Add a job, or deal with the job that holds its unique key."""
        self.queues.defaults().of(job)  # refuses a drained queue
        return self._enqueued(job, now)

    def _enqueued(self, job: NewJob, now: datetime) -> Enqueued:
        if job.when_full is not None and (answer := self._require_place(job, job.when_full, now)):
            return answer
        if job.unique_key is not None and (answer := self._collision(job, job.unique_key, now)):
            return answer
        self.require_rooms([job])
        return self._added(job, now)

    def _require_place(self, job: NewJob, when_full: tuple[WhenFull, int], now: datetime) -> Enqueued | None:
        """As :func:`pgqueue.store.lanes.require_place`."""
        policy, declared = when_full
        limit = keys_of(job.lane or "")[0].limit
        most = self.lanes.most(limit, declared)
        same = [row for row in self._rows.values() if row.new.lane == job.lane]
        running = sum(row.is_running for row in same)
        waiting = [row for row in same if row.is_ready and row.new.queue == job.queue]
        if running + len(waiting) < most:
            return None
        if policy == "refuse":
            raise limit_full(limit, most)
        if policy == "oldest":
            return Enqueued(waiting[0].id, Outcome.REJECTED) if waiting else None
        for row in waiting:
            self.cancel(row.id, now=now)
        return None

    def _added(self, job: NewJob, now: datetime) -> Enqueued:
        row = self.insert(job, now)
        if job.unique_key is not None and job.unique.period is not None:
            if job.unique.trailing:
                row.run_at = max(now, self._holds.get(job.unique_key, (0, now))[1])
                row.expires_at = _expiry(job, row.run_at)
            self._holds[job.unique_key] = row.id, row.run_at + as_duration("period", job.unique.period)
        row.admit(now)
        return Enqueued(row.id)

    def enqueue_many(self, jobs: Iterable[NewJob], *, now: datetime) -> list[Enqueued]:
        """Add jobs, all or none."""
        jobs = list(jobs)
        self.require_rooms(jobs)
        for job in jobs:
            self.queues.defaults().of(job)  # refuses a drained queue
        before = self._rows.keys() | set[int]()
        try:
            return [self._enqueued(job, now) if job.when_full else self._keyed(job, now) for job in jobs]
        except LimitFull:
            self.forget(self._rows.keys() - before)
            raise

    def _keyed(self, job: NewJob, now: datetime) -> Enqueued:
        return (job.unique_key and self._collision(job, job.unique_key, now)) or self._added(job, now)

    def require_rooms(self, jobs: Iterable[NewJob]) -> None:
        """Refuse jobs of which some are for a full queue."""
        for queue, number in sorted(bounded(jobs, self.queues.defaults()).items()):
            settings = self.queues.of(queue).settings
            ready = sum(row.state is JobState.READY and row.new.queue == queue for row in self._rows.values())
            if settings.backlog is not None and ready + number > settings.backlog:
                error = full(queue, settings.backlog, number)
                if settings.when_full == "refuse":
                    raise error
                log.warning("queue is full: %s", error)

    def insert(self, job: NewJob, now: datetime) -> Row:
        """Add a job that is blocked until it is admitted; its unique key is free."""
        priority, max_attempts = self.queues.defaults(refuses=False).of(job)
        job = msgspec.structs.replace(job, priority=priority, max_attempts=max_attempts)
        row = Row(next(self._ids), job, JobState.BLOCKED, due_at(job, now), now, job.unique_key)
        row.expires_at = _expiry(job, row.run_at)
        self._rows[row.id] = row
        return row

    def forget(self, job_ids: Iterable[int]) -> None:
        """Drop jobs that were not added after all."""
        for job_id in job_ids:
            del self._rows[job_id]

    def rows(self) -> list[Row]:
        """All jobs, in the order of their ids."""
        return list(self._rows.values())

    def show(self, job_id: int) -> Job | None:
        """One job."""
        row = self._rows.get(job_id)
        return None if row is None else row.shown()

    def look(self, job_id: int) -> Look | None:
        """One job, and its result as it is stored."""
        row = self._rows.get(job_id)
        if row is None:
            return None
        return Look(row.shown(), None if row.result is None else row.result.decode())

    def why(self, job_id: int, *, now: datetime) -> Why:
        """Why a job does not run; here none does until a test drains its queue."""
        row = self._rows.get(job_id)
        return explain(job_id, None if row is None else facts_of(self._around, row, now))

    def jobs(
        self,
        *,
        states: Collection[JobState] | None,
        queue: str | None,
        task: str | None,
        unique_key: str | None,
        before: int | None,
        limit: int,
    ) -> list[Job]:
        """The jobs that match every filter, newest first."""
        found = [
            row.shown()
            for row in reversed(self._rows.values())
            if (states is None or row.shown_state in states)
            and row.matches(task, queue)
            and unique_key in (None, row.unique_key)
            and (before is None or row.id < before)
        ]
        return found[:limit]

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
            heads=[Head(queue, oldest, numbers[queue, "ready"]) for queue, oldest in ready.items()],
            samples=[Sample(queue, state, count) for (queue, state), count in numbers.items()],
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
        """Make a scheduled or dead job ready."""
        if self.run_now(job_id, now=now):
            return Retried((job_id,))
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

    def next_claim(
        self,
        worker: WorkerInfo,
        served: Serving,
        split: Split | None,
        lanes: object,  # noqa: ARG002 - of PostgreSQL
        *,
        now: datetime,
    ) -> Found:
        """Take back what was lost, put in line what is due, and claim the next job."""
        self._leases[worker.id] = now + LEASE
        self._expire(now)
        self._reclaim(now)
        self.mailbox.admit_lapsed(now=now)
        for row in self._rows.values():
            if row.state is JobState.SCHEDULED and row.run_at <= now:
                row.state, row.run_at, row.place_at = JobState.READY, row.place_at or row.run_at, None
        ready = [row for row in self._rows.values() if row.state is JobState.READY]
        running = self.lanes.running(row for row in self._rows.values() if row.state not in NOT_HELD)
        plain = self.lanes.let_without_lane(ready, running, now)
        self.queues.age(plain, now)
        line = self._turn({row.new.queue for row in plain}, served, split)
        if line is not None:
            first = min((row for row in plain if row.new.queue == line), key=lambda row: row.place)
            self.lanes.started(first, now)
            return Found(first.claimed(worker.id, now), self.queues.timeouts())
        heads = self.lanes.heads(ready, running, now)
        line = self._turn(heads.keys(), served, split)
        chosen = None if line is None else self.lanes.choose(line, heads[line], now).claimed(worker.id, now)
        return Found(chosen, self.queues.timeouts())

    def _turn(self, waiting: Collection[str], served: Serving, split: Split | None) -> str | None:
        """The queue whose turn it is, of those in which jobs wait."""
        queues = served.filtered(sorted(waiting) if served.is_open else served.names)
        return self.queues.turn(queues, {*waiting}, split)

    def _expire(self, now: datetime) -> None:
        """End the jobs that were not started in time."""
        late = {JobState.BLOCKED, JobState.SCHEDULED, JobState.READY}
        for row in [row for row in self._rows.values() if row.expires_at is not None]:
            if row.state in late and row.expires_at is not None and row.expires_at <= now:
                row.note(AttemptError(0, "Expired", expired_words(str(row.expires_at))), now)
                row.end(JobState.DEAD, now)
                row.reason = "expired"
                self.flows.ended(row, now)

    def leave_without_jobs(self, worker: UUID) -> None:
        """Forget a worker that holds nothing."""
        self._leases.pop(worker, None)

    def record(self, worker: UUID, verdicts: Sequence[Verdict], *, keep: bool, now: datetime) -> States:
        """Record verdicts on jobs that the worker still holds; the ids of those."""
        done: States = {}
        for verdict in verdicts:
            if verdict.claim.worker_id == worker and self.holds(verdict.claim):
                row = self._rows[verdict.claim.id]
                self._record(row, verdict, now)
                done[row.id] = row.state
                if row.state.ended:
                    self.flows.ended(row, now, skipped=isinstance(verdict, Cancelled) and verdict.skipped)
                if row.state is JobState.SUCCEEDED and not keep and row.id not in self.flows:
                    del self._rows[row.id]
        return done

    def start(self, claim: Claim, *, now: datetime) -> Begun | None:  # noqa: ARG002 - nothing asks when
        """Note that an attempt of a suspect starts; None: it no longer holds its job."""
        if not self.holds(claim):
            return None
        row = self._rows[claim.id]
        row.started_fence = row.fence
        since_revival = row.errors[max(0, len(row.errors) - (row.attempts - 1)) :]
        return Begun(sum(error.crashed for error in since_revival))

    def holds(self, claim: Claim) -> bool:
        """Whether an attempt holds its job."""
        row = self._rows.get(claim.id)
        if row is None or row.state is not JobState.RUNNING:
            return False
        return (row.worker_id, row.fence) == (claim.worker_id, claim.fence)

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
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
                self.mailbox.wait(row, awaited, now=now)
            case Died(seconds=seconds, reason=reason):
                row.end(JobState.DEAD, now, seconds=seconds)
                row.reason = reason
                row.attempts -= reason == "expired"
            case Again(delay=delay) | Returned(delay=delay) | Unknown(delay=delay):
                place, row.run_at = row.run_at, row.run_at if delay is None else now + delay
                row.wait(JobState.SCHEDULED if delay else JobState.READY)
                limiting = self._limiting().get(row.new.task)
                if row.new.lane is not None and limiting is not None and limiting.ordered:
                    row.place_at, row.run_at = (place, row.run_at) if delay else (None, place)
                row.attempts -= isinstance(verdict, Returned | Unknown)

    def is_lost(self, row: Row, now: datetime) -> bool:
        """Whether a worker holds the job whose lease has passed."""
        return row.worker_id is not None and self._leases.get(row.worker_id, now) <= now

    def _reclaim(self, now: datetime) -> None:
        """End the claims of workers whose lease has passed."""
        self._leases = {worker: until for worker, until in self._leases.items() if until >= now}
        for row in self._rows.values():
            if row.state is not JobState.RUNNING or row.worker_id in self._leases:
                continue
            assert row.worker_id is not None  # noqa: S101 - a running job's
            claim = msgspec.structs.replace(row.claim(row.worker_id, now), args="{}")
            seconds = 0.0 if row.started_at is None else (now - row.started_at).total_seconds()
            suspect = bool((row.at_end or 0) & AtEnd.SUSPECT)
            verdict = lost(claim, seconds=seconds, crashed=not suspect or row.started_fence == row.fence)
            row.at_end = (row.at_end or 0) | AtEnd.SUSPECT
            self._record(row, verdict, now)
            self.reclaimed.append(as_recorded(verdict, row.state))
            if row.state.ended:
                self.flows.ended(row, now)

    def _collision(self, job: NewJob, key: str, now: datetime) -> Enqueued | None:
        """What to say to an enqueue whose unique key is taken; None: it is free."""
        row = self.holder(key)
        if row is None:
            job_id, until = self._holds.get(key, (0, now))
            holds = job.unique.period and not job.unique.trailing and until > now
            return Enqueued(job_id, Outcome.REJECTED) if holds else None
        row.collisions += 1
        if row.state is JobState.RUNNING or job.unique.collision == "reject":
            return Enqueued(row.id, Outcome.REJECTED)
        if not job.unique.trailing:
            before, row.run_at = row.run_at, due_at(job, now)
            if job.unique.most is not None:
                row.run_at = min(max(before, row.run_at), row.created_at + job.unique.most)
        if row.state is not JobState.BLOCKED:
            row.admit(now)
        if job.unique.collision == "reschedule":
            return Enqueued(row.id, Outcome.RESCHEDULED)
        row.new, row.expires_at = job, _expiry(job, row.run_at)
        return Enqueued(row.id, Outcome.REPLACED)

    def holder(self, key: str | None) -> Row | None:
        """The live job that has a unique key."""
        if key is None:
            return None
        live = (row for row in self._rows.values() if not row.state.ended)
        return next((row for row in live if row.unique_key == key), None)

    def _dead(self, job_ids: Collection[int]) -> list[Row]:
        return [row for row in self._rows.values() if row.state is JobState.DEAD and row.id in job_ids]

    def revive(self, job_ids: Sequence[int], *, without_key: bool, now: datetime) -> Retried:
        """Make dead jobs ready, unless a live job has their key or another flow has their flow's."""
        revived, held = list[int](), list[Held]()
        barred = {job_id for job_id in job_ids if self.flows.bars(job_id)}
        for row in self._dead([job_id for job_id in job_ids if job_id not in barred]):
            key = None if without_key else row.unique_key
            twin = self.holder(key)
            if twin is not None and key is not None:
                held.append(Held(row.id, twin.id, key))
                continue
            row.revive(JobState.READY, now)
            row.unique_key = key
            self.mailbox.revive(row.id)
            self.flows.reopen(row.id)
            revived.append(row.id)
        known = {*revived, *barred, *(one.id for one in held)}
        left = tuple(one for one in job_ids if one not in known)
        return Retried(tuple(revived), tuple(held), (), left, tuple(sorted(barred)))


def _expiry(job: NewJob, run_at: datetime) -> datetime | None:
    return job.expires_at if job.expires_in is None else run_at + job.expires_in
