"""The plans that write what happened to jobs over time, and how deep queues were; :mod:`pgqueue.store.insight.over_time` reads.

The protocol. Each worker adds rows to ``series_written`` when a minute is over. Rows of minutes that ended a minute ago or
earlier are moved to ``series_minutes`` by one worker at a time, which holds the row of ``series_state``; of full hours it
makes ``series_hours``. A row that comes later than that is added to both. Rows are added and deleted, never changed: a
reader adds up all that it finds. So a minute is told at once, the hour that runs is told from its minutes, and no two
workers wait for each other.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.queues.queues import queue_standings
from pgqueue.store.retention import DELETED_AT_ONCE
from pgqueue.values.insight.series import (
    DAY,
    HOUR,
    MINUTE,
    Depth,
    DepthPoint,
    Depths,
    deepest,
    ends,
    floor,
    in_steps,
)

PAIRS = 500
"""Pairs of queue and task that are told apart in one minute or hour; the others are counted together."""
MADE_AT_ONCE = 24
"""Hours, and days, that one run makes at most."""


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
    before = floor(at, MINUTE) - MINUTE
    params = {"before": before, "hours_until": hours_until, "days_until": days_until, "pairs": PAIRS}
    yield Statement("insight/series_minutes", params, returns=False)
    made = yield from _make_hours(hours_until, floor(before, HOUR))
    yield from _make_days(days_until, floor(made or hours_until, DAY))
    return int(made is not None)


@plan
def drop(*, now: datetime | None = None) -> Steps[int]:
    """Delete figures and depths that are older than they are kept; returns how many rows."""
    minutes = yield from _drop("insight/series_drop_minutes", now)
    hours = yield from _drop("insight/series_drop_hours", now)
    days = yield from _drop("insight/series_drop_days", now)
    depths = yield from _drop("insight/depths_drop_minutes", now)
    return minutes + hours + days + depths + (yield from _drop("insight/depths_drop_hours", now))


@plan
def keep(
    minutes: timedelta | None = None, hours: timedelta | None = None
) -> Steps[tuple[timedelta, timedelta]]:
    """Say for how long minutes and hours are kept; None: as before. Returns what holds."""
    ((kept_minutes, kept_hours),) = yield Statement(
        "insight/series_keep", {"minutes": minutes, "hours": hours}
    )
    return kept_minutes, kept_hours


def _drop(name: str, now: datetime | None) -> Steps[int]:
    count, deleted = 0, DELETED_AT_ONCE
    # Each statement, and so each transaction, has a bounded size.
    while deleted == DELETED_AT_ONCE:
        ((deleted,),) = yield Statement(name, {"now": now, "limit": DELETED_AT_ONCE})
        count += deleted
    return count


def _make_hours(since: datetime, until: datetime) -> Steps[datetime | None]:
    """Make the hours that are over, from the first one that has minutes; return until when, None: there was none."""
    ((first,),) = yield Statement("insight/series_first", {"since": since})
    if first is None or first >= until:
        return None
    start = floor(first, HOUR)
    end = min(until, start + MADE_AT_ONCE * HOUR)
    yield Statement("insight/series_hours", {"since": start, "until": end, "pairs": PAIRS}, returns=False)
    return end


def _make_days(since: datetime, until: datetime) -> Steps[None]:
    ((first,),) = yield Statement("insight/series_first_hour", {"since": since})
    if first is None or first >= until:
        return
    start = floor(first, DAY)
    end = min(until, start + MADE_AT_ONCE * DAY)
    yield Statement("insight/series_days", {"since": start, "until": end, "pairs": PAIRS}, returns=False)


QUEUES = 100
"""Queues that are told apart in one minute, and in one hour; of more, those with the most jobs."""


@plan
def note(*, now: datetime | None = None) -> Steps[bool]:
    """Note how deep queues are in this minute, unless another worker has; returns whether this one tried.

    Args:
        now: the instant; the database's own by default.
    """
    ((minute, due),) = yield Statement("insight/depths_due", {"now": now})
    if not due:
        return False
    found = yield from queue_standings(now=now)
    rows = [{"at": minute.isoformat(), **one} for one in deepest(found, QUEUES)]
    written = {"rows": msgspec.json.encode(rows).decode(), "queues": QUEUES}
    yield Statement("insight/depths_write", written, returns=False)
    return True


@plan(reads=True)
def depths(
    since: datetime | timedelta,
    until: datetime | None = None,
    step: timedelta | None = None,
    *,
    queue: str | None = None,
    now: datetime | None = None,
) -> Steps[Depths]:
    """How deep a queue was, step by step.

    Args:
        since: an instant, or how long before ``until``.
        until: an instant; None: now.
        step: how long a step is; None: about 60 of them.
        queue: which; None: all together.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: a step is no whole number of minutes, or there are more than 1,500.
    """
    ((at, made_until),) = yield Statement("insight/depths_made", {"now": now})
    steps = in_steps(*ends(since, until, clock=at), step)
    hours_until = steps.since
    if steps.by_steps_of(HOUR) and made_until is not None:
        hours_until = min(max(made_until, steps.since), steps.until)
    rows = yield Statement("insight/depths", {**steps.span, "queue": queue, "hours_until": hours_until})
    found = {row[0]: Depth(*row[1:]) for row in rows}
    points = tuple(DepthPoint(instant, found.get(instant)) for instant in steps.instants)
    return Depths(steps.since, steps.until, steps.step.total_seconds(), points)
