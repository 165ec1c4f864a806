"""The pictures of a comparison: what was, and what would be, over time. They are drawn in the style of the report."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgqueue.spark.report import words
from pgqueue.spark.report.figures import LINES, WARNING
from pgqueue.spark.report.section import Plot

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from pgqueue.spark.whatif.compare import ReplayPoint
    from pgqueue.spark.whatif.whatif import ReplayComparison

WAS, WOULD_BE = (LINES[1], "--", "was"), (LINES[0], "-", "would be")
SECONDS_A_DAY = 86_400
MOST_LABELS = 8


def plots(found: "ReplayComparison") -> list[Plot]:
    """Waits, backlogs, and running jobs, over time."""
    step = words.span(found.seconds_a_point)
    return [
        Plot(
            title=f"95% of the jobs that were ready within {step} waited no longer, in seconds",
            says=f"Waits over time: {_peaks(found, lambda one: one.p95 or 0, 's')}.",
            draw=_over_time(found, lambda one: one.p95, "seconds"),
        ),
        Plot(
            title=f"Most jobs that waited at once, within {step}",
            says=f"Waiting jobs over time: {_peaks(found, lambda one: one.backlog, 'jobs')}.",
            draw=_over_time(found, lambda one: one.backlog, "jobs"),
        ),
        Plot(
            title=f"Jobs that ran at once, on average within {step}",
            says=f"Running jobs over time, beside {found.slots} slots: {_peaks(found, lambda one: one.running, 'jobs')}.",
            draw=_over_time(found, lambda one: one.running, "jobs", level=found.slots),
        ),
    ]


def _peaks(found: "ReplayComparison", value: "Callable[[ReplayPoint], float]", unit: str) -> str:
    was, would_be = (
        max(map(value, points), default=0.0) for points in (found.points_was, found.points_would_be)
    )
    return f"the highest was {words.number(was)} {unit}, and would be {words.number(would_be)} {unit}"


def _over_time(
    found: "ReplayComparison",
    value: "Callable[[ReplayPoint], float | None]",
    unit: str,
    *,
    level: float | None = None,
) -> "Callable[[Axes], None]":
    def draw(axes: "Axes") -> None:
        lines: Sequence[tuple[Sequence[ReplayPoint], tuple[str, str, str]]] = (
            (found.points_was, WAS),
            (found.points_would_be, WOULD_BE),
        )
        top = 1e-9
        for points, (colour, dashes, label) in lines:
            known = [(one.at.timestamp(), at) for one in points if (at := value(one)) is not None]
            mark = "." if len(known) == 1 else None
            axes.plot(
                [at for at, _ in known],
                [height for _, height in known],
                color=colour,
                ls=dashes,
                marker=mark,
                label=label,
            )
            top = max(top, *(height for _, height in known), 0.0)
        if level is not None and level <= 2 * top:
            top = max(top, level)
            axes.axhline(level, color=WARNING, lw=1.1, label="slots")
        _times(axes, [one.at for one in found.points_was])
        axes.set_ylim(0, top * 1.1)
        axes.set_ylabel(unit)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderaxespad=0.2)

    return draw


def _times(axes: "Axes", instants: Sequence[datetime]) -> None:
    first, last = instants[0], instants[-1]
    if (last - first).total_seconds() > 2 * SECONDS_A_DAY:
        midnights = [one for one in instants if one.timestamp() % SECONDS_A_DAY == 0] or [first]
        shown, form = midnights[:: -(-len(midnights) // MOST_LABELS)], "%a %d %b"
    else:
        shown, form = list(instants[:: -(-len(instants) // MOST_LABELS)]), "%H:%M:%S"
    axes.set_xticks([one.timestamp() for one in shown], [f"{one:{form}}" for one in shown], ha="left")
