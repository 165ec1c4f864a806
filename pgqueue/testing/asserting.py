"""Assertions: what was enqueued, and when schedules tick, clock changes included. A failure shows what there is instead."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, TypedDict, Unpack

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption, UnknownSchedule
from pgqueue.store.jobs import control
from pgqueue.store.plan import Plan
from pgqueue.testing.apps import AnyTask, app_of, arguments_of, call_of, task_of
from pgqueue.testing.standin import StandIn
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.job import Job
from pgqueue.values.jobs.options import LONGEST_PAGE
from pgqueue.values.payloads.codec import decode_job, encoded_key
from pgqueue.values.schedules.rule import Tick
from pgqueue.values.schedules.schedule import Timing

SHOWN = 5
"""How many other jobs a failure shows."""


class ExpectedJob(TypedDict, total=False):
    """What a job is to be like; what is left out may be anything.

    Attributes:
        args: the positional arguments, as in the call.
        kwargs: the keyword arguments, as in the call.
        queue: where it stands.
        priority: how soon it runs.
        max_attempts: after how many attempts it is dead.
        unique_key: what no two live jobs may share.
        run_at: the instant at which it is due.
        delay: the same, counted from the enqueue; by a test's clock, from what it shows now.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str
    priority: int
    max_attempts: int
    unique_key: str
    run_at: datetime
    delay: timedelta


def assert_enqueued(
    task: AnyTask,
    *,
    count: int | None = None,
    connection: object = None,
    **expected: Unpack[ExpectedJob],
) -> list[Job]:
    """Jobs of a task that were enqueued as expected, in any state now.

    Args:
        task: whose: a task of a queue, or one of Django's Tasks on pgqueue's backend.
        count: exactly how many; None: at least one.
        connection: look from here; so a test sees what its open transaction has enqueued.
        expected: see :class:`ExpectedJob`. ``args`` and ``kwargs`` together are the whole call.

    Returns:
        The matching jobs, oldest first.

    Raises:
        AssertionError: there are none, or not ``count``; the message shows what there is, the nearest first.
        PayloadNotEncodable: the task cannot be called with these arguments.
    """
    app = app_of(task_of(task))
    return _Search(app, task, expected).found(app.database.run(_all_jobs_plan(), connection), count)


async def aassert_enqueued(
    task: AnyTask,
    *,
    count: int | None = None,
    connection: object = None,
    **expected: Unpack[ExpectedJob],
) -> list[Job]:
    """As :func:`assert_enqueued`, awaited."""
    app = app_of(task_of(task))
    return _Search(app, task, expected).found(await app.database.arun(_all_jobs_plan(), connection), count)


def assert_not_enqueued(
    task: AnyTask, *, connection: object = None, **unexpected: Unpack[ExpectedJob]
) -> None:
    """No job of a task was enqueued that is like this.

    Args:
        task: whose: a task of a queue, or one of Django's Tasks on pgqueue's backend.
        connection: as for :func:`assert_enqueued`.
        unexpected: as for :func:`assert_enqueued`; with nothing, no job of the task at all.

    Raises:
        AssertionError: there is one; the message shows it.
        PayloadNotEncodable: the task cannot be called with these arguments.
    """
    app = app_of(task_of(task))
    _Search(app, task, unexpected).none(app.database.run(_all_jobs_plan(), connection))


async def aassert_not_enqueued(
    task: AnyTask, *, connection: object = None, **unexpected: Unpack[ExpectedJob]
) -> None:
    """As :func:`assert_not_enqueued`, awaited."""
    app = app_of(task_of(task))
    _Search(app, task, unexpected).none(await app.database.arun(_all_jobs_plan(), connection))


def assert_ticks(queue: PgQueue, name: str, *, after: datetime, expected: Sequence[datetime | str]) -> None:
    """Assert the next ticks of a schedule that the app declares. No database is needed.

    Args:
        queue: the app's.
        name: of the schedule; the task's name, where the declaration gives no other.
        after: an instant; the ticks are those later than it.
        expected: the instants, in order, with a time zone; or texts in ISO 8601.

    Raises:
        AssertionError: the ticks are others; the message lists them, with what a clock change does to each.
        UnknownSchedule: the app declares none of this name.
    """
    declared = {one.name: one.timing for one in queue.schedules.declared()}
    if name not in declared:
        raise UnknownSchedule(f"the app declares no schedule {name!r}{did_you_mean(name, declared)}")
    wanted = [_instant(one) for one in expected]
    found = [tick.at for tick in islice(_ticks_that_run(declared[name], after), len(wanted))]
    if found != wanted:
        shown = islice(declared[name].after(after), len(wanted) + 3)
        raise AssertionError(
            "\n".join(
                [
                    f"the ticks of {name!r} after {after} are others:",
                    *(f"  expected {at}" for at in wanted),
                    *map(_tick_line, shown),
                ]
            )
        )


def _all_jobs_plan() -> Plan[list[Job]]:
    return control.newest(limit=LONGEST_PAGE)


class _Search:
    def __init__(self, app: PgQueue, task: AnyTask, expected: ExpectedJob) -> None:
        unknown = expected.keys() - ExpectedJob.__annotations__.keys()
        if unknown:
            raise InvalidOption(
                f"a job has no {', '.join(sorted(unknown))}; expect {', '.join(ExpectedJob.__annotations__)}"
            )
        self._name = task_of(task).name
        self._is_ours = isinstance(task, Task)
        self._codec = app.codec
        self._wanted: dict[str, Any] = {**expected}
        args, kwargs = self._wanted.pop("args", None), self._wanted.pop("kwargs", None)
        if args is not None or kwargs is not None:
            self._wanted["args"] = arguments_of(task, args or (), kwargs or {})
        if "unique_key" in self._wanted:
            self._wanted["unique_key"] = encoded_key(app.codec, self._wanted["unique_key"])
        clock = app.database.clock if isinstance(app.database, StandIn) else None
        self._delay_counts_from = None if clock is None else clock.now

    def found(self, jobs: list[Job], count: int | None) -> list[Job]:
        jobs = [decode_job(self._codec, job) for job in jobs]
        matching = [job for job in jobs if not self._differences(job)]
        if len(matching) == count or (count is None and matching):
            return matching[::-1]
        wanted = "a job" if count is None else f"{count} jobs"
        raise AssertionError(
            f"expected {wanted} of {self._said()}, found {len(matching)}; {self._nearest(jobs)}"
        )

    def none(self, jobs: list[Job]) -> None:
        jobs = [decode_job(self._codec, job) for job in jobs]
        matching = [job for job in jobs if not self._differences(job)]
        if matching:
            raise AssertionError(
                f"expected no job of {self._said()}, found {len(matching)}; {self._nearest(matching)}"
            )

    def _differences(self, job: Job) -> list[str]:
        there: dict[str, Any] = {
            "args": self._call_of(job),
            "queue": job.queue,
            "priority": job.priority,
            "max_attempts": job.max_attempts,
            "unique_key": job.unique_key,
            "run_at": job.run_at,
            "delay": job.run_at - (self._delay_counts_from or job.created_at),
        }
        task = [] if job.task == self._name else ["task"]
        return task + [name for name, value in self._wanted.items() if there[name] != value]

    def _call_of(self, job: Job) -> object:
        # call_of() leaves out what the backend of Django's Tasks adds to a call.
        return job.args if self._is_ours else call_of(job.args)

    def _nearest(self, jobs: list[Job]) -> str:
        if not jobs:
            return "nothing was enqueued"
        ordered = sorted(jobs, key=self._distance)
        lines = [f"  {_line(job)}{self._apart(job)}" for job in ordered[:SHOWN]]
        rest = len(ordered) - len(lines)
        return "\n".join(["there is:", *lines, *([f"  and {rest} more"] if rest else [])])

    def _distance(self, job: Job) -> tuple[bool, int, float]:
        """A key to sort by: the same task first, then jobs that differ in less, then those that read alike."""
        differences = self._differences(job)
        likeness = SequenceMatcher(None, _call(job), str(self._wanted.get("args", ""))).ratio()
        return "task" in differences, len(differences), -likeness

    def _apart(self, job: Job) -> str:
        differences = self._differences(job)
        return f"; other {', '.join(differences)}" if differences else ""

    def _said(self) -> str:
        said = [f"{name}={value!r}" for name, value in self._wanted.items()]
        return f"{self._name} with {', '.join(said)}" if said else self._name


def _line(job: Job) -> str:
    key = "" if job.unique_key is None else f", unique_key={job.unique_key!r}"
    return (
        f"job {job.id}: {job.task} {_call(job)} in {job.queue}, {job.state}, priority {job.priority}, "
        f"run_at {job.run_at.isoformat()}{key}"
    )


def _call(job: Job) -> str:
    return f"{job.args}"


def _ticks_that_run(timing: Timing, after: datetime) -> "filter[Tick]":
    return filter(lambda tick: tick.runs, timing.after(after.astimezone(UTC)))


def _instant(given: datetime | str) -> datetime:
    at = datetime.fromisoformat(given) if isinstance(given, str) else given
    return at.astimezone(UTC)


def _tick_line(tick: Tick) -> str:
    note = "" if tick.note is None else f" ({tick.note})"
    return f"  found    {tick.at}, local time {tick.wall}{note}"
