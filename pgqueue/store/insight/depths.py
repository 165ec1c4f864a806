"""The plans that note how deep queues are, once a minute, and tell it later.

The protocol. When a minute begins, each worker asks whether it has been noted. If not, the worker looks at the queues and adds
a row for all of them, and one for each; of two that do so at once, one adds its rows. The highest numbers of an hour are made
from its minutes with the first minute after it. Rows are added and deleted, never changed; :mod:`pgqueue.store.insight.series` deletes
those that are old.
"""

from datetime import datetime, timedelta

import msgspec

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.queues.standings import queue_standings
from pgqueue.values.insight.depth import Depth, DepthPoint, Depths, deepest
from pgqueue.values.insight.series import HOUR
from pgqueue.values.insight.stretch import ends, in_steps

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
