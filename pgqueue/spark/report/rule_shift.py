"""Decides whether a task became slower or faster after a deploy: pure arithmetic on samples, no Spark.

Each side is given as the quantiles of its merged sketches. Medians of skewed run times vary much, so a ratio alone is not
enough; a shift must pass four tests:

* *It matters*: the ratio of the medians (or of the 90th percentiles), and a millisecond at least.
* *It is large among all runs*: the share of pairs (a run before, a run after) in which the later one took longer, ties
  by half, is at least 0.64 (or at most 0.36). That is Vargha & Delaney's A, and 0.64 what they call a medium effect
  ("A Critique and Improvement of the CL Common Language Effect Size Statistics", J. Educ. Behav. Stat. 25, 2000). A
  slower tail leaves A near one half; it is judged by the share of later runs above the earlier 90th percentile, which is
  0.1 if nothing changed.
* *It is more than chance*: five standard errors of that statistic (Mann & Whitney, Ann. Math. Stat. 18, 1947; for a
  share, of a binomial one), after subtracting the sketches' possible error.
* *It lasted*: three in four hours after the deploy were slower than the median hour before, so that one bad evening is
  not taken for the deploy's effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FEWEST_RUNS = 100
FEWEST_HOURS = 6
LEAST_RATIO = 1.2
LEAST_TAIL_RATIO = 1.3
LEAST_SECONDS = 0.001
LARGE = 0.64
LARGE_TAIL = 0.2
SMALL_TAIL = 0.05
SURE = 5.0
LASTING = 0.75
SKETCH_ERROR = 0.0165
"""Of a rank in a KLL sketch with k = 200, both sides together, in 99 of 100 cases (Apache DataSketches, "KLL Sketch
Accuracy and Size")."""

RANKS = tuple((index + 0.5) / 100 for index in range(100))
"""The ranks of a sample's quantiles."""

DAY = 24
WINDOW_DAYS = 7


class DeployWindow(NamedTuple):
    """Hours around a deploy; both spans have the same length, and the deploy's own hour is in neither.

    Attributes:
        deploy: the deploy's number.
        hour: the deploy's hour, counted from 1970.
        versions: the versions that went live in that hour.
        hours: the length of each span.
        others: how many other deploys are in the two spans.
    """

    deploy: int
    hour: int
    versions: str
    hours: int
    others: int


@dataclass(frozen=True, kw_only=True)
class RunTimeSample:
    """Run times on one side of a deploy.

    Attributes:
        runs: the number of runs.
        mean: in seconds.
        quantiles: at RANKS, ascending, in seconds.
        p50: in seconds.
        p90: in seconds.
        medians: the median of each hour, in seconds.
        tails: the 90th percentile of each hour, in seconds.
    """

    runs: int
    mean: float
    quantiles: Sequence[float]
    p50: float
    p90: float
    medians: Sequence[float]
    tails: Sequence[float]


class Shift(NamedTuple):
    """A change that passed the tests.

    Attributes:
        slower: True: slower; False: faster.
        typical: True: the median changed; False: only the slow runs changed.
        ratio: the later median divided by the earlier one, or the same of the 90th percentiles.
        effect: the share of pairs in which the later run took longer.
    """

    slower: bool
    typical: bool
    ratio: float
    effect: float


def windows(deploys: Sequence[tuple[int, str]], *, first: int, end: int) -> tuple[list[DeployWindow], int]:
    """The hours to compare for each deploy, and the number of deploys that are too new or too old to compare.

    A span reaches from a deploy to the neighbouring deploys, in whole days, so that both spans have the same hours of the
    day. It is at least a day, even if other deploys fall in it, and at most a week.

    Args:
        deploys: hour and version of each.
        first: the first hour that the lake has.
        end: the hour after the last.
    """
    versions: dict[int, list[str]] = {}
    for hour, version in sorted(deploys):
        versions.setdefault(hour, []).append(version)
    at = sorted(versions)
    found, left = [], 0
    for index, hour in enumerate(at):
        if hour - DAY < first or hour + 1 + DAY > end:
            left += 1
            continue
        before = hour - max([first, *(at[index - 1 : index] if index else [])])
        after = min([end, *at[index + 1 : index + 2]]) - hour - 1
        hours = min(max(min(before, after) // DAY, 1), WINDOW_DAYS) * DAY
        others = sum(1 for other in at if other != hour and hour - hours <= other <= hour + hours)
        found.append(DeployWindow(index, hour, ", ".join(versions[hour]), hours, others))
    return found, left


def effect(before: Sequence[float], after: Sequence[float]) -> float:
    """The share of pairs in which the later run is longer; ties count half (Vargha & Delaney's A)."""
    former, later = np.sort(np.asarray(before)), np.asarray(after)
    below = np.searchsorted(former, later, side="left")
    up_to = np.searchsorted(former, later, side="right")
    return float(np.mean((below + up_to) / 2) / former.size)


def judge(before: RunTimeSample, after: RunTimeSample) -> Shift | None:
    """The change of a task's run time, if there is one."""
    if min(before.runs, after.runs) < FEWEST_RUNS:
        return None
    if min(len(before.medians), len(after.medians)) < FEWEST_HOURS:
        return None
    return _typical(before, after) or _tail(before, after)


def _typical(before: RunTimeSample, after: RunTimeSample) -> Shift | None:
    found = effect(before.quantiles, after.quantiles)
    ratio = after.p50 / max(before.p50, LEAST_SECONDS / 10)
    error = np.sqrt((before.runs + after.runs + 1) / (12 * before.runs * after.runs))
    sure = abs(found - 0.5) - SKETCH_ERROR >= SURE * error
    slower = found > 0.5  # noqa: PLR2004 - half
    large = found >= LARGE if slower else found <= 1 - LARGE
    if not (sure and large and _matters(before.p50, after.p50, LEAST_RATIO, slower=slower)):
        return None
    if not _lasted(before.medians, after.medians, slower=slower):
        return None
    return Shift(slower=slower, typical=True, ratio=ratio, effect=found)


def _tail(before: RunTimeSample, after: RunTimeSample) -> Shift | None:
    share = float(np.mean(np.asarray(after.quantiles) > before.p90))
    error = np.sqrt(0.1 * 0.9 * (1 / before.runs + 1 / after.runs))
    sure = abs(share - 0.1) - SKETCH_ERROR >= SURE * error
    slower = share > 0.1  # noqa: PLR2004 - the share if nothing changed
    large = share >= LARGE_TAIL if slower else share <= SMALL_TAIL
    if not (sure and large and _matters(before.p90, after.p90, LEAST_TAIL_RATIO, slower=slower)):
        return None
    if not _lasted(before.tails, after.tails, slower=slower):
        return None
    ratio = after.p90 / max(before.p90, LEAST_SECONDS / 10)
    found = effect(before.quantiles, after.quantiles)
    return Shift(slower=slower, typical=False, ratio=ratio, effect=found)


def _matters(before: float, after: float, ratio: float, *, slower: bool) -> bool:
    low, high = (before, after) if slower else (after, before)
    return high >= ratio * low and high - low >= LEAST_SECONDS


def _lasted(before: Sequence[float], after: Sequence[float], *, slower: bool) -> bool:
    middle = float(np.median(np.asarray(before)))
    beyond = np.asarray(after) > middle if slower else np.asarray(after) < middle
    return float(np.mean(beyond)) >= LASTING
