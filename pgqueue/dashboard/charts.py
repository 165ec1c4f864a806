"""Charts of figures over time, as SVG. Pure: a chart is a value, and this file decides how it is drawn.

Colours are CSS classes, since the dashboard's policy forbids styles in pages. The figures themselves are in a table beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from math import ceil, floor, log10
from typing import Final, Literal, TypeAlias

import msgspec
from markupsafe import Markup

WIDTH, HEIGHT = 440, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 22
"""Units of the picture around the plot; the tick labels stand there."""
TICKS_ACROSS, TICKS_DOWN = 6, 4
"""At most how many gaps there are between ticks."""
LENGTHS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
LONGER: Final = (
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    18_000,
    43_200,
    86_400,
    172_800,
    432_000,
    864_000,
)
"""Seconds between ticks of an axis of lengths of time."""
SPANS: Final = (60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000)
"""Seconds between ticks of the axis of time."""
MINUTE: Final = 60
DAY: Final = 86_400

Colour: TypeAlias = Literal["blue", "violet", "good", "warn", "bad", "grey"]
Unit: TypeAlias = Literal["count", "seconds"]


class Curve(msgspec.Struct, frozen=True):
    """Figures under one name.

    Attributes:
        name: of the figures.
        colour: of the line, or the area.
        values: one for each step; None: there is none.
    """

    name: str
    colour: Colour
    values: tuple[float | None, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over time.

    Attributes:
        name: of the chart in its page; letters and hyphens.
        title: what it shows.
        unit: of the figures.
        step: seconds from one instant to the next.
        at: when each step begins.
        curves: the figures.
        stacked: the curves are parts of a whole, drawn as areas on each other; else each is a line.
        unfinished: the last step is not over: it is drawn dashed, or paler.
        gap: what it means that no curve has a figure of a step: such steps are shaded; "": nothing.
    """

    name: str
    title: str
    unit: Unit
    step: float
    at: tuple[datetime, ...]
    curves: tuple[Curve, ...]
    stacked: bool = False
    unfinished: bool = False
    gap: str = ""

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The first and the last of steps one after the other of which no curve has a figure."""
        if not self.gap:
            return []
        over = len(self.at) - self.unfinished
        missing = [all(curve.values[step] is None for curve in self.curves) for step in range(over)]
        ends = [step for step, gone in enumerate(missing) if gone and not (missing[step + 1 :] or [False])[0]]
        begins = [step for step, gone in enumerate(missing) if gone and not (step and missing[step - 1])]
        return [*zip(begins, ends, strict=True)]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value for curve in self.curves for value in curve.values)


def svg(chart: Chart) -> Markup:
    """A chart as an SVG element."""
    tops = _stack_curves(chart) if chart.stacked else [curve.values for curve in chart.curves]
    ticks = _ticks(
        max((value for top in tops for value in top if value is not None), default=0.0), chart.unit
    )
    across = _across(len(chart.at))
    down = _down(ticks[-1])
    parts = [
        *_gaps(chart, across),
        *_grid(ticks, down, chart.unit),
        *_dates(chart, across),
        *(_areas(chart, tops, across, down) if chart.stacked else _lines(chart, across, down)),
        *_tips(chart, across),
    ]
    return Markup(
        '<svg class="chart" role="img" viewBox="0 0 {w} {h}" aria-labelledby="{n}-t {n}-d"><title id="{n}-t">{title}</title>'
        '<desc id="{n}-d">{text}</desc>{parts}</svg>'
    ).format(
        w=WIDTH,
        h=HEIGHT,
        n=f"chart-{chart.name}",
        title=chart.title,
        text=describe_chart(chart),
        parts=Markup("").join(parts),
    )


def describe_chart(chart: Chart) -> str:
    """A chart in words: between which values each of its curves is."""
    said = []
    for curve in chart.curves:
        values = [value for value in curve.values if value is not None]
        if values:
            low, high, last = (
                format_figure(one, chart.unit) for one in (min(values), max(values), values[-1])
            )
            said.append(f"{curve.name}: from {low} to {high}, at last {last}")
        else:
            said.append(f"{curve.name}: no figures")
    return f"{'. '.join(said)}. Times are UTC."


def format_figure(value: float | None, unit: Unit) -> str:
    """A figure with its unit."""
    if value is None:
        return "—"
    if unit == "count":
        return f"{value:,.0f}"
    if value < 1:
        return f"{value * 1_000:.3g} ms" if value >= 0.001 or not value else f"{value * 1_000_000:.0f} µs"  # noqa: PLR2004
    for length, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= 2 * length or (value >= length and value % length == 0):
            number = value / length
            return f"{number:,.0f} {name}" if number >= 100 else f"{number:.3g} {name}"  # noqa: PLR2004
    return f"{value:.3g} s"


def _stack_curves(chart: Chart) -> list[tuple[float, ...]]:
    steps = zip(*(curve.values for curve in chart.curves), strict=True)
    return [*zip(*(tuple(accumulate(value or 0.0 for value in step)) for step in steps), strict=True)]


def _ticks(highest: float, unit: Unit) -> list[float]:
    """The values with a line across, from 0 to the first that is no lower than the highest value."""
    gap = _gap(highest, unit)
    return [gap * number for number in range(max(1, ceil(highest / gap - 1e-9)) + 1)]


def _gap(highest: float, unit: Unit) -> float:
    wanted = highest / TICKS_DOWN
    if unit == "seconds":
        fitting = next((one for one in (*LENGTHS, *LONGER) if one >= wanted), None)
        if fitting is not None:
            return fitting
    if wanted <= 1:
        return 1.0
    power = 10.0 ** floor(log10(wanted))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= wanted * (1 - 1e-9))


def _across(steps: int) -> Callable[[float], float]:
    gap = (WIDTH - LEFT - RIGHT) / max(1, steps - 1)
    return lambda step: LEFT + step * gap


def _down(highest: float) -> Callable[[float], float]:
    return lambda value: HEIGHT - BOTTOM - value / highest * (HEIGHT - TOP - BOTTOM)


def _grid(ticks: Sequence[float], down: Callable[[float], float], unit: Unit) -> Iterator[Markup]:
    for tick in ticks:
        yield Markup(
            '<path class="{}" d="M{} {y:.1f}H{}"/><text x="{}" y="{text:.1f}" text-anchor="end">{}</text>'
        ).format(
            "grid" if tick else "axis",
            LEFT,
            WIDTH - RIGHT,
            LEFT - 6,
            _compact(tick) if unit == "count" or not tick else format_figure(tick, unit),
            y=down(tick),
            text=down(tick) + 4,
        )


def _compact(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _dates(chart: Chart, across: Callable[[float], float]) -> Iterator[Markup]:
    if len(chart.at) < 2:  # noqa: PLR2004 - a line has two ends
        return
    span = (chart.at[-1] - chart.at[0]).total_seconds()
    gap = next(
        (one for one in SPANS if span / one <= TICKS_ACROSS),
        SPANS[-1] * ceil(span / SPANS[-1] / TICKS_ACROSS),
    )
    start = chart.at[0].timestamp()
    first = ceil(start / gap) * gap
    for number in range(floor((start + span - first) / gap) + 1):
        at = datetime.fromtimestamp(first + number * gap, UTC)
        x = across((at.timestamp() - start) / chart.step)
        if x > WIDTH - RIGHT - 12:
            continue
        yield Markup(
            '<path class="axis" d="M{x:.1f} {}v4"/><text x="{x:.1f}" y="{}" text-anchor="middle">{}</text>'
        ).format(HEIGHT - BOTTOM, HEIGHT - 6, _date(at, whole=gap >= DAY), x=x)


def _date(at: datetime, *, whole: bool) -> str:
    # Midnight is labelled with the day that begins.
    return f"{at.day} {at:%b}" if whole or not (at.hour or at.minute) else f"{at:%H:%M}"


def _gaps(chart: Chart, across: Callable[[float], float]) -> Iterator[Markup]:
    half = (across(1) - across(0)) / 2
    for first, last in chart.gaps:
        left, right = max(LEFT, across(first) - half), min(WIDTH - RIGHT, across(last) + half)
        yield Markup('<rect class="gap" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
            left, TOP, right - left, HEIGHT - TOP - BOTTOM
        )


def _areas(
    chart: Chart,
    tops: Sequence[Sequence[float | None]],
    across: Callable[[float], float],
    down: Callable[[float], float],
) -> Iterator[Markup]:
    below: Sequence[float | None] = [0.0] * len(chart.at)
    for curve, top in zip(chart.curves, tops, strict=True):
        if any(curve.values):
            for first, last, kind in _parts(chart, 0, len(chart.at) - 1):
                steps = range(first, last + 1)
                forth = [f"{across(step):.1f} {down(top[step] or 0):.1f}" for step in steps]
                back = [f"{across(step):.1f} {down(below[step] or 0):.1f}" for step in reversed(steps)]
                yield Markup('<path class="area{} {}" d="M{}L{}Z"/>').format(
                    kind, curve.colour, "L".join(forth), "L".join(back)
                )
        below = top


def _lines(
    chart: Chart, across: Callable[[float], float], down: Callable[[float], float]
) -> Iterator[Markup]:
    for curve in chart.curves:
        for run in _runs(curve.values):
            value_at = dict(run)
            if len(run) == 1:
                ((step, value),) = run
                yield Markup('<circle class="point {}" cx="{:.1f}" cy="{:.1f}" r="2.5"/>').format(
                    curve.colour, across(step), down(value)
                )
                continue
            for first, last, kind in _parts(chart, run[0][0], run[-1][0]):
                points = [f"{across(step):.1f} {down(value_at[step]):.1f}" for step in range(first, last + 1)]
                yield Markup('<path class="line{} {}" d="M{}"/>').format(kind, curve.colour, "L".join(points))


def _parts(chart: Chart, first: int, last: int) -> list[tuple[int, int, str]]:
    """The steps that are over, and the way to the one that is not: from, to, and how it is drawn."""
    if not chart.unfinished or last < len(chart.at) - 1 or first == last:
        return [(first, last, "")]
    over = [(first, last - 1, "")] if last - 1 > first else []
    return [*over, (last - 1, last, " soon")]


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for step, value in enumerate(values):
        if value is not None:
            runs[-1].append((step, value))
        elif runs[-1]:
            # Where there is no figure, no line is drawn.
            runs.append([])
    return [run for run in runs if run]


def _tips(chart: Chart, across: Callable[[float], float]) -> Iterator[Markup]:
    gap = across(1) - across(0)
    for step, at in enumerate(chart.at):
        figures = "\n".join(
            f"{curve.name}: {format_figure(curve.values[step], chart.unit)}" for curve in chart.curves
        )
        yield Markup(
            '<rect class="tip" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}\n{}</title></rect>'
        ).format(
            max(LEFT, across(step) - gap / 2),
            TOP,
            gap,
            HEIGHT - TOP - BOTTOM,
            instant(at, chart.step),
            figures,
        )


def instant(at: datetime, step: float) -> str:
    """When a step begins, in UTC, as exactly as its length needs."""
    utc = at.astimezone(UTC)
    if step < MINUTE:
        return f"{utc:%Y-%m-%d %H:%M:%S}"
    return f"{utc:%Y-%m-%d}" if timedelta(seconds=step) >= timedelta(days=1) else f"{utc:%Y-%m-%d %H:%M}"
