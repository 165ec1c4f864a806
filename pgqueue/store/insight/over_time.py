"""The plans that tell what happened to jobs over time: step by step, in a window, and before an instant beside after it.

What is read is written by :mod:`pgqueue.store.insight.series`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.queues.queues import SAMPLED_PAGES, WHOLE_PAGES
from pgqueue.values.insight.comparison import Comparison, compare_windows
from pgqueue.values.insight.health_facts import RecentFailures
from pgqueue.values.insight.now import Which
from pgqueue.values.insight.series import (
    COUNTS,
    DAY,
    EPOCH,
    HOUR,
    MINUTE,
    Figures,
    Series,
    SeriesLine,
    SeriesPoint,
    Spread,
    Stretch,
    Total,
    Totals,
    busiest_first,
    ceil_to_step,
    ends,
    floor,
    in_steps,
)
from pgqueue.values.insight.sketch import merge, quantiles
from pgqueue.values.queues.standing import WHOLE, share

COARSER = ((timedelta(days=10), DAY), (timedelta(hours=6), HOUR))
"""Of a window longer than this, figures of one queue or task, or of each, are told by steps of at least this length where
the caller does not say otherwise: they are read from days or hours."""
LAST_MINUTES = timedelta(minutes=10)
"""The minutes by which a task is judged that fails now."""
SHARES = (0.5, 0.95, 0.99)
NOTHING = Figures()


@plan(reads=True)
def series(
    since: datetime | timedelta,
    until: datetime | None = None,
    step: timedelta | None = None,
    *,
    by: Which | None = None,
    queue: str | None = None,
    task: str | None = None,
    now: datetime | None = None,
) -> Steps[Series]:
    """What happened, step by step.

    Args:
        since: an instant, or how long before ``until``.
        until: an instant; None: now.
        step: how long a step is; None: about 60 of them.
        by: a line for each queue or task; None: one line.
        queue: only jobs of this queue.
        task: only jobs of this task.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: a step is no whole number of minutes, or there are more than 1,500.
    """
    start, end, made = yield from _window(since, until, now)
    told_apart = (by, queue, task) != (None,) * 3
    stretch = in_steps(start, end, step, least=_least(end - start) if told_apart else MINUTE)
    window = FigureWindow(stretch.since, stretch.until, stretch.step, by, queue, task)
    found, estimated = yield from _figures_in(window, made)
    names = {name for _, name in found} if by else {None}
    lines = [
        SeriesLine(name, tuple(SeriesPoint(at, found.get((at, name), NOTHING)) for at in window.instants))
        for name in names
    ]
    lines.sort(key=lambda line: (-sum(point.figures.started for point in line.points), line.name or ""))
    return Series(window.since, window.until, window.step.total_seconds(), tuple(lines), estimated)


@plan(reads=True)
def totals(
    since: datetime | timedelta,
    until: datetime | None = None,
    *,
    by: Which = "task",
    queue: str | None = None,
    task: str | None = None,
    now: datetime | None = None,
) -> Steps[Totals]:
    """What happened in a window, by queue or by task; arguments as for :func:`series`."""
    start, end, made = yield from _window(since, until, now)
    unit = made.unit(start, end - start)
    start, end = floor(start, unit), ceil_to_step(end, unit)
    found, estimated = yield from _figures_in(FigureWindow(start, end, end - start, by, queue, task), made)
    return Totals(start, end, busiest_first(Total(name, one) for (_, name), one in found.items()), estimated)


@plan(reads=True)
def compare(
    at: datetime | timedelta,
    length: timedelta,
    *,
    by: Which = "task",
    queue: str | None = None,
    task: str | None = None,
    now: datetime | None = None,
) -> Steps[Comparison]:
    """What changed at an instant: figures of a window before it beside those of one after it, which is as long.

    The minute of the instant has figures of both, so it is in neither window; so is its hour, where hours are read.

    Args:
        at: the instant, or how long ago it was.
        length: of each window; where less time has passed since, both are shorter.
        by: what is told apart: tasks or queues.
        queue: only jobs of this queue.
        task: only jobs of this task.
        now: the present; the database's own by default.

    Raises:
        InvalidOption: there is no whole minute, or hour, since the instant.
    """
    clock, made = yield from _series_extent(now)
    at = at.astimezone(UTC) if isinstance(at, datetime) else clock - at
    unit = made.unit(at - length, length)
    before, after = floor(at, unit), ceil_to_step(at, unit)
    length = min(ceil_to_step(EPOCH + length, unit) - EPOCH, floor(clock, unit) - after)
    if length <= timedelta(0):
        raise InvalidOption(
            f"at={at.isoformat()}: no whole {'hour' if unit == HOUR else 'minute'} has passed since"
        )
    figures = []
    for start in (before - length, after):
        told = yield from _read_figures(FigureWindow(start, start + length, length, by, queue, task), made)
        figures.append({name: one for (_, name), one in told.items()})
    return Comparison(before - length, before, after, after + length, compare_windows(*figures))


@plan(reads=True)
def recent_failures(*, now: datetime | None = None) -> Steps[RecentFailures]:
    """How attempts of each task ended in the last hour, or since a deploy within it, and in the hour before that, or before the deploy.

    Args:
        now: the instant; the database's own by default.
    """
    clock, made = yield from _series_extent(now)
    rows = yield Statement("insight/last_deploy", {"within": DAY, "now": now})
    deployed_at, version = rows[0] if rows else (None, None)
    end = ceil_to_step(clock, MINUTE)
    after = end - HOUR if deployed_at is None else max(end - HOUR, ceil_to_step(deployed_at, MINUTE))
    before = end - HOUR if deployed_at is None else floor(deployed_at, MINUTE)
    figures = []
    for start, until in ((before - HOUR, before), (after, end), (end - LAST_MINUTES, end)):
        found = yield from _read_figures(FigureWindow(start, until, HOUR, "task", None, None), made)
        figures.append({name: one for (_, name), one in found.items()})
    return RecentFailures(deployed_at, version, compare_windows(*figures[:2]), figures[2])


class FigureWindow(Stretch, frozen=True):
    """What figures are asked for.

    Attributes:
        by: a line for each queue or task; None: one line.
        queue: only jobs of this queue.
        task: only jobs of this task.
    """

    by: Which | None
    queue: str | None
    task: str | None

    @property
    def of(self) -> dict[str, object]:
        """The parameters that say which jobs."""
        return {"by": self.by, "queue": self.queue, "task": self.task}

    @property
    def whole(self) -> bool:
        """Whether all jobs are meant, and are not told apart."""
        return self.by is self.queue is self.task is None

    def sources(self, made: "SeriesExtent") -> dict[str, datetime]:
        """Which part is read from days, which from hours, and which from minutes."""
        hours_until = days_since = days_until = self.since
        if self.by_steps_of(HOUR):
            hours_until = min(max(made.hours_until, self.since), self.until)
            days_since = days_until = hours_until
        first = ceil_to_step(self.since, DAY)
        last = floor(min(made.days_until, hours_until), DAY)
        if first < last and (self.step == self.until - self.since or self.by_steps_of(DAY)):
            days_since, days_until = first, last
        return {"days_since": days_since, "days_until": days_until, "hours_until": hours_until}


class SeriesExtent(NamedTuple):
    """Until when hours and days have been made, and since when minutes are kept."""

    hours_until: datetime
    days_until: datetime
    minutes_since: datetime

    def unit(self, start: datetime, length: timedelta) -> timedelta:
        """Whether a window from an instant on is told by minutes or by hours."""
        return HOUR if length > 12 * HOUR or start < self.minutes_since else MINUTE


def _read_figures(
    window: FigureWindow, made: SeriesExtent
) -> Steps[dict[tuple[datetime, str | None], Figures]]:
    """Return what workers have measured, by the beginning of the step and the name."""
    if window.whole:
        rows = yield Statement("insight/series_whole", {**window.span, **window.sources(made)})
    else:
        rows = yield Statement("insight/series_pairs", {**window.span, **window.of, **window.sources(made)})
    return {(row[0], row[1]): _figures(row) for row in rows}


def _figures_in(
    window: FigureWindow, made: SeriesExtent
) -> Steps[tuple[dict[tuple[datetime, str | None], Figures], bool]]:
    """Return what happened, by the beginning of the step and the name; and whether numbers are estimates."""
    found = yield from _read_figures(window, made)
    ((pages, *_),) = yield Statement("insight/standing_sizes", {"now": None})
    percent = share(pages, SAMPLED_PAGES, whole=WHOLE_PAGES)
    waiting = yield Statement("insight/series_waiting", {**window.span, **window.of, "percent": percent})
    for at, name, count in waiting:
        figures = found.get((at, name), NOTHING)
        enqueued = figures.enqueued + round(count * WHOLE / percent)
        found[at, name] = msgspec.structs.replace(figures, enqueued=enqueued)
    return found, percent < WHOLE


def _window(
    since: datetime | timedelta, until: datetime | None, now: datetime | None
) -> Steps[tuple[datetime, datetime, SeriesExtent]]:
    clock, made = yield from _series_extent(now)
    return *ends(since, until, clock=clock), made


def _series_extent(now: datetime | None) -> Steps[tuple[datetime, SeriesExtent]]:
    ((at, hours_until, days_until, kept),) = yield Statement("insight/series_state", {"now": now})
    clock = at.astimezone(UTC)
    return clock, SeriesExtent(hours_until.astimezone(UTC), days_until.astimezone(UTC), clock - kept)


def _figures(row: Row) -> Figures:
    counts, (wait_bins, waits, run_bins, runs) = row[2:-4], row[-4:]
    given = dict(zip(COUNTS, counts, strict=True))
    return Figures(**given, wait=_spread(wait_bins, waits), run=_spread(run_bins, runs))


def _spread(bins: Sequence[int], counts: Sequence[int]) -> Spread | None:
    if not bins:
        return None
    sketch: dict[int, int] = {}
    merge(sketch, bins, counts)
    return Spread(sum(counts), *quantiles(sketch, SHARES))


def _least(length: timedelta) -> timedelta:
    """Return how long steps are at least, of figures of one queue or task, where the caller says nothing."""
    return next((step for window, step in COARSER if length > window), MINUTE)
