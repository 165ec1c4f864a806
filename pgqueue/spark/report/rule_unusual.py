"""Finds the unusual hours of a task: arithmetic on arrays, no Spark. What is expected comes from ``rule_expected``.

* Jobs are judged by the hour and by three hours together, which finds less in smaller queues.
* An hour of the judged week is unusual only if its distance is larger than chance allows in the whole report
  (:data:`RATE`), measured in units of how far chance reached in earlier weeks; if no more than one earlier week had an hour
  nearly as far; and if the difference matters.
* Silence is judged apart, as jobs that were missed in hours in a row: neither a wide spread nor a step hides it.
* Waits are compared as log(1 + seconds), shares as 2·asin√((x + 3/8)/(n + 3/4)), on which noise is even (Anscombe, "The
  transformation of Poisson, binomial and negative-binomial data", Biometrika 35, 1948).
"""

from typing import NamedTuple

import numpy as np

from pgqueue.spark.report.rule_expected import (
    FEWEST_WEEKS,
    WEEK,
    Counts,
    Flags,
    Floats,
    Grid,
    Hours,
    by_own_tail,
    expected,
    grids,
    middle,
)

RATE = 0.05
"""The share of quiet reports that may have a finding by chance."""
TESTS = WEEK * 10
"""Tests of a task: jobs and silence, jobs of three hours, waits and failures, each in two directions."""
SPANS = (1, 3)
"""Hours whose jobs are judged together."""
BEYOND = 1.25
"""An unusual hour is this many times as far as the hours of all earlier weeks but one."""
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
LONG_TAIL = 0.8
"""Percentiles and shares have longer tails than normal values: their distances count less."""
BY_THE_CLOCK = 0.95
FARTHEST = 37.0
"""Scores end here: smaller probabilities cannot be told from 0."""

JOBS, WAIT, FAILED, SILENCE = "jobs", "wait", "failed", "silence"


class UnusualHour(NamedTuple):
    """An unusual hour.

    Attributes:
        metric: JOBS, WAIT, FAILED or SILENCE.
        hour: counted from 1970, UTC.
        value: jobs, seconds or a share.
        usual: the expected value.
        score: the distance in standard deviations; below zero: lower than usual.
        weeks: the number of earlier weeks compared.
    """

    metric: str
    hour: int
    value: float
    usual: float
    score: float
    weeks: int


class CountWeek(NamedTuple):
    """The judged week's counts beside the usual ones; NaN or infinite: not known.

    Attributes:
        jobs: jobs that ended in each hour.
        usual: the expected number.
        low: a count below this is unusual.
        high: a count above this is unusual.
    """

    jobs: Floats
    usual: Floats
    low: Floats
    high: Floats


def judge(task: Hours, known: Flags, start: int) -> list[UnusualHour]:
    """The hours of the last week that would be unusual in a report on this task only; see :func:`far_enough`.

    Args:
        task: its hours.
        known: for every hour from ``start`` to the end of the judged week, whether the lake holds its day.
        start: the first hour of the first earlier week, counted from 1970.
    """
    if task.hour.size == 0 or known.size < (FEWEST_WEEKS + 1) * WEEK:
        return []
    first, *others = grids(task, known, start)
    found = _judge(*first)
    for other in others if found else ():
        also = {(one.metric, one.hour, one.score > 0) for one in _judge(*other)}
        found = [one for one in found if (one.metric, one.hour, one.score > 0) in also]
    return found


def _judge(grid: Grid, counts: Counts) -> list[UnusualHour]:
    least = far_enough(1)
    found = {one.hour: one for one in _silence(grid, counts.judged())}
    for span in SPANS:
        summed = counts if span == 1 else Counts(grid, span).judged()
        each = _found(
            grid, JOBS, _unusual(summed, least), summed.jobs / span, summed.mean / span, score=summed.score
        )
        for one in sorted(each, key=lambda one: -abs(one.score)):
            hours = range(one.hour, one.hour + span)
            if not any(hour in found for hour in hours):
                found.update((hour, one._replace(hour=hour)) for hour in hours)
    return [*found.values(), *_waits(grid, least), *_failed(grid, least)]


def _unusual(counts: Counts, least: float) -> Flags:
    off = np.abs(counts.jobs - counts.mean)[-1]
    matters = off >= np.fmax(MATTERS_JOBS, MATTERS_SHARE_OF_JOBS * counts.mean[-1])
    flags: Flags = _far(counts.score, least) & matters
    return flags


def far_enough(tasks: int) -> float:
    """The least score of a finding in a report on ``tasks`` tasks. Chance reaches it in a share RATE of the reports."""
    from scipy.special import ndtri  # noqa: PLC0415 - only a report needs SciPy

    return float(-ndtri(RATE / TESTS / max(1, tasks)))


def count_week(task: Hours, known: Flags, start: int) -> CountWeek:
    """The last week's counts, for a picture."""
    counts = grids(task, known, start)[0][1].judged()
    least, usual, shape = far_enough(1), counts.mean[-1], counts.dispersion
    # On this scale the noise of negative binomial counts is even (Anscombe, Biometrika 35, 1948).
    even, half = np.arcsinh(np.sqrt(shape * usual)), least * counts.tail * np.sqrt(shape) / 2
    low, high = (np.square(np.sinh(np.fmax(0.0, even + way * half))) / shape for way in (-1, 1))
    matters = np.fmax(MATTERS_JOBS, MATTERS_SHARE_OF_JOBS * usual)
    low, high = np.clip(np.fmin(low, usual - matters), 0.0, None), np.fmax(high, usual + matters)
    return CountWeek(counts.jobs[-1], usual, low, high)


def _far(score: Floats, least: float) -> Flags:
    """Which hours of the judged week are farther than ``least``, and than those of all earlier weeks but one."""
    now = np.nan_to_num(score[-1])
    flags = np.zeros(now.size, dtype=np.bool_)
    for way in (1, -1):
        weekly = np.sort(np.max(np.nan_to_num(way * score[:-1]), axis=1))
        flags |= way * now >= max(least, BEYOND * float(weekly[-2:][0]))
    return flags


def _waits(grid: Grid, least: float) -> list[UnusualHour]:
    waits = grid.filled(np.where(grid.task.jobs >= FEWEST_JOBS, grid.task.wait, np.nan), np.nan)
    centre = expected(np.log1p(waits))
    score = _normal(np.log1p(waits) - centre, LEAST_WAIT_SPREAD)
    now, usual = waits[-1], np.expm1(centre)
    longer, shorter = np.fmax(now, usual[-1]), np.fmin(now, usual[-1])
    matters = (longer - shorter >= MATTERS_WAIT) & (longer >= MATTERS_WAIT_RATIO * shorter)
    return _found(grid, WAIT, _far(score, least) & matters, waits, usual, score=score)


def _failed(grid: Grid, least: float) -> list[UnusualHour]:
    attempts = grid.filled(np.where(grid.task.attempts >= FEWEST_JOBS, grid.task.attempts, np.nan), np.nan)
    failed = np.fmin(grid.filled(grid.task.failed, np.nan), attempts)
    # On this scale the noise of shares is even (Anscombe, Biometrika 35, 1948).
    even = 2 * np.arcsin(np.sqrt((failed + 3 / 8) / (attempts + 3 / 4)))
    centre = expected(even)
    score = _normal((even - centre) * np.sqrt(attempts), 1.0)
    shares, usual = failed / attempts, np.square(np.sin(np.clip(centre, 0, np.pi) / 2))
    off = np.abs(shares - usual)[-1]
    matters = (off >= MATTERS_FAILED) & (off * attempts[-1] >= FEWEST_FAILED)
    return _found(grid, FAILED, _far(score, least) & matters, shares, usual, score=score)


def _normal(distance: Floats, least: float) -> Floats:
    """Distances in standard deviations, from half of the earlier ones; an hour of the week may have a wider one."""
    former = np.abs(distance[:-1])
    spread = np.fmax(least, 1.4826 * middle(former, trim=0.49))
    every = former[np.isfinite(former)]
    spread = np.fmax(spread, 1.4826 * float(np.median(every)) if every.size else np.inf)
    return by_own_tail(np.clip(LONG_TAIL * distance / spread, -FARTHEST, FARTHEST))[0]


def _silence(grid: Grid, counts: Counts) -> list[UnusualHour]:
    """Hours in a row without a job, if chance and all earlier weeks but one miss fewer; or of a task that runs by the clock."""
    from scipy.special import ndtri  # noqa: PLC0415 - only a report needs SciPy

    shape = counts.dispersion
    missed = np.where(counts.jobs == 0, np.log1p(shape * counts.mean) / shape, 0.0)
    flat = np.nan_to_num(missed).ravel()
    edges = np.flatnonzero(np.diff(flat > 0)) + 1
    bounds = np.concatenate([[0], edges, [flat.size]])
    sums = np.add.reduceat(flat, bounds[:-1])
    runs = np.repeat(sums, np.diff(bounds)).reshape(missed.shape)
    weekly = np.sort(runs[:-1].max(axis=1))
    far = -ndtri(np.fmax(np.exp(-runs), 1e-300))
    silent = (far[-1] >= far_enough(1)) & (runs[-1] >= BEYOND * weekly[-2:][0]) & (counts.jobs[-1] == 0)
    clock = _by_the_clock(counts.jobs)
    score = np.where(clock, -FARTHEST, -far[-1])
    return _found(
        grid, SILENCE, silent | clock, counts.jobs, counts.mean, score=np.vstack([-far[:-1], score])
    )


def _by_the_clock(jobs: Floats) -> Flags:
    """Hours without a job of a task that runs by the clock.

    A task runs by the clock in an hour of the week if it had a job in that hour in every earlier week, and if nearly all
    earlier counts equal the usual one, in this hour and in all hours with as few jobs. Where jobs come at random, counts
    differ, and some hours have none. If a job ended one hour earlier or later, the hour is not silent.
    """
    former, now, usual = jobs[:-1], jobs[-1], middle(jobs[:-1], trim=0.49)
    weeks = np.sum(np.isfinite(former), axis=0)
    always = (weeks >= FEWEST_WEEKS) & (np.sum(former > 0, axis=0) == weeks)
    around = np.convolve(jobs.ravel(), np.ones(3))[1:-1]
    around[[0, -1]] = np.nan  # the hour after the last is not known yet
    near = around.reshape(jobs.shape)
    fewer = near[-1] < np.min(np.where(np.isfinite(near[:-1]), near[:-1], np.inf), axis=0)
    silent: Flags = always & (now == 0) & fewer
    for at in np.flatnonzero(silent):
        alike = former[:, (usual > 0) & (usual <= usual[at])]
        exact = np.sum(alike == middle(alike, trim=0.49)) / np.sum(np.isfinite(alike))
        silent[at] = exact >= BY_THE_CLOCK
    return silent


def _found(
    grid: Grid, metric: str, which: Flags, values: Floats, usual: Floats, *, score: Floats
) -> list[UnusualHour]:
    weeks = np.sum(np.isfinite(values[:-1]), axis=0)
    return [
        UnusualHour(
            metric=metric,
            hour=grid.begin + int(at),
            value=float(values[-1, at]),
            usual=float(usual[-1, at]),
            score=float(score[-1, at]),
            weeks=int(weeks[at]),
        )
        for at in np.flatnonzero(which)
    ]
