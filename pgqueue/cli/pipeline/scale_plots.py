"""The plots of ``pgqueue pipeline scale``: SVG in the bench's style. matplotlib is imported when a plot is drawn."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgqueue.cli.bench.plots import COLOURS, INK, STYLE, short
from pgqueue.spark.scale.scale import Scaled, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIPELINE = ("generate", "export", "verify", "rollup")
SAME = ("same in Spark", "same in SQL", "same in DuckDB")


def draw(sizes: Sequence[Scaled], folder: Path) -> Iterator[Path]:
    """Draw the steps' times by size; yields the files as they are written."""
    yield _drawn(folder / "pipeline.svg", sizes, PIPELINE, "seconds", lambda step: step.seconds)
    yield _drawn(folder / "engines.svg", sizes, SAME, "seconds", lambda step: step.seconds)
    yield _drawn(folder / "memory.svg", sizes, (*PIPELINE[1:2], *SAME), "MB", lambda step: step.megabytes)


def _drawn(
    path: Path, sizes: Sequence[Scaled], names: Sequence[str], unit: str, of: Callable[[Step], float]
) -> Path:
    from matplotlib import rc_context  # noqa: PLC0415 - heavy
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy

    with rc_context(STYLE):
        sheet = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = sheet.subplots()
        for colour, name in zip(COLOURS, names, strict=False):
            points = [(size.rows, of(step)) for size in sizes for step in size.steps if step.name == name]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour, label=name)
        _dress(axes, unit)
        sheet.savefig(path, transparent=True, metadata={"Date": None, "Creator": "pgqueue pipeline scale"})
    return path


def _dress(axes: "Axes", unit: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 - heavy

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("ended jobs")
    axes.set_ylabel(unit)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        side.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, labelcolor=INK)
