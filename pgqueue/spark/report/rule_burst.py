"""Finds storms of a task's retries: pure arithmetic on arrays, no Spark.

The usual number of retries is a rate per job, over all hours of the task except the tenth with the highest rates (a
trimmed ratio, so that storms do not raise it). An hour is stormy if its retries are

* at least 20,
* at least 5 times the expected number (the rate times the hour's jobs), and
* at least 6 standard deviations above the expected number. The variance is that of counts, times the dispersion of the
  task's normal hours (Pearson's chi-squared divided by its degrees of freedom; McCullagh & Nelder, "Generalized Linear
  Models", 2nd ed., 1989, on over-dispersion).
"""

from typing import NamedTuple

import numpy as np

from pgqueue.spark.report.rule_expected import Flags, Floats, Integers

FEWEST_RETRIES = 20
MANY = 5.0
FAR = 6.0
TRIMMED = 0.1
FEWEST_HOURS = 48
BREAK = 1
"""A storm may contain this many normal hours in a row."""


class Usual(NamedTuple):
    """The usual retries of a task.

    Attributes:
        rate: retries per job.
        dispersion: variance divided by mean of the normal hours' retries; chance alone gives 1.
    """

    rate: float
    dispersion: float


class Storm(NamedTuple):
    """Hours in a row in which a task's retries were many times the usual.

    Attributes:
        first: hour, counted from 1970.
        last: hour.
        hours: the stormy hours among them.
        jobs: jobs that ended in the stormy hours.
        retries: retries of those jobs.
        expected: the usual number of retries.
    """

    first: int
    last: int
    hours: tuple[int, ...]
    jobs: int
    retries: int
    expected: float


def usual(jobs: Floats, retries: Floats) -> Usual | None:
    """The usual retries, from the hours in which jobs ended; None: too few hours."""
    if jobs.size < FEWEST_HOURS:
        return None
    rates = retries / jobs
    ordinary = rates <= np.quantile(rates, 1 - TRIMMED)
    kept_jobs, kept = jobs[ordinary], retries[ordinary]
    rate = float(kept.sum() / kept_jobs.sum())
    expected = np.fmax(rate * kept_jobs, 1e-9)
    chi_squared = float(np.sum(np.square(kept - expected) / np.fmax(expected, 0.1)))
    return Usual(rate, max(1.0, chi_squared / max(1, kept.size - 1)))


def stormy(jobs: Floats, retries: Floats, by: Usual) -> Flags:
    """Which hours are stormy."""
    expected = by.rate * jobs
    far = retries - expected >= FAR * np.sqrt(by.dispersion * np.fmax(expected, 1.0))
    flags: Flags = (retries >= FEWEST_RETRIES) & (retries >= MANY * np.fmax(expected, 1.0)) & far
    return flags


def storms(hour: Integers, jobs: Floats, retries: Floats, *, begin: int) -> list[Storm]:
    """The storms of one task since an hour.

    Args:
        hour: hours in which jobs ended, counted from 1970.
        jobs: jobs that ended in each.
        retries: retries of those jobs.
        begin: the first hour to judge; the usual rate comes from all hours.
    """
    by = usual(jobs, retries)
    if by is None:
        return []
    at = np.flatnonzero(stormy(jobs, retries, by) & (hour >= begin))
    at = at[np.argsort(hour[at])]
    groups = np.split(at, np.flatnonzero(np.diff(hour[at]) > BREAK + 1) + 1) if at.size else []
    return [_storm(hour[group], jobs[group], retries[group], by) for group in groups]


def _storm(hour: Integers, jobs: Floats, retries: Floats, by: Usual) -> Storm:
    hours = [int(one) for one in hour]
    total = float(jobs.sum())
    return Storm(hours[0], hours[-1], tuple(hours), int(total), int(retries.sum()), by.rate * total)
