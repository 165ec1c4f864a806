"""When an hour of a task is unusual: pure arithmetic on arrays, no Spark.

Hours lie in a grid of weeks by 168 hours of the week; the last week is judged by those before it.

* What is usual in an hour is the *median* of the same weekday and hour in former weeks: one bad week moves it little.
* How far an hour may be off is learnt from the task itself. Each former hour is judged in the same way, by the other
  former weeks (leave one out). The spread is the largest of: 1.4826 times the median of those distances (the MAD,
  which is a standard deviation where noise is normal; Rousseeuw & Croux, "Alternatives to the Median Absolute
  Deviation", JASA 88, 1993), a quarter of their 99th percentile (so that a task with wild hours has to be wilder
  still), the MAD of that hour of the week alone, and what chance alone does.
* Distances are taken where noise is even: counts as 2√(x + 3/8), shares as 2·asin√((x + 3/8)/(n + 3/4))
  (both Anscombe, "The transformation of Poisson, binomial and negative-binomial data", Biometrika 35, 1948), waits as
  log(1 + seconds).
* An hour is unusual from six spreads on, and only if the difference matters: see the constants.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

WEEK = 168
FEWEST_WEEKS = 3
FAR = 6.0
WILD = 0.99
FEWEST_DISTANCES = 8
FEWEST_JOBS = 10
"""Below so many in an hour, its percentiles and shares are not judged."""

MATTERS_JOBS = 20
MATTERS_SHARE_OF_JOBS = 0.3
MATTERS_WAIT = 5.0
MATTERS_WAIT_RATIO = 2.0
MATTERS_FAILED = 0.05
"""Five percentage points, and as many attempts as FEWEST_FAILED."""
FEWEST_FAILED = 5

LEAST_WAIT_SPREAD = 0.1
BY_THE_CLOCK = 0.95
SILENCE_SCORE = 12.0

JOBS, WAIT, FAILED, SILENCE = "jobs", "wait", "failed", "silence"


@dataclass(frozen=True, kw_only=True)
class Hours:
    """What one task did: arrays of one length, a value per hour in which any job of it ended.

    Attributes:
        hour: counted from 1970, UTC.
        jobs: that ended.
        attempts: of those jobs.
        failed: of those attempts.
        wait: the 90th percentile, in seconds.
    """

    hour: Integers
    jobs: Floats
    attempts: Floats
    failed: Floats
    wait: Floats


class Finding(NamedTuple):
    """An unusual hour.

    Attributes:
        metric: JOBS, WAIT, FAILED or SILENCE.
        hour: counted from 1970, UTC.
        value: jobs, seconds or a share.
        usual: the median of former weeks.
        low: the lowest of former weeks.
        high: the highest of former weeks.
        score: how many spreads it is off; below zero: it is lower than usual.
        weeks: how many former weeks it was compared with.
    """

    metric: str
    hour: int
    value: float
    usual: float
    low: float
    high: float
    score: float
    weeks: int


class CountWeek(NamedTuple):
    """The judged week's counts on what is usual; NaN or infinite: not known.

    Attributes:
        jobs: that ended in each hour.
        usual: the median of former weeks.
        low: below this is unusual.
        high: above this is.
    """

    jobs: Floats
    usual: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, kw_only=True)
class Band:
    """What is usual in each hour of the judged week, in spreads around the median; NaN: nothing is.

    Attributes:
        usual: the median of former weeks, on the even scale.
        spread: on the same scale.
        score: of the judged week.
        weeks: how many former weeks there were.
    """

    usual: Floats
    spread: Floats
    score: Floats
    weeks: Integers


def judge(task: Hours, known: Flags, start: int) -> list[Finding]:
    """The unusual hours of the last week.

    Args:
        task: what it did.
        known: for every hour from ``start`` to the end of the judged week, whether the lake holds its day.
        start: the first hour of the first former week, counted from 1970.
    """
    if task.hour.size == 0:
        return []
    grid = _Grid(task, known, start)
    return [*_counts(grid), *_waits(grid), *_failed(grid)]


def band(scaled: Floats, *, floor: float, weight: Floats | None = None, kinds: Flags | None = None) -> Band:
    """What is usual, how far off is far, and how far off the last week is.

    Args:
        scaled: weeks by hours of the week, on a scale on which noise is even; NaN: not known.
        floor: the least spread.
        weight: what distances are multiplied by to be even; the same for all by default.
        kinds: hours of the week that are alike; hours of one kind learn their spread from each other.
    """
    weight = np.ones_like(scaled) if weight is None else weight
    kinds = np.ones(scaled.shape[1], dtype=np.bool_) if kinds is None else kinds
    former, weeks = scaled[:-1], np.sum(np.isfinite(scaled[:-1]), axis=0)
    usual = _median(former)
    distances = np.abs(_left_out(former) * weight[:-1])
    spread = np.fmax(floor, 1.4826 * _median(distances))
    for kind in (kinds, ~kinds):
        spread[kind] = np.fmax(spread[kind], _pooled(distances[:, kind]))
    score = (scaled[-1] - usual) * weight[-1] / spread
    score[weeks < FEWEST_WEEKS] = np.nan
    return Band(usual=usual, spread=spread, score=score, weeks=weeks)


def count_week(task: Hours, known: Flags, start: int) -> CountWeek:
    """The last week's counts, for a picture."""
    grid = _Grid(task, known, start)
    jobs = grid.filled(task.jobs, 0.0)
    found = band(_even_count(jobs), floor=1.0, kinds=_median(jobs[:-1]) > 0)
    low, high = (
        np.square(np.fmax(0.0, found.usual + way * FAR * found.spread) / 2) - 3 / 8 for way in (-1, 1)
    )
    usual = _median(jobs[:-1])
    matters = np.fmax(MATTERS_JOBS, MATTERS_SHARE_OF_JOBS * usual)
    return CountWeek(
        jobs[-1], usual, np.clip(np.fmin(low, usual - matters), 0.0, None), np.fmax(high, usual + matters)
    )


class _Grid:
    """Hours laid out as weeks by hours of the week."""

    def __init__(self, task: Hours, known: Flags, start: int) -> None:
        index = task.hour - start
        self.inside = (index >= 0) & (index < known.size)
        self.index = index[self.inside]
        self.task = task
        self.begin = start + known.size - WEEK
        self.there = known.copy()
        if self.index.size:
            self.there[: int(self.index.min())] = False  # before its first job a task is new, not silent

    def filled(self, values: Floats, absent: float) -> Floats:
        flat = np.full(self.there.size, absent)
        flat[self.index] = values[self.inside]
        flat[~self.there] = np.nan
        return flat.reshape(-1, WEEK)


def _counts(grid: _Grid) -> list[Finding]:
    jobs = grid.filled(grid.task.jobs, 0.0)
    usual = _median(jobs[:-1])
    found = band(_even_count(jobs), floor=1.0, kinds=usual > 0)
    off = np.abs(jobs[-1] - usual)
    far = (np.abs(found.score) >= FAR) & (off >= np.fmax(MATTERS_JOBS, MATTERS_SHARE_OF_JOBS * usual))
    silent = _silent(jobs) | (far & (jobs[-1] == 0))
    score = np.where(silent, np.fmin(np.nan_to_num(found.score), -SILENCE_SCORE), found.score)
    return [
        *_findings(grid, SILENCE, silent, jobs, replace(found, score=score)),
        *_findings(grid, JOBS, far & ~silent, jobs, found),
    ]


def _waits(grid: _Grid) -> list[Finding]:
    wait = np.where(grid.task.jobs >= FEWEST_JOBS, grid.task.wait, np.nan)
    waits = grid.filled(wait, np.nan)
    usual = _median(waits[:-1])
    found = band(np.log1p(waits), floor=LEAST_WAIT_SPREAD)
    now = waits[-1]
    longer, shorter = np.fmax(now, usual), np.fmin(now, usual)
    matters = (longer - shorter >= MATTERS_WAIT) & (longer >= MATTERS_WAIT_RATIO * shorter)
    return _findings(grid, WAIT, (np.abs(found.score) >= FAR) & matters, waits, found)


def _failed(grid: _Grid) -> list[Finding]:
    attempts = grid.filled(np.where(grid.task.attempts >= FEWEST_JOBS, grid.task.attempts, np.nan), np.nan)
    failed = np.fmin(grid.filled(grid.task.failed, np.nan), attempts)
    even = 2 * np.arcsin(np.sqrt((failed + 3 / 8) / (attempts + 3 / 4)))
    found = band(even, floor=1.0, weight=np.sqrt(attempts))
    shares = failed / attempts
    off = np.abs(shares[-1] - _median(shares[:-1]))
    matters = (off >= MATTERS_FAILED) & (off * attempts[-1] >= FEWEST_FAILED)
    return _findings(grid, FAILED, (np.abs(found.score) >= FAR) & matters, shares, found)


def _silent(jobs: Floats) -> Flags:
    """Hours without a job of a task that runs by the clock.

    It runs by the clock in an hour of the week if it had a job in it in every former week, and if nearly all former
    counts are exactly the usual one, in this hour and in all that have as few jobs: where jobs come by chance, counts
    differ, and an hour without one will come. A job that ended an hour earlier or later is no silence.
    """
    former, now, usual = jobs[:-1], jobs[-1], _median(jobs[:-1])
    weeks = np.sum(np.isfinite(former), axis=0)
    always = (weeks >= FEWEST_WEEKS) & (np.sum(former > 0, axis=0) == weeks)
    around = np.convolve(jobs.ravel(), np.ones(3))[1:-1]
    around[[0, -1]] = np.nan  # the hour after the last is not known yet
    near = around.reshape(jobs.shape)
    fewer = near[-1] < np.ma.masked_invalid(near[:-1]).min(axis=0).filled(-np.inf)
    silent: Flags = always & (now == 0) & fewer
    for at in np.flatnonzero(silent):
        alike = former[:, (usual > 0) & (usual <= usual[at])]
        exact = np.sum(alike == _median(alike)) / np.sum(np.isfinite(alike))
        silent[at] = exact >= BY_THE_CLOCK
    return silent


def _findings(grid: _Grid, metric: str, which: Flags, raw: Floats, found: Band) -> list[Finding]:
    former, score, weeks = np.ma.masked_invalid(raw[:-1]), found.score, found.weeks
    usual = _median(raw[:-1])
    low, high = former.min(axis=0).filled(np.nan), former.max(axis=0).filled(np.nan)
    return [
        Finding(
            metric=metric,
            hour=grid.begin + int(at),
            value=float(raw[-1][at]),
            usual=float(usual[at]),
            low=float(low[at]),
            high=float(high[at]),
            score=float(score[at]),
            weeks=int(weeks[at]),
        )
        for at in np.flatnonzero(which)
    ]


def _even_count(jobs: Floats) -> Floats:
    even: Floats = 2 * np.sqrt(jobs + 3 / 8)
    return even


def _left_out(former: Floats) -> Floats:
    """Each value less the median of the other weeks; NaN where fewer than two others are known."""
    distances = np.full_like(former, np.nan)
    for week in range(len(former) if len(former) >= FEWEST_WEEKS else 0):
        others = np.delete(former, week, axis=0)
        middle = _median(others)
        middle[np.sum(np.isfinite(others), axis=0) < FEWEST_WEEKS - 1] = np.nan
        distances[week] = former[week] - middle
    return distances


def _pooled(distances: Floats) -> float:
    """The spread that hours of one kind have in common; infinite: there are too few to tell."""
    known = distances[np.isfinite(distances)]
    if known.size < FEWEST_DISTANCES:
        return np.inf
    return float(max(1.4826 * np.median(known), 1.5 * np.quantile(known, WILD) / FAR))


def _median(values: Floats) -> Floats:
    """By columns, over what is known; NaN where nothing is."""
    known = np.ma.masked_invalid(values)
    median: Floats = np.ma.median(known, axis=0).filled(np.nan)  # type: ignore[no-untyped-call]  # NumPy's own
    return median
