"""The plan that tells which jobs ended in the last minutes, in steps of seconds: from the last pages of the history.

Workers write their figures (:mod:`pgqueue.store.insight.series`) by the minute, when the minute is over.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from pgqueue.errors import InvalidOption
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.insight.ended import EndedJobs, EndedPoint
from pgqueue.values.insight.series import DAY, EPOCH, Spread, ceil_to_step, floor

PAGES: Final = 2_500
"""Of the history, up to this many pages of a day are read: 20 MB, with some 100,000 jobs of short arguments."""
DIED: Final = 20_000
"""Of the dead jobs, the last ones are read."""
MOST_STEPS: Final = 1_500


@plan(reads=True)
def ended(
    length: timedelta,
    step: timedelta,
    *,
    queue: str | None = None,
    task: str | None = None,
    now: datetime | None = None,
) -> Steps[EndedJobs]:
    """The jobs that ended in the last minutes.

    Args:
        length: how far to look back.
        step: how long a step is.
        queue: only jobs of this queue.
        task: only jobs of this task.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: it is longer than a day, or there are more than 1,500 steps.
    """
    if length > DAY or length > MOST_STEPS * step:
        raise InvalidOption(f"since={length}: use at most a day, and at most {MOST_STEPS:,} steps")
    ((at,),) = yield Statement("connections/clock", {"now": now})
    until = ceil_to_step(at.astimezone(UTC), step)
    since = until + -length // step * step
    of = {"queue": queue, "task": task, "since": since, "until": until, "step": step}
    found = {
        since + number * step: EndedPoint(at=since + number * step)
        for number in range((until - since) // step)
    }
    known_from = since
    for day in sorted({floor(since, DAY), floor(at.astimezone(UTC), DAY)}):
        ((_, _, pages, _),) = yield Statement("insight/standing_sizes", {"now": day})
        first_page = max(0, pages - PAGES)
        rows = yield Statement("insight/ended_lately", {**of, "from_page": f"({first_page},0)", "day": day})
        *steps, (*_, (first,)) = sorted(rows, key=lambda row: row[0] is None)
        found |= {point.at: point for point in map(_point, steps)}
        if first_page and first is not None:
            known_from = max(known_from, EPOCH + timedelta(seconds=first))
    rows = yield Statement("insight/died_lately", {**of, "looked_at": DIED})
    for begins, dead, first in rows:
        if begins is not None:
            at = begins.astimezone(UTC)
            found[at] = replace(found[at], dead=dead)
        elif first is not None:
            known_from = max(known_from, first.astimezone(UTC))
    if known_from > since:  # of its step, jobs were read in part
        known_from = floor(known_from, step) + step
    points = tuple(point for begins, point in found.items() if begins >= known_from)
    return EndedJobs(
        since=since, until=until, step=step.total_seconds(), points=points, complete=known_from == since
    )


def _point(row: Sequence[Any]) -> EndedPoint:
    at, succeeded, cancelled, waits, runs, wait, run = row
    return EndedPoint(
        at=at.astimezone(UTC),
        succeeded=succeeded,
        cancelled=cancelled,
        wait=Spread(waits, *wait) if waits else None,
        run=Spread(runs, *run) if runs else None,
    )
