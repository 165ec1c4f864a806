"""What is expected of each hour of a task: a season by weekday and hour, and a level of each week. No Spark.

Hours form a grid of weeks by 168 hours of the week; the last week is the judged one.

* Effects multiply: an hour's expected value is the middle of the same weekday and hour in earlier weeks, each divided by
  its week's level, times the judged week's level. So growth and steps of the load change what is expected, and hide
  nothing. The judged week's level is that of most of its days, near the levels of the last weeks or what their growth
  suggests.
* Each earlier week is predicted from the others in the same way, which shows how far chance reaches for this task.
* Counts are negative binomial: their variance beside that of Poisson counts is estimated from earlier weeks, and SciPy has
  their tails.
* A task may follow the clocks of :data:`ZONES`. Where these changed within the weeks, an hour is compared with hours of
  the same time on the clocks that fit best.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

WEEK = 168
FEWEST_WEEKS = 3
RECENT_WEEKS = 4
SLACK = 0.25
"""How far a week's level may be from the trend of earlier levels, as a logarithm, at least."""
LEAST_DISPERSION = 1e-4
MEDIAN_OF_SQUARES = 0.4549
"""Half of the squares of a normal value of variance 1 are below it."""
UNSURE = 1.2
"""The variance of the middle mean of weeks, as a multiple of the mean's."""
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Sydney")
"""One zone of each rule by which clocks change. Only the instants of changes count: a fixed distance from UTC does not."""
BETTER_FIT = 0.97


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


class Grid:
    """Hours as a grid of weeks by hours of the week, of the same time on a zone's clocks."""

    def __init__(self, task: Hours, known: Flags, start: int, zone: str | None = None) -> None:
        index = task.hour - start
        self.inside = (index >= 0) & (index < known.size)
        self.index, self.task, self.size = index[self.inside], task, known.size
        self.begin = start + known.size - WEEK
        self.there = known.copy()
        if self.index.size:
            self.there[: int(self.index.min())] = False  # before its first job a task did not exist
        self.at = _places(start, known.size, zone)

    def filled(self, values: Floats, absent: float, span: int = 1) -> Floats:
        """The values of hours, each summed with those of the next hours of its span; NaN: not known."""
        flat = np.full(self.size, absent)
        flat[self.index] = values[self.inside]
        flat[~self.there] = np.nan
        summed = flat.copy()
        for later in range(1, span):
            summed[:-later] += flat[later:]
            summed[-later:] = np.nan
        placed: Floats = np.append(summed, np.nan)[self.at]
        return placed


@lru_cache(maxsize=16)
def _places(start: int, size: int, zone: str | None) -> Integers:
    """The index of each hour of the grid; ``size`` where there is none."""
    ago = np.arange(size // WEEK - 1, -1, -1)[:, None] * WEEK
    index = np.arange(size - WEEK, size) - ago
    shift = _offsets(start, size, zone)
    moved = index + shift[-WEEK:] - shift[index]
    return np.where((moved >= 0) & (moved < size), moved, size)


@lru_cache(maxsize=16)
def _offsets(start: int, size: int, zone: str | None) -> Integers:
    """The distance of a zone's clocks from UTC in each hour, in hours."""
    if zone is None:
        return np.zeros(size, dtype=np.int64)
    clock = ZoneInfo(zone)
    instants = (
        datetime.fromtimestamp(hour * 3_600, UTC).astimezone(clock) for hour in range(start, start + size)
    )
    return np.array([one.utcoffset().total_seconds() // 3_600 for one in instants], dtype=np.int64)  # type: ignore[union-attr]


class Counts:
    """Counts, their expected values and scores; of each hour, or of a span of hours together."""

    def __init__(self, grid: Grid, span: int = 1) -> None:
        self.jobs = grid.filled(grid.task.jobs, 0.0, span)
        factor = np.exp(_count_levels(self.jobs))
        self.mean = np.maximum(_seasons(self.jobs[:-1] / factor[:-1], factor[:-1]) * factor, 1e-3)

    def judged(self) -> "Counts":
        """With the scores, which a choice between grids does not need."""
        # The mean of few jobs in earlier weeks is not well known.
        unsure = UNSURE / (1 + np.nansum(self.jobs[:-1], axis=0))
        self.dispersion = unsure + _dispersion(self.jobs[:-1], self.mean[:-1], unsure)
        self.score, self.tail = by_own_tail(_count_score(self.jobs, self.mean, self.dispersion))
        return self

    @property
    def misfit(self) -> float:
        """How far counts are from what is expected, on average, on a scale of factors."""
        off = np.abs(np.log((self.jobs + 3 / 8) / (self.mean + 3 / 8)))
        return float(np.mean(np.fmin(off, 1.0), where=np.isfinite(off))) if np.any(np.isfinite(off)) else 0.0


def grids(task: Hours, known: Flags, start: int) -> list[tuple[Grid, Counts]]:
    """The grids of the clocks that the task may follow, the best first; nearly always one."""
    zones = [None, *(zone for zone in ZONES if np.ptp(_offsets(start, known.size, zone)))]
    every = [Grid(task, known, start, zone) for zone in zones]
    fitted = sorted(((grid, Counts(grid)) for grid in every), key=lambda one: one[1].misfit)
    return [one for one in fitted if BETTER_FIT * one[1].misfit <= fitted[0][1].misfit]


def _count_levels(jobs: Floats) -> Floats:
    """The logarithm of each week's level: that of most of its days."""
    known, level = np.isfinite(jobs), np.zeros((len(jobs), 1))
    for _ in range(2):
        factor = np.exp(level[:-1])
        season = middle(jobs[:-1] / factor, factor)
        both = known & np.isfinite(season)
        came, due = (
            _days(np.where(both, values, 0.0)) for values in (jobs, np.broadcast_to(season, jobs.shape))
        )
        ratio = np.where(_days(both) > 0, np.log((came + 0.5) / (due + 0.5)), np.nan)
        level = _held(middle(ratio.T, trim=0.49)[:, None])
    return level


def _days(values: npt.NDArray[np.generic]) -> Floats:
    days: Floats = values.reshape(len(values), -1, 24).sum(axis=2)
    return days


def expected(scaled: Floats) -> Floats:
    """The expected value of every hour on a scale on which effects add: a season, and a level of each week."""
    season = middle(scaled[:-1])
    for _ in range(2):
        level = _held(middle((scaled - season).T, trim=0.49)[:, None])
        season = middle(scaled[:-1] - level[:-1])
    return _seasons(scaled[:-1] - level[:-1]) + level


def _seasons(former: Floats, weight: Floats | None = None) -> Floats:
    """What is expected in each hour of the week: for each earlier week by the others, then for the judged week."""
    weeks = len(former)
    other = [[other for other in range(weeks) if other != week] for week in range(weeks)]
    heavy = None if weight is None else weight[other]
    return np.vstack(
        [middle(former[other], heavy, fewest=FEWEST_WEEKS - 1), middle(former, weight, fewest=FEWEST_WEEKS)]
    )


def _held(level: Floats) -> Floats:
    """The levels, the judged week's near those of the last weeks or what their growth suggests; 0: not known."""
    earlier = level[:-1][np.isfinite(level[:-1])]
    changes = np.diff(earlier)
    if changes.size:
        usual = float(np.median(changes))
        slack = max(SLACK, 4 * float(np.median(np.abs(changes - usual))))
        near = [*earlier[-RECENT_WEEKS:], earlier[-1] + usual]
        level[-1] = np.clip(level[-1], min(near) - slack, max(near) + slack)
    return np.nan_to_num(level)


def middle(values: Floats, weight: Floats | None = None, *, trim: float = 0.25, fewest: int = 1) -> Floats:
    """The weighted mean of each column's middle values, less a share at each end; NaN: fewer than ``fewest`` are known."""
    if weight is None:
        ordered = np.sort(values, axis=-2)
        heavy = np.ones_like(ordered)
    else:
        order = np.argsort(values, axis=-2)
        ordered, heavy = (
            np.take_along_axis(each, order, axis=-2)
            for each in (values, np.broadcast_to(weight, values.shape))
        )
    known = np.isfinite(ordered).sum(axis=-2, keepdims=True)
    off = np.fmin(np.floor(known * trim + 0.5), (known - 1) // 2)
    place = np.arange(ordered.shape[-2])[:, None]
    kept = (place >= off) & (place < known - off)
    total, count = np.where(kept, ordered * heavy, 0.0).sum(axis=-2), np.where(kept, heavy, 0.0).sum(axis=-2)
    return np.where(known.squeeze(-2) >= max(1, fewest), total / np.where(count > 0, count, 1.0), np.nan)


def _dispersion(jobs: Floats, mean: Floats, unsure: Floats) -> float:
    """The variance beside that of Poisson counts, as a share of the squared mean: half of the hours are nearer."""
    asked = np.isfinite(jobs) & (mean >= 1)
    square = np.square(jobs - mean) / MEDIAN_OF_SQUARES
    return max(
        LEAST_DISPERSION,
        float(np.median(((square - mean) / mean**2 - unsure)[asked])) if np.any(asked) else 0.0,
    )


def _count_score(jobs: Floats, mean: Floats, dispersion: Floats) -> Floats:
    """Counts as normal scores of their negative binomial distribution."""
    from scipy.special import betainc, ndtri  # noqa: PLC0415 - only a report needs SciPy

    size, share = 1 / dispersion, dispersion * mean / (1 + dispersion * mean)
    more = jobs >= mean
    tail = np.where(
        more,
        betainc(np.where(more, np.maximum(jobs, 1e-9), 1.0), size, share),
        betainc(size, np.where(more, 1.0, jobs + 1), 1 - share),
    )
    score = np.maximum(0.0, -ndtri(np.maximum(tail, 1e-300)))
    signed: Floats = np.where(more, score, -score)
    return signed


def by_own_tail(score: Floats) -> tuple[Floats, float]:
    """Scores in units in which earlier weeks' reach no further than normal ones: one in a hundred beyond 2.58."""
    ordered = np.sort(np.abs(score[:-1]), axis=1)
    known = np.isfinite(ordered).sum(axis=1)
    wild = ordered[np.arange(len(ordered)), np.fmax(0, np.ceil(0.99 * known).astype(int) - 1)][known > 0]
    tail = max(1.0, float(np.median(wild)) / 2.576) if wild.size else 1.0
    return score / tail, tail
