"""How the queue does as a whole: what waits and for how long, what ended, how long it took, over a window that is chosen.

And what stands in its way now: paused queues, workers that claim nothing, late schedules, limits under which jobs wait.
"""

from collections.abc import Sequence
from typing import Final

from pgqueue.dashboard.page import Content, Page
from pgqueue.dashboard.visit import Visit
from pgqueue.dashboard.windows import (
    WINDOWS,
    charts,
    chosen_depths,
    chosen_series,
    chosen_window,
    deep_charts,
)
from pgqueue.values.limits.status import LimitStatus
from pgqueue.values.queues.standing import QueueStanding

TASKS: Final = 15
"""Tasks that are shown."""
TROUBLES: Final = 5
"""Schedules, and limits, that are named above the figures."""
LATE: Final = 60.0
"""Seconds. A schedule that is later than this is named."""


def read(visit: Visit) -> Content:
    """The figures of now, and what happened in the window."""
    window = chosen_window(visit)
    queues = visit.queue.insight.queues()
    totals = visit.queue.insight.totals(WINDOWS[window], by="task")
    return {
        "window": window,
        "windows": [*WINDOWS],
        "now": _now(queues),
        "alerts": [one for one in visit.queue.alerts.list() if one.active],
        "stopped": [one for one in queues if one.paused_at or one.drained_at or one.unknown],
        "workers": [one for one in visit.queue.workers.list() if one.state in {"blocked", "stalled"}],
        "late": [one for one in visit.queue.insight.schedules(limit=TROUBLES) if one.lag > LATE or one.error],
        "limits": [one for one in visit.queue.insight.limits() if _holds_back(one)][:TROUBLES],
        "charts": [*charts(chosen_series(visit)), *deep_charts(chosen_depths(visit))],
        "tasks": totals.lines[:TASKS],
        "more": max(0, len(totals.lines) - TASKS),
        "ended": {
            name: sum(getattr(one.figures, name) for one in totals.lines)
            for name in ("succeeded", "failed", "dead", "started")
        },
    }


def _holds_back(limit: LimitStatus) -> bool:
    most = limit.numbers.most
    # A number that is scaled from a sample may be 0 where a few jobs wait.
    return limit.waiting > 0 or (limit.estimated and most is not None and limit.running >= most)


def _now(queues: Sequence[QueueStanding]) -> Content:
    oldest = [one for one in queues if one.oldest_ready is not None]
    worst = max(oldest, key=lambda one: one.oldest_ready or 0, default=None)
    return {
        **{
            name: sum(getattr(one, name) for one in queues)
            for name in ("ready", "running", "scheduled", "blocked", "dead")
        },
        "rate": sum(one.rate for one in queues),
        "oldest": None if worst is None else worst.oldest_ready,
        "oldest_in": None if worst is None else worst.queue,
        "estimated": any(one.estimated for one in queues),
    }


PAGE = Page(name="overview", path="/overview", title="Overview", read=read, place=10, every=25)
