"""The rounds: every load, one round after the other, each beside what it is compared with."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Protocol

from pgqueue.bench import figures
from pgqueue.bench.figures import FORMAT, BenchReport, Figure, FigureResult, Pair
from pgqueue.bench.loads import BenchLoad
from pgqueue.bench.stage import BenchStage, Sizes
from pgqueue.values.version import __version__


class Progress(Protocol):
    """Is told how far the rounds are."""

    def tell(self, words: str) -> None:
        """Show what is measured now."""

    def step(self) -> None:
        """Count a finished step."""


def measured(
    stage: BenchStage,
    chosen: Sequence[BenchLoad],
    sizes: Sizes,
    rounds: int,
    *,
    progress: Progress,
    warn: Callable[[list[str]], str | None],
) -> BenchReport:
    """Measure every load, once a round.

    Args:
        stage: with no other bench in its database.
        chosen: the loads.
        sizes: how much is measured.
        rounds: how often.
        progress: is told what is measured, and of each step: a load of a round.
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
            progress.tell(f"round {number + 1} of {rounds}: {load.name}")
            this_round |= load.measure(stage, sizes, this_round)
            progress.step()
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
