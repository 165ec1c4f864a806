"""What happened to jobs over time: counts and spreads of times, in buckets on the database's clock. Pure values."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""From here whole steps are counted, so that those of every series begin at the same instants."""
COUNTS = (
    "enqueued",
    "started",
    "succeeded",
    "failed",
    "retried",
    "dead",
    "cancelled",
    "expired",
    "reclaimed",
)
"""What is counted, in the order of the columns of the tables."""


class Spread(msgspec.Struct, frozen=True):
    """How times are spread, in seconds; each is within 5 % of the true value.

    Attributes:
        count: of how many times.
        p50: half of the times are up to this.
        p95: 95 % are.
        p99: 99 % are.
    """

    count: int
    p50: float
    p95: float
    p99: float


class Figures(msgspec.Struct, frozen=True):
    """What happened to jobs in a stretch of time.

    Attributes:
        enqueued: jobs that were enqueued; a dead job that was revived counts again when it was enqueued.
        started: attempts that workers claimed.
        succeeded: jobs that succeeded.
        failed: attempts that failed, timed out or were lost.
        retried: failed attempts after which the job was to run again.
        dead: jobs that died while a worker had them; not those that expired, or were refused, while they waited.
        cancelled: jobs that were cancelled while a worker had them.
        expired: jobs that died since they were not started in time; they count as dead, too.
        reclaimed: attempts that a lost worker had, and another one took over; they count as failed, too.
        wait: the time from when jobs were due until a worker claimed them; None: none was claimed.
        run: how long attempts ran that succeeded or made their job dead; None: there was none.
    """

    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    reclaimed: int = 0
    wait: Spread | None = None
    run: Spread | None = None


class SeriesPoint(msgspec.Struct, frozen=True):
    """The figures of one step.

    Attributes:
        at: when the step begins.
        figures: what happened in it.
    """

    at: datetime
    figures: Figures


class SeriesLine(msgspec.Struct, frozen=True):
    """The figures of one queue or task over time, or of all jobs.

    Attributes:
        name: of the queue or task; None: all, or, where lines are told apart, those beyond the bound on pairs of queue and task.
        points: one for each step, in order; steps in which nothing happened are there, too.
    """

    name: str | None
    points: tuple[SeriesPoint, ...]


class Series(msgspec.Struct, frozen=True):
    """What happened over time.

    Attributes:
        since: when the first step begins.
        until: when the last step ends.
        step: the length of a step in seconds.
        lines: one; or one for each queue or task, the one with the most attempts first.
        estimated: the numbers of enqueued jobs are, for those that no worker has claimed yet, scaled from a sample.
    """

    since: datetime
    until: datetime
    step: float
    lines: tuple[SeriesLine, ...]
    estimated: bool = False


class Total(msgspec.Struct, frozen=True):
    """The figures of one queue or task over a window.

    Attributes:
        name: of the queue or task; None: those beyond the bound on pairs of queue and task.
        figures: what happened.
    """

    name: str | None
    figures: Figures


class Totals(msgspec.Struct, frozen=True):
    """What happened in a window, by queue or by task.

    Attributes:
        since: when the window begins.
        until: when it ends.
        lines: one for each queue or task, the one with the most attempts first.
        estimated: as of :class:`Series`.
    """

    since: datetime
    until: datetime
    lines: tuple[Total, ...]
    estimated: bool = False


def busiest_first(totals: Iterable[Total]) -> tuple[Total, ...]:
    """Those with the most attempts first, and by name where they are equal."""
    return tuple(sorted(totals, key=lambda one: (-one.figures.started, one.name or "")))


def floor(instant: datetime, step: timedelta) -> datetime:
    """The last beginning of a step up to an instant."""
    return instant - (instant - EPOCH) % step


def ceil_to_step(instant: datetime, step: timedelta) -> datetime:
    """The first beginning of a step from an instant on."""
    return instant + (EPOCH - instant) % step
