"""What happened over time, in buckets on the database's clock: counts, spreads of times, depths of queues. Pure values."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.queues.standing import QueueStanding

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


STATES = ("blocked", "scheduled", "ready", "running", "dead")


class Depth(msgspec.Struct, frozen=True):
    """The highest numbers of jobs that were found within a step. They may be of different minutes of it.

    Attributes:
        blocked: jobs that waited for another job, a limit or their turn.
        scheduled: jobs that waited for their time.
        ready: jobs that could be claimed.
        running: jobs that a worker had claimed.
        dead: jobs in the dead table.
        oldest_ready: seconds for which the job that waited longest had been ready; None: no job was ready.
        estimated: the numbers are scaled from a sample of the tables' pages.
    """

    blocked: int
    scheduled: int
    ready: int
    running: int
    dead: int
    oldest_ready: float | None = None
    estimated: bool = False


class DepthPoint(msgspec.Struct, frozen=True):
    """How deep a queue was in one step.

    Attributes:
        at: when the step begins.
        depth: the numbers; None: no worker looked.
    """

    at: datetime
    depth: Depth | None


class Depths(msgspec.Struct, frozen=True):
    """How deep a queue was over time, or all queues together.

    Attributes:
        since: when the first step begins.
        until: when the last step ends.
        step: the length of a step in seconds.
        points: one for each step, in order.
    """

    since: datetime
    until: datetime
    step: float
    points: tuple[DepthPoint, ...]


def deepest(found: Sequence[QueueStanding], most: int) -> list[dict[str, Any]]:
    """How deep queues are: all together, with no name, and each that has jobs.

    Args:
        found: the queues.
        most: at most how many are told apart; of more, those with the most jobs.
    """
    with_jobs = [one for one in found if any(getattr(one, state) for state in STATES)]
    with_jobs.sort(key=lambda one: (-sum(getattr(one, state) for state in STATES), one.queue))
    return [_row(None, found), *(_row(one.queue, [one]) for one in with_jobs[:most])]


def _row(queue: str | None, found: Iterable[QueueStanding]) -> dict[str, Any]:
    of = [*found]
    return {
        "queue": queue,
        **{state: sum(getattr(one, state) for one in of) for state in STATES},
        "oldest_ready": max((one.oldest_ready for one in of if one.oldest_ready is not None), default=None),
        "estimated": any(one.estimated for one in of),
    }


MOST_STEPS = 1_500
ABOUT = 60
"""Steps that a stretch has, give or take, where the caller does not say how long they are."""
STEPS = [timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of time.

    Attributes:
        since: the first instant.
        until: behind the last instant; a whole number of steps later.
        step: how long a step is.
    """

    since: datetime
    until: datetime
    step: timedelta

    @property
    def span(self) -> dict[str, object]:
        """The parameters of a statement."""
        return {"since": self.since, "until": self.until, "step": self.step}

    @property
    def instants(self) -> Sequence[datetime]:
        """When each step begins."""
        return [self.since + self.step * place for place in range((self.until - self.since) // self.step)]

    def by_steps_of(self, unit: timedelta) -> bool:
        """Whether each step is a number of whole hours or days."""
        return not (self.step % unit or (self.since - EPOCH) % unit)


def ends(
    since: datetime | timedelta, until: datetime | None, *, clock: datetime
) -> tuple[datetime, datetime]:
    """The first instant, and the one behind the last, in UTC.

    Args:
        since: an instant, or how long before ``until``.
        until: an instant; None: now.
        clock: now.

    Raises:
        InvalidOption: there is nothing between them.
    """
    end = until or clock
    start = since if isinstance(since, datetime) else end - since
    if start >= end:
        raise InvalidOption(f"since={start.isoformat()} is not before until={end.isoformat()}")
    return start.astimezone(UTC), end.astimezone(UTC)


def in_steps(start: datetime, end: datetime, step: timedelta | None, *, least: timedelta = MINUTE) -> Stretch:
    """A stretch from the step in which it begins to the one in which it ends.

    Args:
        start: the first instant.
        end: behind the last one.
        step: how long a step is; None: so long that there are about 60.
        least: then a step is not shorter than this.

    Raises:
        InvalidOption: a step is no whole number of minutes, or there are more than 1,500.
    """
    step = _fitting_step(end - start, least) if step is None else _check_step(step)
    start = floor(start, step)
    steps = -(-(end - start) // step)
    if steps > MOST_STEPS:
        raise InvalidOption(
            f"step={step}: that makes {steps:,} steps; use a longer one, for at most {MOST_STEPS:,}"
        )
    return Stretch(start, start + step * steps, step)


def _fitting_step(length: timedelta, least: timedelta) -> timedelta:
    return next((step for step in STEPS if step >= least and length <= ABOUT * 1.5 * step), STEPS[-1])


def _check_step(step: timedelta) -> timedelta:
    if step % MINUTE or step < MINUTE:
        raise InvalidOption(f"step={step}: use whole minutes")
    return step
