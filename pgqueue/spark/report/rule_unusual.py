"""Finds the unusual hours of a task: pure arithmetic on arrays, no Spark.

Hours form a grid of weeks by 168 hours of the week; the last week is compared with the weeks before it.

* The usual value of an hour is the *median* of the same weekday and hour in earlier weeks: one bad week moves it little.
* The allowed distance comes from the task itself. Each earlier hour is compared in the same way with the other earlier
  weeks (leave one out). The spread is the largest of: 1.4826 times the median of those distances (the MAD, which is a
  standard deviation where noise is normal; Rousseeuw & Croux, "Alternatives to the Median Absolute Deviation", JASA 88,
  1993), a quarter of their 99th percentile (so that a task with extreme hours needs a more extreme one), the MAD of that
  hour of the week alone, and the spread of pure chance.
* Distances are measured on a scale on which noise is even: counts as 2√(x + 3/8), shares as
  2·asin√((x + 3/8)/(n + 3/4)) (both Anscombe, "The transformation of Poisson, binomial and negative-binomial data",
  Biometrika 35, 1948), waits as log(1 + seconds).
* An hour is unusual at six spreads or more, and only if the difference matters: see the constants.
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
"""With fewer jobs in an hour, its percentiles and shares are not judged."""

MATTERS_JOBS = 20
MATTERS_SHARE_OF_JOBS = 0.3
MATTERS_WAIT = 5.0
MATTERS_WAIT_RATIO = 2.0
MATTERS_FAILED = 0.05
"""Five percentage points; and at least FEWEST_FAILED attempts."""
FEWEST_FAILED = 5

LEAST_WAIT_SPREAD = 0.1
BY_THE_CLOCK = 0.95
SILENCE_SCORE = 12.0

JOBS, WAIT, FAILED, SILENCE = "jobs", "wait", "failed", "silence"


@dataclass(frozen=True, kw_only=True)
class Hours:
    """The hours of one task: arrays of one length, a value per hour in which a job of it ended.

    Attributes:
        hour: counted from 1970, UTC.
        jobs: jobs that ended.
        attempts: attempts of those jobs.
        failed: failed attempts among those.
        wait: the 90th percentile of the wait, in seconds.
    """

    hour: Integers
    jobs: Floats
    attempts: Floats
    failed: Floats
    wait: Floats


class UnusualHour(NamedTuple):
    """An unusual hour.

    Attributes:
        metric: JOBS, WAIT, FAILED or SILENCE.
        hour: counted from 1970, UTC.
        value: jobs, seconds or a share.
        usual: the median of earlier weeks.
        low: the lowest of earlier weeks.
        high: the highest of earlier weeks.
        score: the distance in spreads; below zero: lower than usual.
        weeks: the number of earlier weeks compared.
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
    """The judged week's counts beside the usual ones; NaN or infinite: not known.

    Attributes:
        jobs: jobs that ended in each hour.
        usual: the median of earlier weeks.
        low: a count below this is unusual.
        high: a count above this is unusual.
    """

    jobs: Floats
    usual: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, kw_only=True)
class Band:
    """The usual values of each hour of the judged week; NaN: not known.

    Attributes:
        usual: the median of earlier weeks, on the scale with even noise.
        spread: the spread, on the same scale.
        score: the judged week's distance from the median, in spreads.
        weeks: the number of earlier weeks.
    """

    usual: Floats
    spread: Floats
    score: Floats
    weeks: Integers


def judge(task: Hours, known: Flags, start: int) -> list[UnusualHour]:
    """The unusual hours of the last week.

    Args:
        task: its hours.
        known: for every hour from ``start`` to the end of the judged week, whether the lake holds its day.
        start: the first hour of the first earlier week, counted from 1970.
    """
    if task.hour.size == 0:
        return []
    grid = _Grid(task, known, start)
    return [*_counts(grid), *_waits(grid), *_failed(grid)]


def band(scaled: Floats, *, floor: float, weight: Floats | None = None, kinds: Flags | None = None) -> Band:
    """The usual values, the spreads, and the scores of the last week.

    Args:
        scaled: weeks by hours of the week, on a scale on which noise is even; NaN: not known.
        floor: the least spread.
        weight: factors that make the noise of distances even; by default 1.
        kinds: groups of similar hours of the week; the hours of a group share one spread.
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
    """Hours as a grid of weeks by hours of the week."""

    def __init__(self, task: Hours, known: Flags, start: int) -> None:
        index = task.hour - start
        self.inside = (index >= 0) & (index < known.size)
        self.index = index[self.inside]
        self.task = task
        self.begin = start + known.size - WEEK
        self.there = known.copy()
        if self.index.size:
            self.there[: int(self.index.min())] = False  # before its first job a task did not exist

    def filled(self, values: Floats, absent: float) -> Floats:
        flat = np.full(self.there.size, absent)
        flat[self.index] = values[self.inside]
        flat[~self.there] = np.nan
        return flat.reshape(-1, WEEK)


def _counts(grid: _Grid) -> list[UnusualHour]:
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


def _waits(grid: _Grid) -> list[UnusualHour]:
    wait = np.where(grid.task.jobs >= FEWEST_JOBS, grid.task.wait, np.nan)
    waits = grid.filled(wait, np.nan)
    usual = _median(waits[:-1])
    found = band(np.log1p(waits), floor=LEAST_WAIT_SPREAD)
    now = waits[-1]
    longer, shorter = np.fmax(now, usual), np.fmin(now, usual)
    matters = (longer - shorter >= MATTERS_WAIT) & (longer >= MATTERS_WAIT_RATIO * shorter)
    return _findings(grid, WAIT, (np.abs(found.score) >= FAR) & matters, waits, found)


def _failed(grid: _Grid) -> list[UnusualHour]:
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

    A task runs by the clock in an hour of the week if it had a job in that hour in every earlier week, and if nearly all
    earlier counts equal the usual one, in this hour and in all hours with as few jobs. Where jobs come at random, counts
    differ, and some hours have none. If a job ended one hour earlier or later, the hour is not silent.
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


def _findings(grid: _Grid, metric: str, which: Flags, raw: Floats, found: Band) -> list[UnusualHour]:
    former, score, weeks = np.ma.masked_invalid(raw[:-1]), found.score, found.weeks
    usual = _median(raw[:-1])
    low, high = former.min(axis=0).filled(np.nan), former.max(axis=0).filled(np.nan)
    return [
        UnusualHour(
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
    """Each value minus the median of the other weeks; NaN where fewer than two others are known."""
    distances = np.full_like(former, np.nan)
    for week in range(len(former) if len(former) >= FEWEST_WEEKS else 0):
        others = np.delete(former, week, axis=0)
        middle = _median(others)
        middle[np.sum(np.isfinite(others), axis=0) < FEWEST_WEEKS - 1] = np.nan
        distances[week] = former[week] - middle
    return distances


def _pooled(distances: Floats) -> float:
    """Return the common spread of hours of one kind; infinite: there are too few hours."""
    known = distances[np.isfinite(distances)]
    if known.size < FEWEST_DISTANCES:
        return np.inf
    return float(max(1.4826 * np.median(known), 1.5 * np.quantile(known, WILD) / FAR))


def _median(values: Floats) -> Floats:
    known = np.ma.masked_invalid(values)
    median: Floats = np.ma.median(known, axis=0).filled(np.nan)  # type: ignore[no-untyped-call]  # NumPy's own
    return median
