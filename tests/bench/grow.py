"""How cost grows with the backlog, the concurrency and the payload: `make bench-grow`.

What is measured, and at which points, is decided here; how it is drawn, in :mod:`bench.plots`.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from bench import plots
from bench.ground import ground
from bench.plots import PlotFigures, PlotPoint

from pgqueue.bench.stage import OURS, BenchStage, rate
from pgqueue.cli.bench import warn_of_others
from pgqueue.cli.output import bar
from pgqueue.values.version import __version__

SMALLEST = 1_000
WAIT = 0.01
WAITS = 100
"""How many times in succession each slot waits, where jobs wait."""
MOST_BYTES = 20_000_000
"""Of payload in all jobs of a point together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where to measure.

    Attributes:
        jobs: how many are drained at each point, at most.
        largest: backlog; the smallest is 1,000, and each is ten times the one before.
        concurrencies: of a worker.
        enqueuers: threads that enqueue, each on a connection.
        payloads: bytes.
    """

    jobs: int = 20_000
    largest: int = 10_000_000
    concurrencies: Sequence[int] = (1, 3, 10, 30, 100, 300, 1_000)
    enqueuers: Sequence[int] = (1, 3, 10, 30)
    payloads: Sequence[int] = (0, 100, 1_000, 10_000, 100_000)

    @property
    def backlogs(self) -> list[int]:
        """The backlogs."""
        found = [SMALLEST]
        while found[-1] * 10 <= self.largest:
            found.append(found[-1] * 10)
        return found

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self.backlogs) + 2 * len(self.concurrencies) + len(self.enqueuers) + len(self.payloads)


FULL = Points()
SMALL = Points(jobs=500, largest=10_000, concurrencies=(1, 100), enqueuers=(1, 4), payloads=(0, 10_000))


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("grown"),
    show_default=True,
    help="The folder to write to.",
)
@click.option("--small", is_flag=True, help="A first look: few points, and small ones.")
@click.option(
    "--largest", type=click.IntRange(min=SMALLEST), help=f"The largest backlog. [default: {FULL.largest:,}]"
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Draw the figures in this file again, and measure nothing.",
)
@click.option("--dsn", help="The database; without it PGQUEUE_DSN, DATABASE_URL or an embedded server.")
def grow(*, dsn: str | None, out: Path, small: bool, largest: int | None, source: Path | None) -> None:
    """Draw how cost grows with backlog, concurrency and payload.

    Writes plots as SVG, and figures.json, from which --from draws them again.
    """
    if source is not None:
        figures = _read(source)
    else:
        points = SMALL if small else FULL
        figures = _measure_points(dsn, replace(points, largest=largest or points.largest))
    out.mkdir(parents=True, exist_ok=True)
    if source is None:
        text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
        (out / "figures.json").write_bytes(text + b"\n")
    for path in plots.draw(figures, out):
        click.echo(str(path))


def _measure_points(dsn: str | None, points: Points) -> PlotFigures:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with ground(dsn) as stage, bar(points.count) as progress:
        warn_of_others(stage.place.others())
        found: list[PlotPoint] = []
        for measured in (_backlogs, _concurrencies, _payloads):
            for step in measured(stage, points):
                found += step
                progress.step(step[0].plot)
        server = stage.place.settings()
    return PlotFigures(plots.FORMAT, date, __version__, os.cpu_count() or 1, server, found)


def _backlogs(stage: BenchStage, points: Points) -> Iterator[list[PlotPoint]]:
    """Drain from the head of a backlog; enqueue at its tail."""
    for size in points.backlogs:
        jobs = min(points.jobs, size)
        stage.begin(OURS)
        if size > jobs:
            stage.fill(OURS, size - jobs)
        enqueued = stage.crew.call(OURS, "bulk", jobs)
        stage.place.settle()
        yield [
            PlotPoint("backlog", "drain", size, _drained(stage, jobs)),
            PlotPoint("backlog", "enqueue_many", size, rate(jobs, enqueued["seconds"])),
        ]


def _concurrencies(stage: BenchStage, points: Points) -> Iterator[list[PlotPoint]]:
    """Jobs that do nothing, and jobs that wait for something; and many who enqueue."""
    for slots in points.concurrencies:
        yield [PlotPoint("concurrency", "drain", slots, _drain(stage, points.jobs, CONC=slots))]
        jobs = min(points.jobs, WAITS * slots)
        waited = _drain(stage, jobs, CONC=slots, WAIT=WAIT)
        yield [PlotPoint("concurrency", f"drain, jobs wait {WAIT * 1e3:.0f} ms", slots, waited)]
    for threads in points.enqueuers:
        stage.begin(OURS)
        told = stage.crew.call(OURS, "enqueue1", max(1, points.jobs // 10), THREADS=threads)
        yield [PlotPoint("concurrency", "enqueue, in threads", threads, rate(told["n"], told["seconds"]))]


def _payloads(stage: BenchStage, points: Points) -> Iterator[list[PlotPoint]]:
    """Jobs with a payload that does not compress; fewer where it is large."""
    for size in points.payloads:
        jobs = min(points.jobs, MOST_BYTES // max(size, 1))
        stage.begin(OURS)
        enqueued = stage.crew.call(OURS, "bulk", jobs, PAD=size)
        stage.place.settle()
        yield [
            PlotPoint("payload", "drain", size, _drained(stage, jobs)),
            PlotPoint("payload", "enqueue_many", size, rate(jobs, enqueued["seconds"])),
        ]


def _drain(stage: BenchStage, jobs: int, **settings: object) -> float:
    stage.begin(OURS)
    stage.fill(OURS, jobs)
    stage.place.settle()
    return _drained(stage, jobs, **settings)


def _drained(stage: BenchStage, jobs: int, **settings: object) -> float:
    """The rate at which the first ``jobs`` jobs are started."""
    worker = stage.crew.start(OURS, "worker", **({"STOP_AFTER": jobs, "CONC": stage.concurrency} | settings))
    told = worker.result()
    return rate(told["count"], told["last"] - told["first"])


def _read(source: Path) -> PlotFigures:
    try:
        return msgspec.json.decode(source.read_bytes(), type=PlotFigures)
    except msgspec.MsgspecError as error:
        raise click.BadParameter(
            f"{str(source)!r} holds no figures of bench/grow.py: {error}.", param_hint="--from"
        ) from None


if __name__ == "__main__":
    grow()
