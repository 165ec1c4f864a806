"""Over which window a page shows figures, as its address says, and the charts of what happened in it."""

from datetime import timedelta
from typing import Final

from pgqueue.dashboard.charts import Chart, Colour, Curve, Unit
from pgqueue.dashboard.visit import Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.depth import Depths
from pgqueue.values.insight.series import Figures, Series
from pgqueue.values.workers.lease import duration_text

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
