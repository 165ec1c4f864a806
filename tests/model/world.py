"""The life of jobs as a small model, and a real queue that is driven beside it, by several clients at given instants.

Each method does one thing to PostgreSQL, on the connection of the client that does it, and the same thing to the model. Then
:meth:`World.compare` compares the tables with the model. What the clients saw is written into a history, as programs outside of
the queue would write it, and :meth:`World.judge` has it checked: by rules that know neither the model nor the tables.

One client may hold a transaction open: then what it has claimed or ended is locked, and the others go on.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from model.jobs import ENDS, MOST, RETRY_IN, ROWS, ModelJob, verdict
from msgspec.structs import replace
from store.samples import LEASE, NOON, new_job, worker_info

from pgqueue.chaos.history.events import (
    Claimed,
    Declared,
    Effect,
    Ended,
    Enqueued,
    Event,
    Left,
    Live,
    Reclaimed,
    Recorded,
    Renewed,
    Revived,
    Started,
    Stopped,
    Violation,
)
from pgqueue.chaos.history.index import Rules
from pgqueue.chaos.judge import check
from pgqueue.store import signals
from pgqueue.store.catalogue import Catalogue
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import claim, control, enqueue, finish
from pgqueue.store.limits import limits
from pgqueue.store.plan import Plan, run
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.bulk.operation import Retried
from pgqueue.values.jobs.job import Claim, Outcome
from pgqueue.values.limits.limit import LimitNumbers
from pgqueue.values.limits.state import CountedClaims, WaitingLane

T = TypeVar("T")
LIMIT = "one"
CLIENTS = ("worker", "other", "holder")
EMPTIED = """
truncate pgqueue.jobs, pgqueue.job_history, pgqueue.dead_jobs, pgqueue.lost_workers, pgqueue.workers, pgqueue.former_workers,
         pgqueue.waits, pgqueue.deadlines, pgqueue.signals, pgqueue.notes, pgqueue.limits, effects
"""


@dataclass
class Open:
    """What a client has done in a transaction that it holds open.

    Attributes:
        jobs: whose rows are locked.
        worker: whose row is locked, shared; None: none.
        committed: what the commit does to the model.
    """

    jobs: set[int]
    worker: UUID | None
    committed: Callable[[], None]


@dataclass
class World:
    """A queue and the model of it; see the module."""

    dsn: str
    catalogue: Catalogue
    compares: bool = True
    now: datetime = NOON
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    leases: dict[UUID, datetime] = field(default_factory=dict)
    workers: list[UUID] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    stopped: list[Claim] = field(default_factory=list)
    counted: dict[UUID, CountedClaims] = field(default_factory=lambda: defaultdict(CountedClaims))
    open: Open | None = None
    events: list[Event] = field(default_factory=list)
    out_of_line: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Connect the clients, and begin with nothing."""
        self._stack = ExitStack()
        self._raw: dict[str, psycopg.Connection[Any]] = {}
        self._runs: dict[str, StepRunner] = {}
        for name in CLIENTS:
            raw = self._stack.enter_context(psycopg.connect(self.dsn, autocommit=True))
            raw.execute("set lock_timeout = '1s'")
            self._raw[name], self._runs[name] = raw, StepRunner(raw, self.catalogue)
        self._raw["other"].execute("create table if not exists effects (job bigint, attempt int)")
        self.begin()

    def begin(self) -> None:
        """Begin with nothing."""
        self.close(commit=False)
        self._raw["other"].execute(EMPTIED)
        self.now = NOON
        for known in (
            self.jobs,
            self.leases,
            self.workers,
            self.claims,
            self.stopped,
            self.counted,
            self.events,
            self.out_of_line,
        ):
            known.clear()
        self.log(Declared(at=0, limit=LIMIT, most=1))

    # What happens.

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def enqueue(self, *, priority: int, delay: float, key: str | None, limited: bool) -> None:
        """Add a job."""
        if self.open and key and any(self.jobs[one].key for one in self.open.jobs):
            return  # it would wait for that transaction
        twin = next((one for one in self.jobs.values() if key and one.live and one.key == key), None)
        new = new_job(
            priority=priority,
            delay=timedelta(seconds=delay) if delay else None,
            unique_key=key,
            max_attempts=MOST,
            lane=LIMIT if limited else None,
        )
        added = self.run(enqueue.enqueue(new, now=self.now).in_transaction())
        if self.compares:
            expected = Outcome.REJECTED if twin else Outcome.ADDED
            assert added.outcome == expected, f"an enqueue with key {key!r}: {added}, and {twin} holds it"
        if added.outcome != Outcome.ADDED:
            return
        run_at = self.now + timedelta(seconds=delay)
        job = ModelJob(added.id, run_at, priority, key, limited, "scheduled" if delay else "ready")
        self.jobs[added.id] = job
        plain = not limited and not delay
        self.log(
            Enqueued(
                at=self.at,
                job=job.id,
                key=key,
                limits=(LIMIT,) if limited else (),
                line=f"priority {priority}" if plain else None,
                place=job.id if plain else None,
                transactional=not limited,
            )
        )

    def register(self) -> None:
        """A worker appears."""
        info = worker_info()
        self.run(leases.register(info, LEASE, now=self.now))
        self.leases[info.id] = self.now + LEASE
        self.workers.append(info.id)
        self.log(Renewed(at=self.at, worker=str(info.id), lease=LEASE.total_seconds()))

    def heartbeat(self, worker: UUID) -> None:
        """A worker renews its lease."""
        asked = self.at
        renewed = self.run(leases.renew(worker, LEASE, now=self.now), "worker")
        if self.compares:
            assert (renewed is not None) == (worker in self.leases), f"a heartbeat of {worker}: {renewed}"
        if renewed is not None:
            self.leases[worker] = self.now + LEASE
            self.log(Renewed(at=asked, worker=str(worker), lease=LEASE.total_seconds()))

    def leave(self, worker: UUID) -> None:
        """A worker takes itself off the list, and returns what it holds before."""
        if self.open and (self.open.worker == worker or self.locked_of(worker)):
            return
        held = [one for one in self.claims if one.worker_id == worker]
        for one in held:
            self.finish(one, "return")
        self.run(leases.leave(worker), "worker")
        self.leases.pop(worker, None)
        self.log(Left(at=self.at, worker=str(worker), returned=True))

    def claim(self, worker: UUID, count: int, *, hold: bool = False) -> None:
        """A worker claims; or it begins to, and holds its transaction open."""
        if hold:
            self._raw["holder"].execute("begin")
        found = self.run(
            claim.claim(worker, {"default": count}, now=self.now), "holder" if hold else "worker"
        )
        ready = sorted(
            (one for one in self.free() if one.status == "ready" and not one.in_lane),
            key=lambda one: one.place,
        )
        expected = [(one.id, one.attempts + 1) for one in ready[:count]] if worker in self.leases else []
        if self.compares:
            assert [(one.id, one.attempt) for one in found] == expected, f"a claim of {worker}"
        if not hold:
            self.claimed(found)
            return
        if not found:  # the statement may have locked the worker's row, or not
            self._raw["holder"].execute("rollback")
            return
        ids = {one.id for one in found}
        self.out_of_line |= ids  # while the transaction is open, others go past these jobs
        self.open = Open(ids, worker, lambda: self.claimed(found))

    def claim_limited(self, worker: UUID) -> None:
        """A worker claims from the lane, of which one job may run."""
        plan = limits.take(
            worker,
            [WaitingLane("default", LIMIT)],
            5,
            declared={LIMIT: LimitNumbers(1, None, None)},
            counted=self.counted[worker],
            now=self.now,
        )
        found = self.run(plan, "worker").claims
        lane = [one for one in self.jobs.values() if one.in_lane]
        waiting = sorted((one for one in lane if one.status == "ready"), key=lambda one: one.place)
        full = any(one.status == "running" for one in lane) or worker not in self.leases
        if self.compares:
            expected = [] if full else [(one.id, one.attempts + 1) for one in waiting[:1]]
            assert [(one.id, one.attempt) for one in found] == expected, f"a claim of {worker} from the lane"
        self.claimed(found)

    def finish(self, one: Claim, how: str) -> None:
        """A worker sends its verdict on an attempt, maybe late, maybe again."""
        job = self.jobs[one.id]
        if self.open and one.id in self.open.jobs:
            return
        self.stop(one)
        state = self._recorded(one, how, "worker")
        heard = self.heard(one)
        if self.compares:
            expected = self.shown(job, self.expected(job, how)) if heard else None
            assert state == expected, (
                f"{how} of attempt {one.attempt} of job {one.id}: {state}, not {expected}"
            )
        self.ended(one, how, state)

    def hold_open(self, one: Claim) -> None:
        """An attempt writes and completes in a transaction that stays open."""
        if self.open or not self.heard(one):
            return
        self.stop(one)
        self._raw["holder"].execute("begin")
        state = self._recorded(one, "complete", "holder")
        self.open = Open({one.id}, None, lambda: self.ended(one, "complete", state))

    def close(self, *, commit: bool) -> None:
        """The client with the open transaction commits it, or loses its connection."""
        if self.open is None:
            return
        self._raw["holder"].execute("commit" if commit else "rollback")
        done, self.open = self.open, None
        if commit:
            done.committed()

    def cancel(self, job: ModelJob) -> None:
        """A caller cancels."""
        if self.open and job.id in self.open.jobs:
            return
        said = self.run(control.cancel(job.id, now=self.now))
        expected = None if not job.live else "running" if job.status == "running" else "cancelled"
        if self.compares:
            assert said == expected, f"a cancel of job {job.id}, which is {job.status}: {said}"
        if said == "running":
            job.cancel = True
        elif said == "cancelled":
            job.status = "cancelled"

    def retry(self, job: ModelJob) -> None:
        """A caller retries a dead job, or has another one run at once, which only a scheduled one does."""
        holds = any(
            one.live and one.key == job.key and one is not job for one in self.jobs.values() if job.key
        )
        if self.open and (job.key or job.id in self.open.jobs):
            return
        done = Retried() if job.status == "scheduled" else self.run(control.retry(job.id, now=self.now))
        if job.status != "dead":
            started = self.run(control.run_now(job.id, now=self.now))
            done = Retried((*done.ids, *(job.id,) * started))
        possible = job.status == "scheduled" or (job.status == "dead" and not holds)
        if self.compares:
            assert done.ids == ((job.id,) if possible else ()), (
                f"a retry of job {job.id}, which is {job.status}: {done}"
            )
        if not done.ids:
            return
        if job.status == "dead":
            self.log(Revived(at=self.at, job=job.id))
            job.attempts, job.cancel = 0, False
        job.status, job.run_at = "ready", self.now

    def poll(self) -> None:
        """A worker promotes what is due."""
        due = [one for one in self.free() if one.status == "scheduled" and one.run_at <= self.now]
        count = self.run(upkeep.poll(now=self.now)).count
        for one in due:
            one.status = "ready"
        if self.compares:
            assert count == len(due), f"a poll promoted {count} jobs, not {len(due)}"

    def sweep(self) -> None:
        """A sweeper takes what lost workers held."""
        shared = self.open.worker if self.open else None
        for worker in [one for one, until in self.leases.items() if until < self.now and one != shared]:
            del self.leases[worker]
        lost = [one for one in self.free() if one.held and one.held.worker_id not in self.leases]
        states = self.run(upkeep.reclaim(now=self.now))
        if self.compares:
            expected = {one.id: self.shown(one, self.expected(one, "lose")) for one in lost}
            assert states == expected, f"a sweep: {states}, not {expected}"
        for job_id, state in states.items():
            job = self.jobs[job_id]
            if job.held is None:
                continue
            held = job.held
            named: dict[str, Any] = {
                "job": job_id,
                "worker": str(held.worker_id),
                "attempt": held.attempt,
                "fence": held.fence,
            }
            self.log(Reclaimed(at=self.at, state=state, **named))  # type: ignore[arg-type]  # a state
            self.apply(job, "lose", str(state))

    def signal(self, job: ModelJob) -> None:
        """A program sends the signal for which jobs wait."""
        if self.open and job.id in self.open.jobs:
            return
        sent = self.run(signals.send(f"job:{job.id}", "go", now=self.now))
        if self.compares:
            expected = "repeated" if job.signalled else "first" if job.live else "gone"
            assert sent == expected, f"a signal to job {job.id}, which is {job.status}: {sent}"
        if job.live:
            job.signalled = True
        if job.status == "blocked":
            job.status = "ready" if job.run_at <= self.now else "scheduled"

    # What is true then.

    def compare(self) -> None:
        """The tables hold what the model says."""
        if self.compares:
            found = self._raw["other"].execute(ROWS.encode()).fetchall()
            expected = [job.row for _, job in sorted(self.jobs.items())]
            assert found == expected, "\n".join(
                f"is {one}, and the model says {other}"
                for one, other in zip(found, expected, strict=False)
                if one != other
            )

    def judge(self) -> list[Violation]:
        """What the history says: it ends with a look at all tables."""
        self.close(commit=False)
        looker = self._raw["other"]
        at = self.at
        for job, attempt in looker.execute("select job, attempt from effects").fetchall():
            self.log(Effect(at=at, job=job, attempt=attempt))
        for job, status, *_ in looker.execute("select id, status from pgqueue.jobs").fetchall():
            self.log(Live(at=at, job=job, state=status))
        records = "select id, outcome, attempts, max_attempts, coalesce(jsonb_array_length(errors), 0), null from pgqueue.job_history union all select id, 'dead', attempts, max_attempts, coalesce(jsonb_array_length(errors), 0), reason from pgqueue.dead_jobs"
        for job, state, attempts, most, errors, reason in looker.execute(records).fetchall():
            self.log(
                Recorded(
                    at=at,
                    job=job,
                    state=state,
                    attempts=attempts,
                    most=most,
                    errors=errors,
                    exhausted=reason == "exhausted",
                )
            )
        return check(map(self._in_line, self.events), Rules(slack=0.0))

    def _in_line(self, event: Event) -> Event:
        is_out = isinstance(event, Enqueued) and event.job in self.out_of_line
        return replace(event, line=None) if is_out else event

    def end(self) -> None:
        """Disconnect."""
        self._stack.close()

    # How it is done.

    def run(self, plan: Plan[T], client: str = "other") -> T:
        """Run a plan on the connection of a client."""
        return run(plan, self._runs[client])

    def log(self, event: Event) -> None:
        """Write into the history."""
        self.events.append(event)

    @property
    def at(self) -> float:
        """The instant, in seconds; two events never have the same."""
        return (self.now - NOON).total_seconds() + 1e-6 * len(self.events)

    def free(self) -> list[ModelJob]:
        """The jobs that no open transaction has locked."""
        locked = self.open.jobs if self.open else set()
        return [one for one in self.jobs.values() if one.id not in locked]

    def locked_of(self, worker: UUID) -> bool:
        """Whether an open transaction has locked a job of a worker."""
        held = (self.jobs[one].held for one in (self.open.jobs if self.open else ()))
        return any(one is not None and one.worker_id == worker for one in held)

    def heard(self, one: Claim) -> bool:
        """Whether an attempt still holds its job."""
        return self.jobs[one.id].held is one

    def stop(self, one: Claim) -> None:
        """A task returns; of a verdict that is sent again it has before."""
        if one not in self.stopped:
            self.stopped.append(one)
            self.log(
                Stopped(
                    at=self.at, job=one.id, worker=str(one.worker_id), attempt=one.attempt, fence=one.fence
                )
            )

    def claimed(self, found: Any) -> None:
        """Jobs have become a worker's."""
        for one in found:
            job = self.jobs[one.id]
            job.status, job.attempts, job.held = "running", one.attempt, one
            self.claims.append(one)
            named: dict[str, Any] = {
                "job": one.id,
                "worker": str(one.worker_id),
                "attempt": one.attempt,
                "fence": one.fence,
            }
            self.log(Claimed(at=self.at, most=MOST, **named))
            self.log(Started(at=self.at, **named))

    def shown(self, job: ModelJob, state: str) -> str:
        """How the tables say a state: where others are ready, a limited job is blocked in its lane."""
        return "blocked" if job.in_lane and state == "ready" else state

    def expected(self, job: ModelJob, how: str) -> str:
        """In which state a verdict has to leave a job."""
        if how == "complete":
            return "succeeded"
        if job.cancel:
            return "cancelled"
        if how == "die" or (how in {"fail", "lose"} and job.attempts >= MOST):
            return "dead"
        if how == "wait":
            return "ready" if job.signalled else "blocked"
        if how == "cancel":
            return "cancelled"
        return "scheduled" if how in {"fail", "snooze"} else "ready"

    def ended(self, one: Claim, how: str, state: str | None) -> None:
        """The answer to a verdict has come."""
        spent = how not in {"return", "snooze", "wait"}
        named: dict[str, Any] = {
            "job": one.id,
            "worker": str(one.worker_id),
            "attempt": one.attempt,
            "fence": one.fence,
        }
        self.log(Ended(at=self.at, state=state, spent=spent, **named))  # type: ignore[arg-type]  # a state
        if state is not None and self.heard(one):
            self.apply(self.jobs[one.id], how, state)

    def apply(self, job: ModelJob, how: str, state: str) -> None:
        """Do to the model what a verdict does."""
        in_lane = job.in_lane and state == "blocked" and (how != "wait" or job.signalled)
        job.status, job.held = "ready" if in_lane else state, None
        job.errors += how in {"fail", "die", "lose"}
        if how in {"return", "snooze", "wait"} and state not in ENDS:
            job.attempts -= 1
        if state == "scheduled":
            job.run_at = self.now + RETRY_IN

    def _recorded(self, one: Claim, how: str, client: str) -> str | None:
        """Record a verdict; one on a job whose task writes commits with what it writes, or not at all."""
        plan = finish.finish(one.worker_id, [verdict(one, how)], keep=True, now=self.now)
        if how != "complete" or self.jobs[one.id].in_lane:
            return self.run(plan, client).get(one.id)
        raw = self._raw[client]
        with raw.transaction():
            raw.execute("insert into effects values (%s, %s)", [one.id, one.attempt])
            state = self.run(plan, client).get(one.id)
            if state is None:
                raise psycopg.Rollback
        return state
