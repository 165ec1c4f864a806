"""The settings of a replay: workers and slots, the queues that they serve, limits, and other times for a task's jobs.

Only what can be checked without jobs is checked here; :mod:`pgqueue.spark.whatif.jobs` compares names with the recorded jobs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import check_number
from pgqueue.values.limits.limit import MOST
from pgqueue.values.queues.served_queues import ALL, ServedQueues
from pgqueue.values.schedules.rule import Cron

WORKERS = range(1, 10_001)
CONCURRENCY = 20
"""Slots of a worker if it is not said, as of ``pgqueue worker``."""
SLOTS = range(1, 100_001)
LATE = timedelta(minutes=1)
"""A job that waits longer is late, if it is not said."""
QUEUE, TASK = "queue:", "task:"


@dataclass(frozen=True, slots=True)
class ReplayLimit:
    """A bound for the jobs of a key that run at once.

    Attributes:
        name: what is limited, in the words of ``pgqueue limits``: ``queue:mail``, ``task:send``, ``task:send:customer_id``, or
            an argument alone, ``customer_id``, for the jobs of all tasks that have it.
        most: how many jobs.
    """

    name: str
    most: int

    @property
    def said(self) -> str:
        """As on the command line."""
        return f"{self.name}={self.most}"


@dataclass(frozen=True, slots=True)
class MovedTask:
    """A task's jobs become ready at the ticks of a cron expression, in UTC.

    Attributes:
        task: the task's name.
        cron: when.
    """

    task: str
    cron: Cron

    @property
    def said(self) -> str:
        """As on the command line."""
        return f"{self.task}={self.cron.expression}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The settings of a replay.

    Attributes:
        workers: how many worker processes.
        concurrency: how many jobs each runs at a time.
        serving: the queues that all of them serve, and their weights.
        limits: how many jobs of a key run at once.
        had: the limits that the recorded jobs had; the lake does not know them. They are in force in the replay, too, where ``limits``
            has no other number for the same name.
        moved: tasks whose jobs become ready at other times.
        late: a job that waits longer than this is late.

    Raises:
        InvalidOption: a number is out of range, or a limit or a task is named twice.
    """

    workers: int
    concurrency: int = CONCURRENCY
    serving: ServedQueues = ALL
    limits: tuple[ReplayLimit, ...] = ()
    had: tuple[ReplayLimit, ...] = ()
    moved: tuple[MovedTask, ...] = ()
    late: timedelta = LATE

    def __post_init__(self) -> None:
        check_number("workers", self.workers, WORKERS)
        check_number("concurrency", self.concurrency, SLOTS)
        check_number("workers times concurrency", self.slots, SLOTS)
        _once("limit", [one.name for one in self.limits])
        _once("had-limit", [one.name for one in self.had])
        _once("schedule", [one.task for one in self.moved])

    @property
    def slots(self) -> int:
        """How many jobs run at a time on all workers."""
        return self.workers * self.concurrency

    @property
    def in_force(self) -> tuple[ReplayLimit, ...]:
        """The limits of the replay."""
        return tuple({one.name: one for one in (*self.had, *self.limits)}.values())

    @property
    def said(self) -> list[str]:
        """The settings, each in a few words."""
        workers = "worker" if self.workers == 1 else "workers"
        slots = "slot" if self.concurrency == 1 else "slots"
        return [
            f"{self.workers:,} {workers} with {self.concurrency:,} {slots} each",
            *([f"queues {', '.join(self._queues)}"] if self._queues else []),
            *(f"limit {one.said}" for one in self.in_force),
            *(f"schedule {one.said}" for one in self.moved),
        ]

    @property
    def _queues(self) -> list[str]:
        weighed = [
            entry if weight == 1 else f"{entry}:{weight}" for entry, weight in self.serving.weights.items()
        ]
        return [*weighed, *(f"!{entry}" for entry in self.serving.excluded)]


def read_limit(text: str) -> ReplayLimit:
    """A limit from ``NAME=N``.

    Raises:
        InvalidOption: it is not in this form, or the number is out of range.
    """
    name, equals, number = text.rpartition("=")
    bare = name in ("", QUEUE, TASK) or name.endswith(":")
    if not equals or bare or not number.strip().isdecimal():
        raise InvalidOption(
            f"limit={text!r}: write what is limited and a number: customer_id=5, task:send=5, task:send:customer_id=5, queue:mail=50"
        )
    most = int(number)
    check_number(f"limit {name.strip()}", most, MOST)
    return ReplayLimit(name.strip(), most)


def read_move(text: str) -> MovedTask:
    """Other times for a task's jobs, from ``TASK=CRON``.

    Raises:
        InvalidOption: it is not in this form, or the expression is no cron expression.
    """
    task, equals, expression = text.rpartition("=")
    if not equals or not task.strip():
        raise InvalidOption(
            f"schedule={text!r}: write a task and a cron expression: 'send_report=*/15 1-5 * * *'"
        )
    return MovedTask(task.strip(), Cron(expression.strip()))


def _once(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidOption(f"{what}: {name!r} is given twice; give it once")
        seen.add(name)
