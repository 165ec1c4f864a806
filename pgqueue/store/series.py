"""The plans that write and tell what happened to jobs over time.

The protocol. Each worker adds rows to ``series_written`` when a minute is over. Rows of minutes that ended a minute ago or
earlier are moved to ``series_minutes`` by one worker at a time, which holds the row of ``series_state``; of full hours it
makes ``series_hours``. A row that comes later than that is added to both. Rows are added and deleted, never changed: a
reader adds up all that it finds. So a minute is told at once, the hour that runs is told from its minutes, and no two
workers wait for each other.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.standings import SAMPLED_PAGES, WHOLE_PAGES
from pgqueue.store.upkeep import DELETED_AT_ONCE
from pgqueue.values.insight import Which
from pgqueue.values.series import COUNTS, Figures, Line, Point, Series, Spread, Total, Totals, busiest_first
from pgqueue.values.sketch import merge, quantiles
from pgqueue.values.standing import WHOLE, share

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
PAIRS = 500
"""Pairs of queue and task that are told apart in one minute or hour; the others are counted together."""
MADE_AT_ONCE = 24
"""Hours, and days, that one run makes at most."""
MOST_STEPS = 1_500
ABOUT = 60
"""Steps that a series has, give or take, where the caller does not say how long they are."""
STEPS = [timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]
COARSER = ((timedelta(days=10), DAY), (timedelta(hours=6), HOUR))
"""Of a window longer than this, figures of one queue or task, or of each, are told by steps of at least this length where
the caller does not say otherwise: they are read from days or hours."""
SHARES = (0.5, 0.95, 0.99)


@plan
def write(rows: Sequence[Mapping[str, Any]]) -> Steps[None]:
    """Add what a worker measured.

    Args:
        rows: by the columns of ``series_written``.
    """
    yield Statement("insight/series_write", {"rows": msgspec.json.encode(rows).decode()}, returns=False)


@plan(transaction=True)
def move(*, now: datetime | None = None) -> Steps[int]:
    """Make minutes of what workers wrote, hours of minutes, and days of hours; returns 1 if there was an hour to make.

    Args:
        now: the instant; the database's own by default.
    """
    state = yield Statement("insight/series_lock", {"now": now})
    if not state:
        return 0
    ((hours_until, days_until, at),) = state
    before = _floor(at, MINUTE) - MINUTE
    params = {"before": before, "hours_until": hours_until, "days_until": days_until, "pairs": PAIRS}
    yield Statement("insight/series_minutes", params, returns=False)
    made = yield from _make_hours(hours_until, _floor(before, HOUR))
    yield from _make_days(days_until, _floor(made or hours_until, DAY))
    return int(made is not None)


@plan
def drop(*, now: datetime | None = None) -> Steps[int]:
    """Delete minutes, hours and days that are older than they are kept; how many rows."""
    minutes = yield from _drop("insight/series_drop_minutes", now)
    hours = yield from _drop("insight/series_drop_hours", now)
    return minutes + hours + (yield from _drop("insight/series_drop_days", now))


@plan
def keep(
    minutes: timedelta | None = None, hours: timedelta | None = None
) -> Steps[tuple[timedelta, timedelta]]:
    """Say for how long minutes and hours are kept; None: as before. Returns what holds."""
    ((kept_minutes, kept_hours),) = yield Statement(
        "insight/series_keep", {"minutes": minutes, "hours": hours}
    )
    return kept_minutes, kept_hours


@plan
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
    step = (
        _fitting(end - start, told_apart=(by, queue, task) != (None,) * 3) if step is None else _checked(step)
    )
    start = _floor(start, step)
    steps = -(-(end - start) // step)
    if steps > MOST_STEPS:
        raise InvalidOption(
            f"step={step}: that makes {steps:,} steps; use a longer one, for at most {MOST_STEPS:,}"
        )
    window = Window(start, start + step * steps, step, by, queue, task)
    found, estimated = yield from _figures_in(window, made)
    names = {name for _, name in found} if by else {None}
    instants = [start + step * place for place in range(steps)]
    lines = [
        Line(name, tuple(Point(at, found.get((at, name), NOTHING)) for at in instants)) for name in names
    ]
    lines.sort(key=lambda line: (-sum(point.figures.started for point in line.points), line.name or ""))
    return Series(start, window.until, step.total_seconds(), tuple(lines), estimated)


@plan
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
    unit = HOUR if end - start > 12 * HOUR else MINUTE
    start, end = _floor(start, unit), _floor(end + unit - MICROSECOND, unit)
    found, estimated = yield from _figures_in(Window(start, end, end - start, by, queue, task), made)
    return Totals(start, end, busiest_first(Total(name, one) for (_, name), one in found.items()), estimated)


class Window(msgspec.Struct, frozen=True):
    """What figures are asked for.

    Attributes:
        since: the first instant.
        until: behind the last instant; a whole number of steps later.
        step: how long a step is.
        by: a line for each queue or task; None: one line.
        queue: only jobs of this queue.
        task: only jobs of this task.
    """

    since: datetime
    until: datetime
    step: timedelta
    by: Which | None
    queue: str | None
    task: str | None

    @property
    def whole(self) -> bool:
        """Whether all jobs are meant, and are not told apart."""
        return self.by is self.queue is self.task is None

    def sources(self, made: "Made") -> dict[str, datetime]:
        """Which part is read from days, which from hours, and which from minutes."""
        hours_until = days_since = days_until = self.since
        if self.by_steps_of(HOUR):
            hours_until = min(max(made.hours_until, self.since), self.until)
            days_since = days_until = hours_until
        first = _floor(self.since + DAY - MICROSECOND, DAY)
        last = _floor(min(made.days_until, hours_until), DAY)
        if first < last and (self.step == self.until - self.since or self.by_steps_of(DAY)):
            days_since, days_until = first, last
        return {"days_since": days_since, "days_until": days_until, "hours_until": hours_until}

    def by_steps_of(self, unit: timedelta) -> bool:
        """Whether each step is a number of whole hours or days."""
        return not (self.step % unit or (self.since - EPOCH) % unit)


class Made(NamedTuple):
    """Until when hours and days have been made."""

    hours_until: datetime
    days_until: datetime


def _figures_in(window: Window, made: Made) -> Steps[tuple[dict[tuple[datetime, str | None], Figures], bool]]:
    """What happened, by the beginning of the step and the name; and whether numbers are estimates."""
    span = {"since": window.since, "until": window.until, "step": window.step}
    of = {"by": window.by, "queue": window.queue, "task": window.task}
    if window.whole:
        rows = yield Statement("insight/series_whole", {**span, **window.sources(made)})
    else:
        rows = yield Statement("insight/series_pairs", {**span, **of, **window.sources(made)})
    found = {(row[0], row[1]): _figures(row) for row in rows}
    ((pages, *_),) = yield Statement("standing_sizes", {"now": None})
    percent = share(pages, SAMPLED_PAGES, whole=WHOLE_PAGES)
    waiting = yield Statement("insight/series_waiting", {**span, **of, "percent": percent})
    for at, name, count in waiting:
        figures = found.get((at, name), NOTHING)
        enqueued = figures.enqueued + round(count * WHOLE / percent)
        found[at, name] = msgspec.structs.replace(figures, enqueued=enqueued)
    return found, percent < WHOLE


def _window(
    since: datetime | timedelta, until: datetime | None, now: datetime | None
) -> Steps[tuple[datetime, datetime, Made]]:
    ((at, hours_until, days_until),) = yield Statement("insight/series_state", {"now": now})
    end = until or at
    start = since if isinstance(since, datetime) else end - since
    if start >= end:
        raise InvalidOption(f"since={start.isoformat()} is not before until={end.isoformat()}")
    made = Made(hours_until.astimezone(UTC), days_until.astimezone(UTC))
    return start.astimezone(UTC), end.astimezone(UTC), made


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


def _drop(name: str, now: datetime | None) -> Steps[int]:
    """Delete in statements, and so transactions, of a bounded size."""
    count, deleted = 0, DELETED_AT_ONCE
    while deleted == DELETED_AT_ONCE:
        ((deleted,),) = yield Statement(name, {"now": now, "limit": DELETED_AT_ONCE})
        count += deleted
    return count


def _make_hours(since: datetime, until: datetime) -> Steps[datetime | None]:
    """Make the hours that are over, from the first one that has minutes; returns until when, None: there was none."""
    ((first,),) = yield Statement("insight/series_first", {"since": since})
    if first is None or first >= until:
        return None
    start = _floor(first, HOUR)
    end = min(until, start + MADE_AT_ONCE * HOUR)
    yield Statement("insight/series_hours", {"since": start, "until": end, "pairs": PAIRS}, returns=False)
    return end


def _make_days(since: datetime, until: datetime) -> Steps[None]:
    """Make the days that are over, from the first one that has hours."""
    ((first,),) = yield Statement("insight/series_first_hour", {"since": since})
    if first is None or first >= until:
        return
    start = _floor(first, DAY)
    end = min(until, start + MADE_AT_ONCE * DAY)
    yield Statement("insight/series_days", {"since": start, "until": end, "pairs": PAIRS}, returns=False)


def _fitting(length: timedelta, *, told_apart: bool) -> timedelta:
    """The length of a step where the caller says none."""
    least = next((step for window, step in COARSER if told_apart and length > window), MINUTE)
    return next((step for step in STEPS if step >= least and length <= ABOUT * 1.5 * step), STEPS[-1])


def _checked(step: timedelta) -> timedelta:
    if step % MINUTE or step < MINUTE:
        raise InvalidOption(f"step={step}: use whole minutes")
    return step


def _floor(instant: datetime, step: timedelta) -> datetime:
    return instant - (instant - EPOCH) % step


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTHING = Figures()
