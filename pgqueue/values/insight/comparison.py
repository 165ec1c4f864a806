"""What changed between two windows of equal length, such as before and after a deploy, task by task. Pure rules.

A median, or another quantile, of a few run times is uncertain, so a difference counts where it is beyond what the numbers of
runs explain: run times are taken as log-normal, whose spread p50 and p95 tell, and a sample quantile has the standard error
``sqrt(p (1 - p) / n) / f`` (Kendall and Stuart, "The Advanced Theory of Statistics", volume 1, section 10.10). Shares of failed
attempts are compared by the two-proportion z-test.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from math import log, sqrt
from typing import Final, Literal, TypeAlias

import msgspec

from pgqueue.values.insight.series import Figures, Spread

Change: TypeAlias = Literal["slower", "faster", "fails more", "fails less", "waits longer", "new", "gone"]
FEW: Final = 20
"""Attempts. What has fewer in one of the windows is not judged."""
SURE: Final = 3.0
"""Standard errors. What differs by less may be chance: with 1,000 tasks that have not changed, one or two differ by more."""
SAME: Final = 1.2
"""A ratio of times up to this is no change: each quantile is told within 5 %, and ten per cent are no trouble."""
FELT: Final = 1.0
"""Seconds. A shorter wait is no delay."""
_TAIL: Final = 1.645  # p95 of a normal distribution is as many standard deviations above p50
_OF_P50: Final = 1.253  # standard errors, in standard deviations by the root of the number of runs
_OF_P95: Final = 2.113
_NARROWEST: Final = 0.1  # the standard deviation of the logarithm: bins are 9 % wide
_BAD: Final = frozenset({"slower", "fails more", "waits longer", "gone"})
_ONE_PERCENT: Final = 0.01


class ComparisonLine(msgspec.Struct, frozen=True):
    """A task, or a queue, in two windows.

    Attributes:
        name: of the task or queue; None: those beyond the bound on pairs of queue and task.
        changes: what changed, beyond chance; empty: nothing, or there are too few attempts to tell.
        few: it has fewer than 20 attempts in one of the windows, and some in both.
        run_ratio: the median run time after, by the one before; None: there is none in one of the windows.
        run_p95_ratio: the same of the time that 95 % of the attempts take at most.
        wait_ratio: the same of the time that 95 % of the jobs wait at most.
        failed_before: which share of the attempts that ended had failed; None: none ended.
        failed_after: the same after.
        before: what happened before.
        after: what happened after.
    """

    name: str | None
    changes: tuple[Change, ...]
    few: bool
    run_ratio: float | None
    run_p95_ratio: float | None
    wait_ratio: float | None
    failed_before: float | None
    failed_after: float | None
    before: Figures
    after: Figures

    @property
    def worse(self) -> bool:
        """Whether it is slower, fails more, waits longer, or runs no more."""
        return not _BAD.isdisjoint(self.changes)


class Comparison(msgspec.Struct, frozen=True):
    """What changed between two windows.

    Attributes:
        before_since: when the window before begins.
        before_until: when it ends.
        after_since: when the window after begins; what is between the two has figures of both.
        after_until: when it ends. Both have the same length.
        lines: one for each task or queue that ran; those that became worse first, the worst of them at the front.
    """

    before_since: datetime
    before_until: datetime
    after_since: datetime
    after_until: datetime
    lines: tuple[ComparisonLine, ...]


def compare_windows(
    before: Mapping[str | None, Figures], after: Mapping[str | None, Figures]
) -> tuple[ComparisonLine, ...]:
    """What changed, by name; those that became worse first.

    Args:
        before: the figures of the window before, by name.
        after: those of the window after.
    """
    names = dict.fromkeys(chain(before, after))
    lines = [_line(name, before.get(name, _NONE), after.get(name, _NONE)) for name in names]
    return tuple(sorted(filter(_ran, lines), key=_worst_first))


def _ran(line: ComparisonLine) -> bool:
    return any(one.started or _count_ended(one) for one in (line.before, line.after))


def _line(name: str | None, before: Figures, after: Figures) -> ComparisonLine:
    few = min(before.started, after.started) < FEW
    return ComparisonLine(
        name=name,
        changes=tuple(_changes(before, after, few=few)),
        few=few and min(before.started, after.started) > 0,
        run_ratio=_ratio(before.run, after.run, "p50"),
        run_p95_ratio=_ratio(before.run, after.run, "p95"),
        wait_ratio=_ratio(before.wait, after.wait, "p95"),
        failed_before=failed_share(before),
        failed_after=failed_share(after),
        before=before,
        after=after,
    )


def _changes(before: Figures, after: Figures, *, few: bool) -> Iterable[Change]:
    if not before.started:
        yield "new"
    elif not after.started and before.started >= FEW:
        yield "gone"
    if few:
        return
    run = max(_shift(before.run, after.run, "p50"), _shift(before.run, after.run, "p95"), key=abs)
    if run:
        yield "slower" if run > 0 else "faster"
    failing = _failed_distance(before, after)
    if failing:
        yield "fails more" if failing > 0 else "fails less"
    if after.wait is not None and after.wait.p95 >= FELT and _shift(before.wait, after.wait, "p95") > 0:
        yield "waits longer"


def _shift(before: Spread | None, after: Spread | None, which: Literal["p50", "p95"]) -> float:
    """By how many standard errors the logarithm of a quantile differs; 0: not beyond chance, or too little to care."""
    ratio = _ratio(before, after, which)
    if before is None or after is None or ratio is None or min(before.count, after.count) < FEW:
        return 0.0
    if 1 / SAME <= ratio <= SAME:
        return 0.0
    spread = max(_NARROWEST, log(before.p95 / before.p50) / _TAIL, log(after.p95 / after.p50) / _TAIL)
    error = (_OF_P50 if which == "p50" else _OF_P95) * spread * sqrt(1 / before.count + 1 / after.count)
    errors = log(ratio) / error
    return errors if abs(errors) > SURE else 0.0


def _failed_distance(before: Figures, after: Figures) -> float:
    """By how many standard errors the share of failed attempts differs; 0: not beyond chance."""
    first, second = _count_ended(before), _count_ended(after)
    if min(first, second) < FEW:
        return 0.0
    both = (before.failed + after.failed) / (first + second)
    error = sqrt(both * (1 - both) * (1 / first + 1 / second))
    if not error:
        return 0.0
    errors = (after.failed / second - before.failed / first) / error
    return errors if abs(errors) > SURE else 0.0


def _count_ended(figures: Figures) -> int:
    return figures.succeeded + figures.failed


def failed_share(figures: Figures) -> float | None:
    """Which share of the attempts that ended has failed; None: none has ended."""
    ended = _count_ended(figures)
    return figures.failed / ended if ended else None


def _ratio(before: Spread | None, after: Spread | None, which: str) -> float | None:
    if before is None or after is None:
        return None
    ratio: float = getattr(after, which) / getattr(before, which)
    return ratio


def _worst_first(line: ComparisonLine) -> tuple[bool, float, int, str]:
    """The key by which lines are sorted: how many times as slow, or as often failed, it is where that is a change."""
    grown = 1.0
    if "slower" in line.changes:
        grown = max(grown, line.run_ratio or 1.0, line.run_p95_ratio or 1.0)
    if "fails more" in line.changes:
        failed = (line.failed_after or 0.0) + _ONE_PERCENT
        grown = max(grown, failed / ((line.failed_before or 0.0) + _ONE_PERCENT))
    attempts = line.before.started + line.after.started
    return not line.worse, -grown, -attempts, line.name or ""


_NONE: Final = Figures()
