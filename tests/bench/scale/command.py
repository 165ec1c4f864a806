"""Measures the pipeline at several sizes, beside plain SQL and DuckDB: `make bench-pipeline`.

:mod:`bench.scale.scale` decides what is measured.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from bench.plots import COLOURS, INK, STYLE, short
from bench.scale.measure import parent
from bench.scale.scale import ScaleResult, ScaleSetup, TimedStep
from bench.scale.scale import scale as measure
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from pgqueue.bench.own_schema import own_schema
from pgqueue.cli.output import bar, json_option, print_json, print_table
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.cli.values import names
from pgqueue.embedded import embedded_server
from pgqueue.errors import ConfigurationError
from pgqueue.spark.demo.days import Wish
from pgqueue.spark.demo.history import last_closed_day
from pgqueue.spark.session import session
from pgqueue.store.connections.database import Database
from pgqueue.store.schema import schema
from pgqueue.values.version import __version__

SCHEMA = "pgqueue_scale"
COMMAND = "make bench-pipeline"
STEPS = 7
PIPELINE = ("generate", "export", "verify", "rollup")
SAME = ("same in Spark", "same in SQL", "same in DuckDB")
BYTES_A_ROW = 600
"""Disk space that a row needs for a time: in the tables, the write-ahead log and the lake."""


class ScaleFigures(msgspec.Struct, frozen=True):
    """The contents of ``figures.json``.

    Attributes:
        date: when the measurement began, in UTC.
        pgqueue: the release.
        spark: Spark's release.
        cores: the machine's cores.
        sizes: the measurements at each size.
    """

    date: str
    pgqueue: str
    spark: str
    cores: int
    sizes: list[ScaleResult]


def sizes(value: str) -> list[int]:
    """Numbers separated by commas."""
    try:
        found = [int(name.replace("_", "")) for name in names(value)]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.BadParameter(f"{value!r}: use numbers with commas between, such as 1000000,10000000.")
    return found


@click.command()
@click.option(
    "--rows",
    type=sizes,
    default="1000000",
    show_default=True,
    help="How many rows each history has, with commas between.",
)
@click.option(
    "--days", type=click.IntRange(min=1), default=30, show_default=True, help="Days of each history."
)
@click.option("--skew", type=float, help="The share of all jobs in one queue, such as 0.9.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Another seed makes other histories.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write plots and figures.json to this folder; the figures of a size as soon as it has ended.",
)
@click.option("--dsn", help="The database; without it an embedded server.")
@json_option
def scale(
    *,
    dsn: str | None,
    rows: Sequence[int],
    days: int,
    skew: float | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure the pipeline at several sizes, and the same roll-up in Spark, in plain SQL and in DuckDB.

    Starts its own server and deletes it at the end; with --dsn, works in the schema pgqueue_scale there, which it makes
    and drops. The exit code is 1 if the engines do not agree.
    """
    today = datetime.now(UTC).date()  # refuse values out of range now; the database decides the day later
    wishes = [Wish(rows=size, days=days, until=today, seed=seed, skew=skew) for size in rows]
    figures = _measured(dsn, wishes, out)
    if out is not None:
        for path in draw(figures.sizes, out):
            click.echo(str(path), err=as_json)
    if as_json:
        print_json(figures)
    else:
        _show(figures.sizes)
    disagreements = [words for size in figures.sizes for words in size.disagreements]
    for words in disagreements:
        click.echo(f"they disagree: {words}", err=True)
    if disagreements:
        click.get_current_context().exit(1)


def _measured(given: str | None, wishes: Sequence[Wish], out: Path | None) -> ScaleFigures:
    """Measure each size in turn; the figures so far are in the folder as soon as a size has ended."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with ExitStack() as opened, end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP):
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="pgqueue-scale-")))
        _require_room(folder, max(wish.rows for wish in wishes))
        dsn = given or opened.enter_context(embedded_server())
        progress = opened.enter_context(bar(STEPS * len(wishes)))
        found: list[ScaleResult] = []
        for wish in wishes:
            place = folder / str(len(found))

            def tell(name: str, rows: int = wish.rows) -> None:
                progress.step(f"{rows:,}: {name}")

            with _database(dsn) as database:
                server = None if given else _server(database)
                ground = ScaleSetup(session(), database, place, server)
                found.append(measure(ground, replace(wish, until=last_closed_day(database)), tell))
            shutil.rmtree(place)
            figures = ScaleFigures(date, __version__, session().version, os.cpu_count() or 1, found)
            if out is not None:
                _keep(figures, out / "figures.json")
        return figures


def _keep(figures: ScaleFigures, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")


@contextmanager
def _database(dsn: str) -> Iterator[Database]:
    """The schema, empty, for one size."""
    database = Database(dsn, schema=SCHEMA)
    with own_schema(database, COMMAND):
        schema.migrate(database.dsn, schema=SCHEMA)
        try:
            yield database
        finally:
            database.close()


def _server(database: Database) -> int | None:
    """The server's main process."""
    with database.connect() as connection:
        return parent(connection.info.backend_pid)


def _require_room(folder: Path, rows: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < rows * BYTES_A_ROW:
        raise ConfigurationError(
            f"{rows:,} rows need about {rows * BYTES_A_ROW / 1e9:.0f} GB for a time, and {folder.parent} has "
            f"{free / 1e9:.0f} GB: ask for fewer, or set TMPDIR"
        )


def _show(found: Sequence[ScaleResult]) -> None:
    rows = [
        (
            f"{size.rows:,}",
            step.name,
            f"{step.seconds:,.2f}",
            f"{size.rows / step.seconds:,.0f}",
            f"{step.megabytes:,}",
        )
        for size in found
        for step in size.steps
    ]
    print_table(("rows", "step", "seconds", "rows/s", "MB"), rows, empty="")
    click.echo()
    for size in found:
        click.echo(
            f"{size.rows:,} rows: {size.lake_files:,} files, {size.lake_bytes / 1e6:,.0f} MB; {size.groups:,} groups and "
            f"{size.percentiles:,} percentiles compared, {size.missed:,} of these beyond the sketches' bound "
            f"({'as expected' if not size.disagreements else 'THEY DISAGREE'})"
        )


def draw(sizes: Sequence[ScaleResult], folder: Path) -> Iterator[Path]:
    """Draw the steps' times by size; yields the files as they are written."""
    yield _drawn(folder / "pipeline.svg", sizes, PIPELINE, "seconds", lambda step: step.seconds)
    yield _drawn(folder / "engines.svg", sizes, SAME, "seconds", lambda step: step.seconds)
    yield _drawn(folder / "memory.svg", sizes, (*PIPELINE[1:2], *SAME), "MB", lambda step: step.megabytes)


def _drawn(
    path: Path,
    sizes: Sequence[ScaleResult],
    names: Sequence[str],
    unit: str,
    of: Callable[[TimedStep], float],
) -> Path:
    with rc_context(STYLE):
        sheet = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = sheet.subplots()
        for colour, name in zip(COLOURS, names, strict=False):
            points = [(size.rows, of(step)) for size in sizes for step in size.steps if step.name == name]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour, label=name)
        _dress(axes, unit)
        sheet.savefig(path, transparent=True, metadata={"Date": None, "Creator": "pgqueue"})
    return path


def _dress(axes: Axes, unit: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("ended jobs")
    axes.set_ylabel(unit)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        side.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, labelcolor=INK)


if __name__ == "__main__":
    scale()
