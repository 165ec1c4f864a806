"""The window of figures that an address names, and the charts of what happened in it. Several pages show them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pgqueue.dashboard.charts import Chart, Colour, Curve, Unit
from pgqueue.dashboard.page import Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.ended import EndedJobs, EndedPoint
from pgqueue.values.insight.series import Depths, Figures, Series
from pgqueue.values.workers.lease import duration_text

SECONDS: Final = "10m"
"""The window that is told by steps of 5 s, from the history."""
WINDOWS: Final = {
    SECONDS: timedelta(minutes=10),
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


def chosen_window(visit: Visit) -> str:
    """The window that the address names.

    Raises:
        InvalidOption: there is no such window.
    """
    name = visit.text("window") or FIRST
    if name not in WINDOWS:
        raise InvalidOption(f"window={name!r:.40}: use {', '.join(WINDOWS)}")
    return name


def window_charts(
    visit: Visit, window: str, *, queue: str | None = None, task: str | None = None
) -> list[Chart]:
    """What happened in a window, to all jobs, or to those of one queue or task."""
    if window == SECONDS:
        return ended_charts(visit.queue.insight.ended(WINDOWS[window], queue=queue, task=task))
    return charts(visit.queue.insight.series(WINDOWS[window], queue=queue, task=task))


def depth_charts(visit: Visit, window: str, *, queue: str | None = None) -> list[Chart]:
    """How many jobs there were in a window, in one queue or in all."""
    return deep_charts(visit.queue.insight.depths(WINDOWS[window], queue=queue))


def ended_charts(ended: EndedJobs) -> list[Chart]:
    """Which jobs ended in the last minutes, how long they waited and how long they ran, in steps of seconds."""
    at = tuple(point.at for point in ended.points)

    chart = _chart_maker(at, ended.step)
    return [
        chart(
            "ended",
            f"Jobs that ended, in each {_step_name(ended.step)}",
            "count",
            _count_curve("Succeeded", "good", "succeeded", ended.points),
            _count_curve("Cancelled", "grey", "cancelled", ended.points),
            _count_curve("Dead", "bad", "dead", ended.points),
            stacked=True,
        ),
        chart("wait", "Wait before a worker claimed them", "seconds", *_spread("wait", ended.points)),
        chart("run", "Run time of their last attempt", "seconds", *_spread("run", ended.points)),
    ]


def deep_charts(depths: Depths) -> list[Chart]:
    """How many jobs there were over time, and how long the oldest ready one had waited."""
    at = tuple(point.at for point in depths.points)
    each = f"the most in each {_step_name(depths.step)}"

    oldest = tuple(
        None if point.depth is None else point.depth.oldest_ready or 0.0 for point in depths.points
    )

    def curve(name: str, colour: Colour, field: str) -> Curve:
        return Curve(name, colour, tuple(getattr(point.depth, field, None) for point in depths.points))

    chart = _chart_maker(at, depths.step, gap="no worker looked")
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

    chart = _chart_maker(at, series.step)
    return [
        chart(
            "ended",
            f"Attempts that ended, {each}",
            "count",
            _count_curve("Succeeded", "good", "succeeded", figures),
            _count_curve("Retried", "warn", "retried", figures),
            _count_curve("Dead", "bad", "dead", figures),
            stacked=True,
        ),
        chart(
            "flow",
            f"Enqueued and claimed, {each}",
            "count",
            _count_curve("Enqueued", "blue", "enqueued", figures),
            _count_curve("Claimed, also those that were returned", "violet", "started", figures),
        ),
        chart("wait", "Wait before a worker claims", "seconds", *_spread("wait", figures)),
        chart("run", "Run time of attempts", "seconds", *_spread("run", figures)),
    ]


def _chart_maker(at: tuple[datetime, ...], step: float, *, gap: str = "") -> Callable[..., Chart]:
    """Makes charts that share their steps."""
    unfinished = bool(at) and at[-1] + timedelta(seconds=step) > datetime.now(UTC)

    def chart(name: str, title: str, unit: Unit, *curves: Curve, stacked: bool = False) -> Chart:
        return Chart(
            name=name, title=title, unit=unit, step=step, at=at, curves=curves, stacked=stacked, gap=gap, unfinished=unfinished
        )  # fmt: skip

    return chart


def _step_name(step: float) -> str:
    return UNITS.get(int(step)) or duration_text(step)


def _count_curve(
    name: str, colour: Colour, field: str, figures: Sequence[Figures] | Sequence[EndedPoint]
) -> Curve:
    return Curve(name, colour, tuple(float(getattr(one, field)) for one in figures))


def _spread(field: str, figures: Sequence[Figures] | Sequence[EndedPoint]) -> tuple[Curve, ...]:
    colours: tuple[tuple[str, Colour], ...] = (("p50", "blue"), ("p95", "violet"), ("p99", "warn"))
    return tuple(
        Curve(name, colour, tuple(getattr(getattr(one, field), name, None) for one in figures))
        for name, colour in colours
    )
