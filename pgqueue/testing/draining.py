"""Running what is due, in the process of a test: in order, one job at a time, until nothing more is due.

It runs the jobs in memory, and those of a database whose name says that it is for tests. The name decides, since a test can
reach any database: by a DSN in the shell, by the project's settings, on a connection of its own. A transaction that will be
rolled back sees the jobs that others have committed, so it makes no difference.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from pgqueue.app.hooks.hooks import Hooks
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError, PgQueueError
from pgqueue.store.alerts import alerts
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.drive import adrive, drive
from pgqueue.store.jobs import control, enqueue, notes
from pgqueue.store.jobs.sweep import Sweep, reclaim
from pgqueue.store.plan import Plan
from pgqueue.store.schedules import ticks
from pgqueue.store.workers import leases
from pgqueue.testing.attempts import DrainState, Loop, Ran, arun
from pgqueue.testing.clock import Clock
from pgqueue.testing.memory import Memory
from pgqueue.testing.standin import StandIn, swap_database
from pgqueue.values.jobs.job import Claim, Job, JobState, NewJob
from pgqueue.values.queues.served_queues import Order
from pgqueue.worker.attempt import Attempt

WORD = re.compile(r"test(s|ing)?(gw\d+)?")
"""With the worker's name that pytest-xdist gives, which pytest-postgresql appends: ``testsgw1``."""


DrainStep: TypeAlias = Plan[Any] | Attempt | Hooks


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

    First it fires the schedules that are due; in a database it looks at the alerts that are due, too. What the app declares of
    them is stored by ``queue.schedules.apply()`` and ``queue.alerts.apply()``.

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
            (``Snooze``, ``RetryLater``, ``Dead``, ``Cancelled``) and those of ``failing``.
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
    return _drain(
        queue, DrainState(queue, queues, order, raises=raises, limit=limit), now, allow_real=allow_real
    )


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
    """As :func:`drain`, awaited: ``async def`` tasks run in this loop, plain functions in a thread."""
    state = DrainState(queue, queues, order, raises=raises, limit=limit)

    async def answer(step: DrainStep) -> object:
        match step:
            case Plan():
                return await state.executor.database.arun(step)
            case Attempt():
                return await arun(state.executor, step)
            case Hooks():
                await step.aflush()
                return None

    try:
        await adrive(_drain_steps(queue, state, now, allow_real=allow_real), answer)
    finally:
        if state.began:
            await state.executor.database.arun(leases.leave_without_jobs(state.worker.id))
    return state.result()


def replay(
    queue: PgQueue, task: str, args: Mapping[str, Any], *, meta: Mapping[str, Any] | None = None
) -> None:
    """Run one attempt of a job, its last one, and raise what its task raises.

    The job is in memory, unless the test has given the queue a database of its own (``pgqueue_queue``, ``in_database``).
    What the task enqueues does not run.

    Args:
        queue: the app's.
        task: the task's name.
        args: the arguments as they are stored: by name, as plain JSON values, or in the envelope of the queue's codec.
        meta: what is stored beside them.

    Raises:
        UnknownTask: the app has no such task.
        AssertionError: the job is dead or cancelled, and the task has raised nothing.
        Exception: what the task raised, but for :class:`pgqueue.Snooze`.
    """
    if task not in queue.tasks:
        queue.load_task(task)
    job = NewJob(
        task,
        msgspec.json.encode(args),
        queue.find_task(task).options.queue,
        100,
        1,
        meta=None if meta is None else msgspec.json.encode(meta),
    )
    state = DrainState(queue, None, "shares", raises=True, limit=1)
    own = isinstance(queue.database, StandIn)
    with nullcontext() if own else swap_database(queue, Memory(queue)):
        queue.database.run(enqueue.add(job))
        ran = _drain(queue, state, None, allow_real=False, only_one=True)[0]
    if ran.outcome in {JobState.DEAD, JobState.CANCELLED}:
        raise ran.error or AssertionError(f"the job of {task} is {ran.outcome}")


def empty(queue: PgQueue, *, allow_real: bool = False) -> None:
    """Delete all jobs, ended and dead ones too, with all that belongs to them: flows, schedules, limits, workers, figures.

    For tests that commit, and so leave their jobs to the next one. In memory it is ``clear`` of the memory.

    Args:
        queue: which.
        allow_real: empty any database.

    Raises:
        ConfigurationError: the database may be in use: its name has no word test.
    """
    if isinstance(queue.database, Memory):
        queue.database.clear()
        return
    if not allow_real:
        _require_for_tests(queue.database.run(control.database_name()), *EMPTY)
    queue.database.run(control.empty(), OWN_CONNECTION)
    queue.database.close()  # while it has a connection, Django cannot drop its database for tests; the next use connects again


def is_for_tests(database: str) -> bool:
    """Whether a database's name contains the word test: ``test_shop``, ``shop-tests``, ``pgqueue_test_gw0_4``."""
    return any(map(WORD.fullmatch, re.split(r"[\W_]+", database.lower())))


DRAIN = "drain would run the jobs that wait", "drain(queue, allow_real=True)"
EMPTY = "empty would delete all jobs", "empty(queue, allow_real=True)"


def _require_for_tests(database: str, deed: str, anyway: str) -> None:
    if not is_for_tests(database):
        raise ConfigurationError(
            f"{deed} in the database {database!r}, which may be in use: its name has no "
            "word test. Keep the queue's jobs in memory (fixture pgqueue_memory, or in_memory(queue)) or in a database "
            f"for tests (fixture pgqueue_queue); to do it all the same, {anyway}"
        )


def _drain(
    queue: PgQueue, state: DrainState, now: datetime | None, *, allow_real: bool, only_one: bool = False
) -> list[Ran]:
    loop = Loop(queue.aclose)

    def answer(step: DrainStep) -> object:
        match step:
            case Plan():
                return state.executor.database.run(step)
            case Attempt():
                return loop.run(state.executor, step)
            case Hooks():
                step.flush()
                return None

    try:
        drive(_drain_steps(queue, state, now, allow_real=allow_real, only_one=only_one), answer)
    finally:
        loop.stop()
        if state.began:
            state.executor.database.run(leases.leave_without_jobs(state.worker.id))
    return state.result()


def _drain_steps(
    queue: PgQueue, state: DrainState, now: datetime | None, *, allow_real: bool, only_one: bool = False
) -> Generator[DrainStep, Any, None]:
    """What a drain does; :mod:`pgqueue.store.drive` says how. Hooks are called, attempts are run, and plans are."""
    if not allow_real and not isinstance(queue.database, Memory):
        _require_for_tests((yield control.database_name()), *DRAIN)
    if now is None and _clock_of(queue) is None:
        now = yield control.clock()
    with _at(queue, now), queue.hooks.at_once():
        state.executor.database = queue.database
        while (yield ticks.fire_due()).more:
            pass
        if not isinstance(queue.database, Memory):
            yield from look_at_alerts()
        state.began = True
        while (
            state.error is None
            and not (only_one and state.ran)
            and (found := (yield from _claim(state.executor.database, state)))
        ):
            attempt = state.begin(found)
            yield queue.hooks
            verdicts = yield attempt
            if reports := state.executor.board.take():
                yield notes.report(reports)
            for _ in range(state.executor.logs.portions()):
                with state.executor.logs.writing() as portion:
                    yield notes.keep_logs(portion.stored())
            if verdicts:
                state.note_recorded(verdicts, (yield state.finish(verdicts)))
            yield queue.hooks
            jobs: dict[int, Job | None] = {}
            for claimed in found:
                jobs[claimed.id] = yield control.show(claimed.id)
            state.end(found, jobs)
        yield queue.hooks


def look_at_alerts() -> Sweep[None]:
    """Look at the alerts that are due, as a worker does: one that makes no sense is noted, and the others are looked at."""
    for name in (yield alerts.due()).names:
        try:
            yield alerts.look(name)
        except PgQueueError as error:
            yield alerts.fail(name, f"{type(error).__name__}: {error}")


def _claim(database: Database, state: DrainState) -> Sweep[list[Claim]]:
    """Take back the jobs of workers whose lease has passed, as a worker does, and claim the next job, or the next batch."""
    if isinstance(database, Memory):  # which does both at once
        state.sort((yield state.look()))
        state.note_reclaimed(database.take_reclaimed())
    else:
        state.note_reclaimed((yield from reclaim()).verdicts)
        state.sort((yield state.look()))
    while state.wants_more() and state.sort((yield state.look())):
        pass
    if state.others:
        yield state.finish(state.take_others())
    return state.found


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
        with swap_database(queue, StandIn(queue.database, clock=Clock(now))):
            yield


def _clock_of(queue: PgQueue) -> Clock | None:
    return queue.database.clock if isinstance(queue.database, Memory | StandIn) else None
