"""What happened over a window that is chosen, and first of all whether all is right now: every problem, as ``queue.insight.health()`` says."""

from collections.abc import Sequence
from typing import Final

from pgqueue.dashboard.charts import Chart
from pgqueue.dashboard.page import Content, Page, Visit
from pgqueue.dashboard.pages.windows import SECONDS, WINDOWS, chosen_window, depth_charts, window_charts
from pgqueue.values.insight.comparison import failed_share
from pgqueue.values.insight.health import Health
from pgqueue.values.insight.series import Figures
from pgqueue.values.queues.standing import QueueStanding

TASKS: Final = 15
"""Tasks that are shown."""
EVERY_SECONDS: Final = 5
"""Seconds after which the window that is told by seconds is read again."""


def _read_overview(visit: Visit) -> Content:
    window = chosen_window(visit)
    health, queues = visit.look
    charts = window_charts(visit, window)
    if not visit.text("window") and all(chart.empty for chart in charts):
        lately = window_charts(visit, SECONDS)  # workers have measured nothing yet, as in the first minutes
        window, charts = (window, charts) if all(chart.empty for chart in lately) else (SECONDS, lately)
    return {
        "window": window,
        "windows": [*WINDOWS],
        "every": EVERY_SECONDS if window == SECONDS else None,
        "now": _now(queues, health),
        "health": health,
        "charts": [*charts, *depth_charts(visit, window)],
        **(_count_ended(charts[0]) if window == SECONDS else _count_attempts(visit, window)),
    }


def _count_attempts(visit: Visit, window: str) -> Content:
    """What workers have measured, of each task and of all."""
    totals = visit.queue.insight.totals(WINDOWS[window], by="task")
    ended = Figures(
        **{
            name: sum(getattr(one.figures, name) for one in totals.lines)
            for name in ("succeeded", "failed", "dead")
        }
    )
    return {
        "tasks": totals.lines[:TASKS],
        "more": max(0, len(totals.lines) - TASKS),
        "ended": {"succeeded": ended.succeeded, "failed": ended.failed, "dead": ended.dead},
        "failed_share": failed_share(ended),
    }


def _count_ended(chart: Chart) -> Content:
    """What the chart of the jobs that ended shows: nothing is known of attempts that were retried, nor of single tasks."""
    counted = {curve.name: int(sum(value or 0 for value in curve.values)) for curve in chart.curves}
    return {
        "tasks": None,
        "more": 0,
        "ended": {"succeeded": counted["Succeeded"], "failed": None, "dead": counted["Dead"]},
        "failed_share": None,
    }


def _now(queues: Sequence[QueueStanding], health: Health) -> Content:
    return {
        **{
            name: sum(getattr(one, name) for one in queues)
            for name in ("ready", "running", "scheduled", "blocked", "dead")
        },
        "rate": sum(one.rate for one in queues),
        "oldest": health.oldest_ready,
        "oldest_in": health.oldest_in,
        "estimated": sorted({state for one in queues for state in one.estimated}),
    }


PAGES = (Page(name="overview", path="/overview", title="Overview", read=_read_overview, place=10, every=35),)
