"""The plots of :mod:`bench.grow`: SVG that reads on white and on dark, the same bytes for the same figures."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

FORMAT = 1
INK = "#7d8590"
COLOURS = ("#2f81f7", "#db6d28", "#3fb950", "#a371f7")
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pgqueue",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}
"""Greys and colours of middling lightness, on nothing: legible on either ground."""


class PlotPoint(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        plot: which it belongs to.
        curve: which curve of it.
        x: the backlog, the concurrency or the payload.
        y: jobs a second.
    """

    plot: str
    curve: str
    x: int
    y: float


class PlotFigures(msgspec.Struct, frozen=True):
    """What ``figures.json`` holds.

    Attributes:
        format: of the file, counted from 1.
        date: when it was begun, in UTC.
        pgqueue: the release.
        cores: of the machine.
        server: the server's settings that move the figures.
        points: in the order in which they were measured.
    """

    format: int
    date: str
    pgqueue: str
    cores: int
    server: dict[str, str]
    points: list[PlotPoint]


class Scales(NamedTuple):
    """How a plot's axes are labelled and scaled.

    Attributes:
        x: words for the horizontal one.
        x_scale: ``symlog`` begins at zero, and is logarithmic from 100 on.
        y_scale: linear where a curve should be flat, logarithmic where it should rise or fall in proportion.
    """

    x: str
    x_scale: str
    y_scale: str


PLOTS = {
    "backlog": Scales("jobs waiting", "log", "linear"),
    "concurrency": Scales("jobs at a time in one worker, or threads that enqueue", "log", "log"),
    "payload": Scales("payload of each job, bytes", "symlog", "log"),
}


def draw(figures: PlotFigures, folder: Path) -> Iterator[Path]:
    """Draw every plot there are figures for; yields the files as they are written."""
    for name, scales in PLOTS.items():
        points = [point for point in figures.points if point.plot == name]
        if not points:
            continue
        path = folder / f"{name}.svg"
        with rc_context(STYLE):
            sheet = Figure(figsize=(6.4, 3.6), layout="constrained")
            _draw(sheet.subplots(), scales, points)
            sheet.savefig(path, transparent=True, metadata={"Date": None, "Creator": "pgqueue"})
        yield path


def _draw(axes: Axes, scales: Scales, points: Sequence[PlotPoint]) -> None:
    for colour, (curve, line) in zip(COLOURS, _curves(points), strict=False):
        xs, ys = [point.x for point in line], [point.y for point in line]
        axes.plot(xs, ys, marker="o", color=colour, label=curve)
    axes.set_xscale(
        scales.x_scale, **({"linthresh": 100, "linscale": 0.5} if scales.x_scale == "symlog" else {})
    )
    axes.set_yscale(scales.y_scale)
    axes.set_xlabel(scales.x)
    axes.set_ylabel("jobs/s")
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        side.set_minor_formatter(NullFormatter())
    axes.set_ylim(*_limits(scales.y_scale, [point.y for point in points]))
    axes.legend(frameon=False, labelcolor=INK)


def _limits(scale: str, values: Sequence[float]) -> tuple[float, float]:
    """From zero, or whole decades: slopes are what they seem."""
    if scale == "linear":
        return 0.0, max(values) * 1.25
    high = 1.0
    while high < max(values):
        high *= 10
    low = high
    while low > min(values):
        low /= 10
    return low, high


def _curves(points: Iterable[PlotPoint]) -> list[tuple[str, list[PlotPoint]]]:
    """The points of each curve, in order."""
    names = list(dict.fromkeys(point.curve for point in points))
    ordered = sorted(points, key=lambda point: (names.index(point.curve), point.x))
    return [(name, list(line)) for name, line in groupby(ordered, key=lambda point: point.curve)]


def short(value: float) -> str:
    """A number as an axis shows it: 20,000 is 20k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
