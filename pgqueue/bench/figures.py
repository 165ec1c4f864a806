"""What a bench finds: figures, each beside what it is to be compared with. Pure; printing is :mod:`.report`'s.

A figure by itself says as much of the machine as of the queue. Its ratio to what was measured beside it, in the same
round, is what carries over to another moment or another machine.
"""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

FORMAT = 1


class Pair(NamedTuple):
    """One measurement, and the one beside it; None: there was none."""

    ours: float
    beside: float | None = None


class Figure(msgspec.Struct, frozen=True):
    """What is measured.

    Attributes:
        name: short, and kept from release to release.
        what: in words.
        unit: of both values.
        beside: what it is compared with; None: it stands for itself.
    """

    name: str
    what: str
    unit: str
    beside: str | None = None


class FigureResult(msgspec.Struct, frozen=True):
    """A figure with its values, one for each round.

    Attributes:
        name: as in :class:`Figure`, and so are ``what``, ``unit`` and ``beside``.
        ours: what was measured of pgqueue.
        other: what was measured beside it, if anything was.
        median_ours: the median of the one.
        median_other: the median of the other.
        ratio: the median of the rounds' ratios, ours to the other.
    """

    name: str
    what: str
    unit: str
    beside: str | None
    ours: list[float]
    other: list[float]
    median_ours: float
    median_other: float | None
    ratio: float | None

    @property
    def carries_over(self) -> float:
        """What can be compared with another moment: the ratio if there is one."""
        return self.median_ours if self.ratio is None else self.ratio


class BenchReport(msgspec.Struct, frozen=True):
    """What ``pgqueue bench run --json`` prints.

    Attributes:
        format: of this object, counted from 1.
        date: when it was begun, in UTC.
        pgqueue: the release.
        python: the interpreter.
        cores: of this machine.
        server: the server's settings that move the figures.
        sizes: how much was measured.
        rounds: how often.
        warnings: what speaks against the figures.
        results: the figures.
    """

    format: int
    date: str
    pgqueue: str
    python: str
    cores: int
    server: dict[str, str]
    sizes: dict[str, Any]
    rounds: int
    warnings: list[str]
    results: list[FigureResult]


class FigureChange(NamedTuple):
    """A result beside an earlier one.

    Attributes:
        before: the earlier ratio, or the earlier value of a figure without one.
        change: by which share it went up or down, 0.1 for ten percent; None: there is nothing to compare.
    """

    before: float | None
    change: float | None


def result(figure: Figure, pairs: Iterable[Pair]) -> FigureResult:
    """Sum up a figure's rounds."""
    ours, beside = zip(*pairs, strict=True)
    other = [value for value in beside if value is not None]
    ratios = [one / two for one, two in zip(ours, beside, strict=True) if two]
    return FigureResult(
        figure.name,
        figure.what,
        figure.unit,
        figure.beside if other else None,
        list(ours),
        other,
        statistics.median(ours),
        statistics.median(other) if other else None,
        statistics.median(ratios) if ratios else None,
    )


def changes(now: Iterable[FigureResult], before: Iterable[FigureResult]) -> Mapping[str, FigureChange]:
    """How results differ from earlier ones, by name."""
    earlier = {one.name: one for one in before}
    return {one.name: _change(one, earlier.get(one.name)) for one in now}


def _change(now: FigureResult, before: FigureResult | None) -> FigureChange:
    if before is None or (now.ratio is None) != (before.ratio is None):
        return FigureChange(None, None)
    if not before.carries_over:
        return FigureChange(before.carries_over, None)
    return FigureChange(before.carries_over, now.carries_over / before.carries_over - 1)
