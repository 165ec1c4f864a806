"""Running what is due, in the process of a test: in order, one job at a time, until nothing more is due."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgqueue.app import builtin
from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import InvalidOption, JobControl, JobError
from pgqueue.store import control, finish, leases, notes, ticks
from pgqueue.store.database import Database
from pgqueue.store.ending import States
from pgqueue.store.plan import Plan
from pgqueue.store.served_lanes import Lanes
from pgqueue.store.sweep import arun_sweep, reclaiming, run_sweep
from pgqueue.testing.alerts import alook_at_due, look_at_due
from pgqueue.testing.attempts import Loop, Watched, arun
from pgqueue.testing.clock import Clock
from pgqueue.testing.guarding import require_for_tests
from pgqueue.testing.memory import Memory
from pgqueue.testing.modes import swapped
from pgqueue.testing.plans import Found, next_claim
from pgqueue.testing.standin import StandIn
from pgqueue.testing.trouble import INJECTED, WorkerDied
from pgqueue.values.batching import Batching
from pgqueue.values.codec import args_shown, with_encoded_errors
from pgqueue.values.job import Claim, Job, JobState
from pgqueue.values.serving import Order, serving
from pgqueue.values.shares import split_of
from pgqueue.values.verdict import Returned, Verdict, as_recorded
from pgqueue.worker.attempt import Attempt, BatchAttempt
from pgqueue.worker.gathering import group_of

MOST_OTHERS = 1_000
"""Jobs of other tasks among which a drain looks for those of a batch."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that a drain has run.

    Attributes:
        id: the job's.
        task: the task's name.
        args: the arguments, as plain JSON values.
        attempt: which attempt it was, from 1.
        outcome: the state in which it left the job.
        error: what it raised, the exception itself; or None.
    """

    id: int
    task: str
    args: dict[str, Any]
    attempt: int
    outcome: JobState
    error: BaseException | None


def drain(
    queue: PgQueue,
    *,
    now: datetime | None = None,
    queues: Iterable[str] | Mapping[str, int] | None = None,
    order: Order = "shares",
    raises: bool = True,
    limit: int = 1000,
    allow_real: bool = False,
) -> list[Ran]:
    """Run every job that is due, and every job that is due because of those, without a worker.

    First it fires the schedules that are due, then it looks at the alerts that are due. What the app declares of them is stored by
    ``queue.schedules.apply()`` and ``queue.alerts.apply()``.

    Jobs of one queue run in the order in which a worker would start them; queues come one after the other, by
    name. Plain functions run in the current thread, others in an event loop of their own.

    Args:
        queue: whose jobs; in memory, or in a database whose name contains the word test.
        now: the instant; by default what the test's clock shows, or else what the database's does. It does not
            pass while jobs run: what is enqueued for later, and failed jobs that wait, are due at a later one.
        queues: only from these, in this order; None: from all. With weights, ``{"mail": 5, "reports": 1}``, 5 jobs of the one
            run for each of the other; patterns are as a worker's.
        order: ``shares``, or ``strict``: a job runs only while the queues before its own have none that is due.
        raises: raise the first error of a task, once it is recorded. Not raised are those by which tasks decide
            (``Snooze``, ``RetryLater``, ``Dead``) and those of ``failing``.
        limit: the most jobs to run, since a job that enqueues itself would never end.
        allow_real: run jobs of any database.

    Returns:
        The attempts, in order.

    Raises:
        ConfigurationError: the database may be in use: its name has no word test.
        InvalidOption: this is no queue.
        JobError: there were ``limit`` jobs.
        UnknownQueue: one of ``queues`` is not declared.
    """
    return _drained(
        queue, Shift(queue, queues, order, raises=raises, limit=limit), now, allow_real=allow_real
    )


def run_next(queue: PgQueue) -> Ran:
    """Run the job that is due first, or the batch that it begins, and no other; raise what a drain raises.

    Raises:
        JobError: none is due.
    """
    ran = _drained(
        queue, Shift(queue, None, "shares", raises=True, limit=1), None, allow_real=False, only_one=True
    )
    if not ran:
        raise JobError("no job is due")
    return ran[0]


def _drained(
    queue: PgQueue, shift: "Shift", now: datetime | None, *, allow_real: bool, only_one: bool = False
) -> list[Ran]:
    if _must_ask_for_name(queue, allow_real=allow_real):
        require_for_tests(queue.database.run(control.database_name()))
    if now is None and _clock_of(queue) is None:
        now = queue.database.run(control.clock())
    loop = Loop(queue.aclose)
    with _at(queue, now), queue.hooks.at_once():
        database = shift.executor.database = queue.database
        while database.run(ticks.fire_due()).more:
            pass
        look_at_due(database)
        try:
            while not (only_one and shift.ran) and (found := _claimed(database, shift)):
                attempt = shift.begin(found)
                queue.hooks.flush()
                verdicts = loop.run(shift.executor, attempt)
                if reports := shift.executor.board.take():
                    database.run(notes.report(reports))
                if verdicts:
                    shift.note_recorded(verdicts, database.run(shift.finish(verdicts)))
                queue.hooks.flush()
                shift.end([(claimed, database.run(control.show(claimed.id))) for claimed in found])
            queue.hooks.flush()
        finally:
            loop.stop()
            database.run(leases.leave_without_jobs(shift.worker.id))
    return shift.ran


async def adrain(
    queue: PgQueue,
    *,
    now: datetime | None = None,
    queues: Iterable[str] | Mapping[str, int] | None = None,
    order: Order = "shares",
    raises: bool = True,
    limit: int = 1000,
    allow_real: bool = False,
) -> list[Ran]:
    """Run every job that is due, as :func:`drain` does: ``async def`` tasks in this loop, plain ones in a thread.

    Args:
        queue: whose jobs; in memory, or in a database whose name contains the word test.
        now: the instant; by default what the test's clock shows, or else what the database's does.
        queues: only from these, in this order; None: from all. With weights, ``{"mail": 5, "reports": 1}``, 5 jobs of the one
            run for each of the other; patterns are as a worker's.
        order: ``shares``, or ``strict``: a job runs only while the queues before its own have none that is due.
        raises: raise the first error of a task, once it is recorded.
        limit: the most jobs to run.
        allow_real: run jobs of any database.

    Returns:
        The attempts, in order.

    Raises:
        ConfigurationError: the database may be in use: its name has no word test.
        InvalidOption: this is no queue.
        JobError: there were ``limit`` jobs.
        UnknownQueue: one of ``queues`` is not declared.
    """
    shift = Shift(queue, queues, order, raises=raises, limit=limit)
    if _must_ask_for_name(queue, allow_real=allow_real):
        require_for_tests(await queue.database.arun(control.database_name()))
    if now is None and _clock_of(queue) is None:
        now = await queue.database.arun(control.clock())
    with _at(queue, now), queue.hooks.at_once():
        database = shift.executor.database = queue.database
        while (await database.arun(ticks.fire_due())).more:
            pass
        await alook_at_due(database)
        try:
            while found := await _aclaimed(database, shift):
                attempt = shift.begin(found)
                await queue.hooks.aflush()
                verdicts = await arun(shift.executor, attempt)
                if reports := shift.executor.board.take():
                    await database.arun(notes.report(reports))
                if verdicts:
                    shift.note_recorded(verdicts, await database.arun(shift.finish(verdicts)))
                await queue.hooks.aflush()
                shift.end([(one, await database.arun(control.show(one.id))) for one in found])
            await queue.hooks.aflush()
        finally:
            await database.arun(leases.leave_without_jobs(shift.worker.id))
    return shift.ran


def _claimed(database: Database, shift: "Shift") -> list[Claim]:
    """Take back the jobs of workers whose lease has passed, as a worker does, and claim the next job, or the next batch."""
    if isinstance(database, Memory):  # which does both at once
        shift.sort(database.run(shift.look()))
        shift.note_reclaimed(database.take_reclaimed())
    else:
        shift.note_reclaimed(run_sweep(reclaiming(), database.run).verdicts)
        shift.sort(database.run(shift.look()))
    while shift.wants_more() and shift.sort(database.run(shift.look())):
        pass
    if shift.others:
        database.run(shift.finish(shift.take_others()))
    return shift.found


async def _aclaimed(database: Database, shift: "Shift") -> list[Claim]:
    """As :func:`_claimed`, awaited."""
    if isinstance(database, Memory):
        return _claimed(database, shift)
    shift.note_reclaimed((await arun_sweep(reclaiming(), database.arun)).verdicts)
    shift.sort(await database.arun(shift.look()))
    while shift.wants_more() and shift.sort(await database.arun(shift.look())):
        pass
    if shift.others:
        await database.arun(shift.finish(shift.take_others()))
    return shift.found


class Shift:
    """What a drain knows between two jobs; nothing here waits.

    Attributes:
        worker: in whose name it claims. When a worker dies, the next one takes over.
        executor: runs the attempts.
        found: the job to run next, or all jobs of a batch.
        others: jobs that were claimed while those of a batch were looked for; they go back.
        ran: those that have ended.
    """

    def __init__(
        self,
        queue: PgQueue,
        queues: Iterable[str] | Mapping[str, int] | None,
        order: Order,
        *,
        raises: bool,
        limit: int,
    ) -> None:
        """Begin a shift; as for :func:`drain`."""
        if not isinstance(queue, PgQueue):
            raise InvalidOption(f"drain({queue!r}): give the queue; every job that is due in it is run")
        if limit < 1:
            raise InvalidOption(f"limit={limit!r}: run at least one job")
        builtin.register(queue)
        self._queue = queue
        self._served = serving(queues, order=order, declared=queue.queues)
        self._split = split_of(self._served)
        self._lanes = Lanes(lambda: queue.limits, lambda: queue.limiting, self._served)
        self._raises = raises
        self._limit = limit
        self.executor = Watched(queue)
        self.found: list[Claim] = []
        self.others: list[Verdict] = []
        self.ran: list[Ran] = []
        self._enter_worker()

    def look(self) -> Plan[Found]:
        """Claim the next job."""
        if len(self.ran) >= self._limit:
            raise JobError(
                f"drain ran {self._limit} jobs, the last of {self.ran[-1].task}, and gave up; "
                "does a job enqueue itself? If not, give drain(limit=...)"
            )
        return next_claim(self.worker, self._served, self._split, self._lanes)

    def sort(self, found: Found) -> bool:
        """Take a claim to run next or with those of its batch, or as another one; False: there was none."""
        self._lanes.claimed()
        self.executor.timeouts.clear()
        self.executor.timeouts.update(found.timeouts)
        claim = found.claim
        if claim is None:
            return False
        if not self.found:
            if claim.task not in self._queue.tasks:
                self._queue.load_task(claim.task)
            self._batching = self._batching_of(claim)
            self._group = self._group_of(claim)
        if self._group_of(claim) == self._group:
            self.found.append(claim)
        else:
            self.others.append(Returned(claim))
        return True

    def wants_more(self) -> bool:
        """Whether jobs of the same batch are to be looked for."""
        if not self.found or self._batching is None or len(self.others) >= MOST_OTHERS:
            return False
        return len(self.found) < min(self._batching.size, self._limit - len(self.ran))

    def take_others(self) -> list[Verdict]:
        """What is to be recorded of the other jobs; none is left."""
        others, self.others = self.others, []
        return others

    def begin(self, found: Sequence[Claim]) -> Attempt:
        """Prepare the attempt; tell observers."""
        self._queue.observers.claimed(found)
        self._queue.observers.started(found)
        claim = found[0]
        task = self._queue.tasks.get(claim.task)
        if task is not None and task.batching is not None:
            return BatchAttempt(found, task, self.executor)
        plain = task is not None and not task.is_async
        return Attempt(claim, task, Context(claim, self.executor), plain=plain)

    def finish(self, verdicts: Sequence[Verdict]) -> Plan[States]:
        """Record how they ended. Where the database refuses that, a test's own transaction goes on."""
        recording = finish.finish(
            self.worker.id,
            with_encoded_errors(self._queue.codec, verdicts),
            keep=self._queue.keeps_history,
        )
        return recording.in_transaction()

    def note_recorded(self, verdicts: Sequence[Verdict], states: States) -> None:
        """Tell observers what was recorded, and which jobs were no longer the attempt's."""
        observers = self._queue.observers
        if ended := [as_recorded(one, states[one.claim.id]) for one in verdicts if one.claim.id in states]:
            observers.ended(ended)
        if lost := [one.claim for one in verdicts if one.claim.id not in states]:
            observers.lost(lost)

    def note_reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """Tell observers of lost workers' jobs that were taken over."""
        if verdicts:
            self._queue.observers.reclaimed(verdicts)

    def end(self, jobs: Sequence[tuple[Claim, Job | None]]) -> None:
        """Note what became of jobs: without a record they succeeded, and no history is kept."""
        self.found = []
        errors = [self._note(found, job) for found, job in jobs]
        if any(isinstance(error, WorkerDied) for error in errors):
            self._enter_worker()
        for error in errors:
            if error is not None and not isinstance(error, WorkerDied) and self._wants_raised(error):
                raise error

    def _note(self, found: Claim, job: Job | None) -> BaseException | None:
        error = self.executor.errors.pop(found.id, None)
        outcome = JobState.SUCCEEDED if job is None else job.state
        args = args_shown(self._queue.codec, found)
        self.ran.append(Ran(found.id, found.task, args, found.attempt, outcome, error))
        return error

    def _batching_of(self, claim: Claim) -> Batching | None:
        task = self._queue.tasks.get(claim.task)
        return None if task is None else task.batching

    def _group_of(self, claim: Claim) -> object:
        batching = self._batching_of(claim)
        return claim.id if batching is None else group_of(claim, batching.by, self._queue.codec)

    def _wants_raised(self, error: BaseException) -> bool:
        """Whether a test is to see it: neither a task's decision nor asked for."""
        if isinstance(error, KeyboardInterrupt):  # of the person who runs the tests
            return True
        expected = isinstance(error, JobControl) or INJECTED in getattr(error, "__notes__", ())
        return self._raises and not expected

    def _enter_worker(self) -> None:
        self.worker = leases.WorkerInfo.here(1, self._served.entries)


@contextmanager
def _at(queue: PgQueue, now: datetime | None) -> Iterator[None]:
    """Run the plans of the queue at this instant; None: at that of its clock."""
    clock = _clock_of(queue)
    if now is None:
        yield
    elif clock is not None:
        with clock.at(now):
            yield
    else:
        with swapped(queue, StandIn(queue.database, clock=Clock(now))):
            yield


def _must_ask_for_name(queue: PgQueue, *, allow_real: bool) -> bool:
    """Whether a drain depends on the name of the queue's database."""
    return not allow_real and not isinstance(queue.database, Memory)


def _clock_of(queue: PgQueue) -> Clock | None:
    """The clock that a test has given its queue."""
    return queue.database.clock if isinstance(queue.database, Memory | StandIn) else None
