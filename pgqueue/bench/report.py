"""The rounds, and their report: a table for people, JSON for programs, and both beside an earlier result."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from pgqueue.bench import figures
from pgqueue.bench.figures import FORMAT, BenchReport, Figure, FigureChange, FigureResult, Pair, changes
from pgqueue.bench.loads import BenchLoad
from pgqueue.bench.stage import BenchStage, Sizes
from pgqueue.values.version import __version__


def measured(
    stage: BenchStage,
    chosen: Sequence[BenchLoad],
    sizes: Sizes,
    rounds: int,
    *,
    tell: Callable[[str], object],
    step: Callable[[], object],
    warn: Callable[[list[str]], str | None],
) -> BenchReport:
    """Measure every load, once a round.

    Args:
        stage: with no other bench in its database.
        chosen: the loads.
        sizes: how much is measured.
        rounds: how often.
        tell: is told what is measured now.
        step: is called after each load of a round.
        warn: is told at each round which other programs are at work on the server; what it returns stands in the report.

    Raises:
        BenchFailed: a measurement says nothing.
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    warnings: list[str] = []
    found: list[dict[str, Pair]] = []
    for number in range(rounds):
        if not warnings and (warning := warn(stage.place.others())):
            warnings.append(warning)
        this_round: dict[str, Pair] = {}
        for load in chosen:
            tell(f"round {number + 1} of {rounds}: {load.name}")
            this_round |= load.measure(stage, sizes, this_round)
            step()
        found.append(this_round)
    described = [figure for load in chosen for figure in load.described(sizes)]
    return BenchReport(
        FORMAT,
        date,
        __version__,
        platform.python_version(),
        os.cpu_count() or 1,
        stage.place.settings(),
        asdict(sizes),
        rounds,
        warnings,
        list(_results(described, found)),
    )


def _results(described: Sequence[Figure], found: Sequence[dict[str, Pair]]) -> Iterator[FigureResult]:
    for figure in described:
        pairs = [one[figure.name] for one in found if figure.name in one]
        if pairs:
            yield figures.result(figure, pairs)


WIDTH_OF_PIPES = 200


def show(report: BenchReport, before: BenchReport | None) -> None:
    """Print a report as a table, on stdout."""
    console = _console()
    console.print(_table(report.results, changes(report.results, before.results) if before else None))
    console.print(_footnote(report), style="dim")
    if before and before.sizes != report.sizes:
        console.print("The earlier result is of other sizes, so it can hardly be compared.", style="yellow")


def as_json(report: BenchReport, before: BenchReport | None) -> dict[str, Any]:
    """A report for programs; with an earlier one, each result says how it differs."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    compared = changes(report.results, before.results) if before else {}
    for result in fields["results"] if before else ():
        change = compared[result["name"]]
        result |= {"before": change.before, "change": change.change}
    return fields


def number(value: float | None) -> str:
    """A value with three digits or so."""
    if value is None:
        return ""
    if abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"  # noqa: PLR2004 - two digits


def _table(results: Sequence[FigureResult], compared: Mapping[str, FigureChange] | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("load", no_wrap=True)
    table.add_column("what")
    table.add_column("pgqueue", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("beside it", justify="right")
    table.add_column("ratio", justify="right", style="bold", no_wrap=True)
    for head in ("before", "change") if compared is not None else ():
        table.add_column(head, justify="right", no_wrap=True)
    for one in results:
        beside = f"{one.beside} {number(one.median_other)}" if one.beside else ""
        cells = [one.name, one.what, number(one.median_ours), one.unit, beside, _ratio(one.ratio)]
        if compared is not None:
            cells += _change(compared[one.name], has_ratio=one.ratio is not None)
        table.add_row(*cells)
    return table


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _change(change: FigureChange, *, has_ratio: bool) -> list[str]:
    before = _ratio(change.before) if has_ratio else number(change.before)
    return [before, "" if change.change is None else f"{change.change:+.0%}"]


def _footnote(report: BenchReport) -> str:
    server = ", ".join(f"{name} {value}" for name, value in report.server.items() if name != "server_version")
    return (
        f"pgqueue {report.pgqueue}, Python {report.python}, PostgreSQL {report.server['server_version']}, "
        f"{report.cores} cores; {server}. rounds: {report.rounds}. Shown are medians; a ratio is the median of the rounds' ratios."
    )


def _console() -> Console:
    console = Console(markup=False, emoji=False, highlight=False)
    return console if console.is_terminal else Console(width=WIDTH_OF_PIPES, markup=False, highlight=False)
