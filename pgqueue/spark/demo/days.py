"""Plans a made-up history before its rows are made: pure rules, with the same result for the same wish.

A day is planned in cells, one for each hour and task: how many jobs are ready in it, and how they run and fail.
The cells add up to the wish exactly. :mod:`pgqueue.spark.demo.slots` runs the jobs of a day on the slots of its workers. PostgreSQL
makes the rows of a day from its cells and from these runs in one statement (``statements/day.sql``). Everything is drawn from the seed
and the day, or from a hash of the job's id and the seed. So a history does not depend on the number or the order of the connections
that made it.
"""

import math
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.spark.demo.world import BUSIEST, TASKS, WORKDAYS, ShopTask, shares

FIRST_ID = 1_000_000_000_000
"""Ids of made-up jobs begin here. A queue that uses a million ids a second reaches it after eleven days; one that uses a
thousand, after thirty years. So the id shows whether a job is made up."""
IDS_A_DAY = 100_000_000
EPOCH = date(2000, 1, 1)
GROWTH = 1.04
"""The factor from one week to the next."""
SLOWED, SLOWER = "make_thumbnail", 1.8
"""The task that a deploy makes slower, and the factor."""
STORM_HOURS = range(19, 22)
STORM_FAILS = 0.72
CROWD_HOUR, CROWD_TENANT, CROWD_SHARE, CROWD_TIMES = 14, 42, 0.75, 4.0
"""The hour in which one tenant has most of the busiest queue's jobs, the tenant, its share, and the factor of load."""
CROWD_MINUTES, CROWD_WAIT = 20, 150.0
"""In how many minutes the tenant's jobs come, and for how many seconds others then wait: so slow are the tenant's jobs."""
TENANTS = 400
LONGEST_RUN = 600.0
OVERLAP = timedelta(seconds=LONGEST_RUN)
"""Workers end this long after the next release has taken over: they run what they had begun."""
DEPLOY_EVERY = 6
DEPLOY_HOUR = 11
LAST_HOUR = 23
HOUR = 3_600_000_000
"""Microseconds."""
REFUSED, CANCELLED = 0.0012, 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The history to make.

    Attributes:
        rows: how many jobs ended.
        days: on how many days.
        until: the last of these days.
        seed: chooses the history: another seed gives another one.
        skew: the share of rows for the busiest queue; None: its usual share.
    """

    rows: int
    days: int
    until: date
    seed: int = 1
    skew: float | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.days < 1:
            raise InvalidOption(f"rows={self.rows}, days={self.days}: use 1 or more of both")
        if self.rows > self.days * IDS_A_DAY // 2:
            raise InvalidOption(
                f"rows={self.rows}: at most {IDS_A_DAY // 2:,} a day have ids of their own; use more days"
            )
        if self.skew is not None and not 0 < self.skew < 1:
            raise InvalidOption(f"skew={self.skew}: use a number between 0 and 1")
        if not 0 <= self.seed < 1 << 31:
            raise InvalidOption(f"seed={self.seed}: use a whole number from 0 to {(1 << 31) - 1}")
        if self.first < EPOCH:
            raise InvalidOption(f"{self.days} days up to {self.until} begin before {EPOCH}; use fewer")

    @property
    def first(self) -> date:
        """The first day."""
        return self.until - timedelta(days=self.days - 1)

    def dates(self) -> list[date]:
        """Every day, in order."""
        return [self.first + timedelta(days=number) for number in range(self.days)]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one task that are ready in one hour; ``statements/day.sql`` makes rows of it.

    Attributes:
        hour: hour of the day, 0 to 23.
        first: how many rows of the day come before.
        rows: the number of rows.
        queue: the task's queue.
        task: the task's name.
        run: the median run time, in seconds.
        spread: the standard deviation of the logarithm of run times.
        fails: the probability that an attempt fails.
        refused: the probability that a job dies for another reason than its last attempt.
        cancelled: the probability that a job is cancelled.
        max_attempts: the number of attempts after which a job is dead.
        priority: the jobs' priority.
        later: the share that was enqueued for later.
        number: the name of the second argument.
        key: the beginning of unique keys.
        result: whether the task returns a value.
        ticks: how many times in the hour its jobs become ready together; 0: at any time.
        crowd: how many of the jobs, the first ones, are the crowding tenant's.
        crowd_run: the median run time of those, in seconds.
        failures: the key of its failures: the task's name, or a storm's.
    """

    hour: int
    first: int
    rows: int
    queue: str
    task: str
    run: float
    spread: float
    fails: float
    refused: float
    cancelled: float
    max_attempts: int
    priority: int
    later: float
    number: str
    key: str | None
    result: bool
    ticks: int
    crowd: int
    crowd_run: float
    failures: str

    @property
    def busy(self) -> float:
        """The expected seconds of runs, without the crowd: a log-normal's mean, times the rows."""
        return (self.rows - self.crowd) * min(self.run * self.mean, LONGEST_RUN)

    @property
    def mean(self) -> float:
        """The mean of run times, as a multiple of the median."""
        return math.exp(self.spread**2 / 2)


@dataclass(frozen=True, slots=True)
class Shift:
    """The workers of a part of a day.

    Attributes:
        begins: when they take over, in microseconds of the day.
        workers: for each slot the place of its worker in the list of all.
    """

    begins: int
    workers: Sequence[int]


@dataclass(frozen=True, slots=True)
class MadeUpDay:
    """A day to make: its cells, the ids of its jobs, which follow ``first_id``, and who runs them."""

    day: date
    first_id: int
    cells: Sequence[Cell]
    shifts: Sequence[Shift] = ()

    @property
    def rows(self) -> int:
        """How many jobs are ready, and end, on it."""
        return sum(cell.rows for cell in self.cells)


class Release(msgspec.Struct, frozen=True):
    """A deploy: its version and time, and whether it makes :data:`SLOWED` slower."""

    at: datetime
    version: str
    slower: bool


class MadeUpWorker(msgspec.Struct, frozen=True):
    """A worker."""

    id: uuid.UUID
    started_at: datetime
    ended_at: datetime
    concurrency: int
    host: str


class Events(msgspec.Struct, frozen=True):
    """The events of a history that a report should find.

    Attributes:
        storm: the day on whose evening the busiest queue's jobs fail and are retried.
        crowd: the day on which one tenant crowds the busiest queue.
        releases: the deploys, in order.
    """

    storm: date
    crowd: date
    releases: list[Release]

    @property
    def slower(self) -> Release:
        """The deploy that makes a task slower."""
        return next(release for release in self.releases if release.slower)

    def release_at(self, instant: datetime) -> int:
        """The number of deploys up to an instant."""
        return sum(release.at <= instant for release in self.releases)


def events_of(wish: Wish) -> Events:
    """The events' times: in the last week, so that a longer history has earlier weeks to compare with."""
    slow = max(0, wish.days - 5)
    deploys = [*range(2, slow - 1, DEPLOY_EVERY), slow]
    return Events(
        storm=wish.until - timedelta(days=min(2, wish.days - 1)),
        crowd=wish.until - timedelta(days=min(1, wish.days - 1)),
        releases=[
            Release(instant(wish.first + timedelta(days=day), DEPLOY_HOUR), f"shop-{number}", day == slow)
            for number, day in enumerate(deploys, start=1)
        ],
    )


def rows_of_days(wish: Wish) -> list[int]:
    """The number of rows of each day: more on workdays than on weekends, and a little more each week."""
    chance = _chance(wish, "days")
    weights = [
        WORKDAYS[day.weekday()] * GROWTH ** (number / 7) * chance.uniform(0.95, 1.05)
        for number, day in enumerate(wish.dates())
    ]
    return spread(wish.rows, weights, chance.random())


def spread(rows: int, weights: Sequence[float], start: float) -> list[int]:
    """Whole numbers in proportion to weights; their sum is ``rows``.

    By systematic sampling: the next number corrects the rounding of the one before, so with few rows light cells get
    some, too.

    Args:
        rows: the number to divide.
        weights: one for each share.
        start: from 0 to 1, where the rounding begins.
    """
    total, so_far, steps = math.fsum(weights), 0.0, [0]
    for weight in weights:
        so_far += weight
        steps.append(min(rows, math.floor(rows * so_far / total + start)))
    steps[-1] = rows
    return [after - before for before, after in pairwise(steps)]


def planned_day(wish: Wish, events: Events, day: date, rows: int) -> MadeUpDay:
    """A day of this many rows, without its workers."""
    parts = shares(wish.skew)
    places = [(hour, task) for hour in range(24) for task in TASKS]
    weights = [parts[task.name] * _busy(events, day, hour, task) for hour, task in places]
    counts = spread(rows, weights, _chance(wish, f"cells of {day}").random())
    cells, before = [], 0
    for (hour, task), count in zip(places, counts, strict=True):
        if count:
            cells.append(_cell(events, day, hour, task, first=before, rows=count))
        before += count
    return MadeUpDay(day, FIRST_ID + (day - EPOCH).days * IDS_A_DAY, cells)


def _busy(events: Events, day: date, hour: int, task: ShopTask) -> float:
    """The load of an hour, as a multiple of the average."""
    crowded = day == events.crowd and hour == CROWD_HOUR and task.queue == BUSIEST
    return task.rhythm[hour] / math.fsum(task.rhythm) * (CROWD_TIMES if crowded else 1.0)


def _cell(events: Events, day: date, hour: int, task: ShopTask, *, first: int, rows: int) -> Cell:
    busiest = task.queue == BUSIEST
    storm = busiest and day == events.storm and hour in STORM_HOURS
    crowd = busiest and day == events.crowd and hour == CROWD_HOUR
    slow = task.name == SLOWED and instant(day, hour) >= events.slower.at
    return Cell(
        hour=hour,
        first=first,
        rows=rows,
        queue=task.queue,
        task=task.name,
        run=task.run * (SLOWER if slow else 1.0),
        spread=task.spread,
        fails=STORM_FAILS if storm else task.fails,
        refused=REFUSED,
        cancelled=CANCELLED,
        max_attempts=task.max_attempts,
        priority=task.priority,
        later=task.later,
        number=task.number,
        key=task.key,
        result=task.result,
        ticks=task.ticks,
        crowd=round(rows * CROWD_SHARE) if crowd else 0,
        crowd_run=task.run,
        failures="storm" if storm else task.name,
    )


def instant(day: date, hour: int) -> datetime:
    """The beginning of an hour of a day."""
    return datetime.combine(day, time(hour), tzinfo=UTC)


def _chance(wish: Wish, what: str) -> random.Random:
    return random.Random(f"pgqueue {wish.seed} {what}")  # noqa: S311 - not a secret: it must be repeatable
