"""What happened over a window that is chosen: of all jobs, of one task, beside the same before a deploy; and how the store does.

These pages only look. The first one also says what stands in the way now: paused queues, workers that claim nothing, late
schedules, limits under which jobs wait.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from pgqueue.dashboard.charts import Chart, Colour, Curve, Unit
from pgqueue.dashboard.filters import read_instant
from pgqueue.dashboard.page import Content, Page, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.series import Depths, Figures, Series
from pgqueue.values.length import read_length
from pgqueue.values.limits.status import LimitStatus
from pgqueue.values.queues.standing import QueueStanding
from pgqueue.values.workers.lease import duration_text

if TYPE_CHECKING:
    from pgqueue.values.insight.now import Which
TASKS: Final = 15
"""Tasks that are shown."""
TROUBLES: Final = 5
"""Schedules, and limits, that are named above the figures."""
LATE: Final = 60.0
"""Seconds. A schedule that is later than this is named."""
WINDOWS: Final = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
UNITS: Final = {60: "minute", 3_600: "hour", 86_400: "day"}
FIRST: Final = "1h"
NOT_TOLD: Final = timedelta(minutes=2)
"""Workers write what a minute had when it is over, so the chart of the last minutes would fall to 0 at its end."""
ERRORS: Final = 10
"""Errors that are shown."""
LINES: Final = 100
"""Tasks, or queues, of a comparison that are shown."""
SINCE: Final = "1h"
"""How long before and after, and when, a comparison looks if the address says nothing."""


def _read_overview(visit: Visit) -> Content:
    window = chosen_window(visit)
    queues = visit.standings
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
        "estimated": sorted({state for one in queues for state in one.estimated}),
    }


def _read_task(visit: Visit) -> Content:
    window, task = chosen_window(visit), visit.name
    totals = visit.queue.insight.totals(WINDOWS[window], by="queue", task=task)
    errors = visit.queue.insight.errors(task=task, limit=ERRORS)
    return {
        "task": task,
        "window": window,
        "windows": [*WINDOWS],
        "charts": charts(chosen_series(visit, task=task)),
        "queues": totals.lines,
        "errors": [
            msgspec.structs.replace(
                one, message=visit.redaction.message(visit.chosen, one.last_job, one.message, visit.queue.job)
            )
            for one in errors.groups
        ],
        "complete": errors.complete,
        "counted": errors.jobs,
    }


def _read_comparison(visit: Visit) -> Content:
    at, window, task = visit.text("at"), visit.text("window"), visit.text("task")
    by: Which = "queue" if visit.text("by") == "queue" else "task"
    found = visit.queue.insight.compare(_instant(at or SINCE), _length(window or SINCE), by=by, task=task)
    return {
        "at": at or SINCE,
        "window": window or SINCE,
        "task": task,
        "by": by,
        "found": {
            name: getattr(found, name)
            for name in ("before_since", "before_until", "after_since", "after_until")
        },
        "lines": found.lines[:LINES],
        "more": max(0, len(found.lines) - LINES),
        "worse": sum(one.worse for one in found.lines),
    }


def _instant(text: str) -> datetime:
    at = read_instant("at", text)
    return datetime.now(UTC) if at is None else at


def _length(text: str) -> timedelta:
    try:
        return read_length(text, above_zero=True)
    except InvalidOption as error:
        raise InvalidOption(f"window: {error}") from None


def _read_store(visit: Visit) -> Content:
    return {"store": visit.queue.insight.store()}


def chosen_window(visit: Visit) -> str:
    """The window that the address names.

    Raises:
        InvalidOption: there is no such window.
    """
    name = visit.text("window") or FIRST
    if name not in WINDOWS:
        raise InvalidOption(f"window={name!r:.40}: use {', '.join(WINDOWS)}")
    return name


def chosen_series(visit: Visit, *, queue: str | None = None, task: str | None = None) -> Series:
    """What happened in the window, of all jobs, or of one queue or task."""
    return visit.queue.insight.series(WINDOWS[chosen_window(visit)], queue=queue, task=task)


def chosen_depths(visit: Visit, *, queue: str | None = None) -> Depths:
    """How many jobs there were in the window, in one queue or in all."""
    return visit.queue.insight.depths(WINDOWS[chosen_window(visit)], queue=queue)


def deep_charts(depths: Depths) -> list[Chart]:
    """How many jobs there were over time, and how long the oldest ready one had waited."""
    at = tuple(point.at for point in depths.points)
    each = f"the most in each {_step_name(depths.step)}"

    oldest = tuple(
        None if point.depth is None else point.depth.oldest_ready or 0.0 for point in depths.points
    )

    def curve(name: str, colour: Colour, field: str) -> Curve:
        return Curve(name, colour, tuple(getattr(point.depth, field, None) for point in depths.points))

    def chart(name: str, title: str, unit: Unit, *curves: Curve) -> Chart:
        return Chart(name=name, title=title, unit=unit, step=depths.step, at=at, curves=curves)

    return [
        chart(
            "depth",
            f"Jobs, {each}",
            "count",
            curve("Ready", "blue", "ready"),
            curve("Running", "good", "running"),
            curve("Blocked", "warn", "blocked"),
            curve("Scheduled", "grey", "scheduled"),
        ),
        chart("oldest", "Oldest ready job had waited", "seconds", Curve("Longest", "violet", oldest)),
    ]


def charts(series: Series) -> list[Chart]:
    """What happened over time: what ended, what came and went, wait times, run times."""
    told = series.until - NOT_TOLD
    points = [one for one in series.lines[0].points if one.at < told] if series.lines else []
    figures = [point.figures for point in points]
    at = tuple(point.at for point in points)
    each = f"in each {_step_name(series.step)}"

    def chart(name: str, title: str, *curves: Curve, stacked: bool = False) -> Chart:
        unit: Unit = "seconds" if name in {"wait", "run"} else "count"
        return Chart(
            name=name, title=title, unit=unit, step=series.step, at=at, curves=curves, stacked=stacked
        )

    return [
        chart(
            "ended",
            f"Attempts that ended, {each}",
            _count_curve("Succeeded", "good", "succeeded", figures),
            _count_curve("Retried", "warn", "retried", figures),
            _count_curve("Dead", "bad", "dead", figures),
            stacked=True,
        ),
        chart(
            "flow",
            f"Enqueued and claimed, {each}",
            _count_curve("Enqueued", "blue", "enqueued", figures),
            _count_curve("Claimed", "violet", "started", figures),
        ),
        chart("wait", "Wait before a worker claims", *_spread("wait", figures)),
        chart("run", "Run time of attempts", *_spread("run", figures)),
    ]


def _step_name(step: float) -> str:
    return UNITS.get(int(step)) or duration_text(step)


def _count_curve(name: str, colour: Colour, field: str, figures: list[Figures]) -> Curve:
    return Curve(name, colour, tuple(float(getattr(one, field)) for one in figures))


def _spread(field: str, figures: list[Figures]) -> tuple[Curve, ...]:
    colours: tuple[tuple[str, Colour], ...] = (("p50", "blue"), ("p95", "violet"), ("p99", "warn"))
    return tuple(
        Curve(name, colour, tuple(getattr(getattr(one, field), name, None) for one in figures))
        for name, colour in colours
    )


PAGES = (
    Page(name="overview", path="/overview", title="Overview", read=_read_overview, place=10, every=25),
    Page(name="task", path="/task", title="Task", read=_read_task, under="overview", every=20),
    Page(name="compare", path="/compare", title="Compare", read=_read_comparison, place=15, every=None),
    Page(name="store", path="/store", title="Store", read=_read_store, place=100, every=10),
)
