"""Draws the pictures of the report; the questions decide what a picture shows.

Lines differ by their dashes as well as by their colours, and hours count from 1970 in UTC.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pgqueue.spark.report import words
from pgqueue.spark.report.rendering import INK, LINES, WARNING
from pgqueue.spark.report.rule_unusual import CountWeek

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Draw: TypeAlias = "Callable[[Axes], None]"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
DAY = 24
MOST_DAY_LABELS = 10
LABEL = 24
"""The most letters of a name in a legend."""


def hourly(begin: int, end: int, lines: Mapping[str, Mapping[int, float]], unit: str) -> Draw:
    """Lines over hours; an hour without a value is zero."""

    def draw(axes: "Axes") -> None:
        hours = range(begin, end)
        for (label, line), colour, dash in zip(lines.items(), LINES, DASHES, strict=False):
            axes.plot(
                list(hours),
                [line.get(hour, 0.0) for hour in hours],
                color=colour,
                ls=dash,
                label=_label(label),
            )
        _days(axes, begin, end)
        _from_zero(axes, unit)
        _legend(axes)

    return draw


def usual_week(begin: int, week: CountWeek, marked: Sequence[int]) -> Draw:
    """A week as a line, over the range of usual values."""

    def draw(axes: "Axes") -> None:
        hours = np.arange(begin, begin + week.jobs.size)
        known = np.isfinite(week.low) & np.isfinite(week.high)
        high = np.where(known, week.high, 0.0)
        band: dict[str, Any] = {"color": LINES[0], "alpha": 0.18, "lw": 0, "label": "usual range"}
        axes.fill_between(hours, week.low, high, where=known, **band)
        axes.plot(hours, week.usual, color=LINES[0], ls="--", lw=1.1, label="usual")
        axes.plot(hours, week.jobs, color=INK, label="this week")
        at = [hour for hour in marked if 0 <= hour - begin < week.jobs.size]
        values = [float(week.jobs[hour - begin]) for hour in at]
        axes.plot(at, values, "o", color=WARNING, ms=6, mfc="none", mew=1.6, label="out of line")
        _days(axes, begin, begin + week.jobs.size)
        _from_zero(axes, "jobs an hour")
        _legend(axes)

    return draw


def around(deploy: int, label: str, medians: Mapping[int, float], tails: Mapping[int, float]) -> Draw:
    """Run times by hour before and after a deploy."""

    def draw(axes: "Axes") -> None:
        for line, colour, dash, name in (
            (tails, LINES[1], "--", "one in ten takes longer (p90)"),
            (medians, LINES[0], "-", "half take longer (p50)"),
        ):
            hours = sorted(line)
            axes.plot(hours, [line[hour] for hour in hours], color=colour, ls=dash, label=name)
        axes.axvline(deploy, color=WARNING, lw=1.4)
        axes.annotate(
            f" {words.clean(label, LABEL)}",
            (deploy, 1.0),
            xycoords=("data", "axes fraction"),
            va="top",
            color=WARNING,
            fontsize=9,
        )
        _days(axes, min(medians), max(medians) + 1)
        _from_zero(axes, "seconds a run")
        _legend(axes)

    return draw


def storm_hours(begin: int, end: int, retries: Mapping[int, float], stormy: Sequence[int]) -> Draw:
    """Retries by hour, the stormy hours marked."""

    def draw(axes: "Axes") -> None:
        hours = range(begin, end)
        axes.plot(list(hours), [retries.get(hour, 0.0) for hour in hours], color=LINES[0], label="retries")
        axes.plot(
            stormy,
            [retries.get(hour, 0.0) for hour in stormy],
            "o",
            color=WARNING,
            mfc="none",
            ms=6,
            label="storm",
        )
        _days(axes, begin, end)
        _from_zero(axes, "retries an hour")
        _legend(axes)

    return draw


def draw_crowding(
    begin: int, end: int, share: Mapping[int, float], wait: Mapping[int, float], tenant: str
) -> Draw:
    """A tenant's share of a queue's run time, above the others' mean wait."""

    def draw(axes: "Axes") -> None:
        hours = range(begin, end)
        waits = [wait.get(hour, 0.0) for hour in hours]
        axes.plot(list(hours), waits, color=LINES[1], ls="--", label="the others' mean wait, seconds")
        axes.set_ylim(bottom=0, top=max(1.0, *waits) * 1.15)
        axes.set_ylabel("seconds")
        beside = axes.twinx()
        beside.fill_between(
            list(hours),
            [100 * share.get(hour, 0.0) for hour in hours],
            step="mid",
            color=LINES[0],
            alpha=0.3,
            lw=0,
            label=f"run time that {words.clean(tenant, LABEL)} took, %",
        )
        beside.set_ylim(0, 100)
        beside.set_ylabel("%")
        beside.grid(visible=False)
        beside.spines["right"].set_visible(True)
        _days(axes, begin, end)
        _legend(axes, beside)

    return draw


def forecast(
    days: Sequence[int], load: Sequence[float], ahead: Sequence[tuple[float, ...]], capacity: float
) -> Draw:
    """Daily load, its forecast, and the levels that it should not reach.

    Args:
        days: counted from 1970.
        load: busy hours on each day.
        ahead: for each later day its number, and the low end, the middle and the high end of its load's range.
        capacity: in the same unit.
    """

    def draw(axes: "Axes") -> None:
        axes.plot(days, load, color=LINES[0], marker=".", label="busy hours a day")
        after, low, middle, high = np.array(ahead).T
        axes.fill_between(
            after,
            low,
            high,
            color=LINES[0],
            alpha=0.18,
            lw=0,
            label="four days in five fall in here",
        )
        axes.plot(after, middle, color=LINES[0], ls="--", label="expected")
        top = float(np.max([*load, *middle, 1e-9])) * 1.2
        for level, name in ((0.8, "80%"), (1.0, "100% of capacity")):
            if capacity * level <= 1.6 * top:
                top = max(top, capacity * level)
                axes.axhline(capacity * level, color=WARNING, lw=1.1, ls="--" if level < 1 else "-")
                axes.annotate(f"{name} ", (days[0], capacity * level), va="bottom", color=WARNING, fontsize=9)
        _dates(axes, days[0], int(after[-1]))
        axes.set_ylim(0, top * 1.12)
        axes.set_ylabel("hours of run time")
        _legend(axes)

    return draw


def _days(axes: "Axes", begin: int, end: int) -> None:
    midnights = [hour for hour in range(begin, end) if hour % DAY == 0]
    step = max(1, -(-len(midnights) // MOST_DAY_LABELS))
    shown = midnights[::step]
    axes.set_xticks(shown, [f"{words.instant(hour):%a %d %b}" for hour in shown], ha="left")
    axes.set_xlim(begin, end)


def _dates(axes: "Axes", first: int, last: int) -> None:
    mondays = [day for day in range(first, last + 1) if words.day_of(day).weekday() == 0]
    step = max(1, -(-len(mondays) // MOST_DAY_LABELS))
    shown = mondays[::step]
    axes.set_xticks(shown, [f"{words.day_of(day):%d %b}" for day in shown])
    axes.set_xlim(first, last + 1)


def _label(name: str) -> str:
    shown = words.clean(name, LABEL)
    # matplotlib leaves out names that begin with an underscore.
    return f" {shown}" if shown.startswith("_") else shown


def _from_zero(axes: "Axes", unit: str) -> None:
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)


def _legend(*sides: "Axes") -> None:
    handles, labels = [], []
    for side in sides:
        more, names = side.get_legend_handles_labels()
        handles += more
        labels += names
    if len(labels) > 1:
        sides[0].legend(
            handles, labels, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(labels), borderaxespad=0.2
        )
