"""Fits growth with a weekday pattern, and finds when it crosses a level: arithmetic on arrays, no Spark.

Least squares on the logarithm of the load, by a constant, the day's number and six weekday indicators: growth and weekdays
are factors (Hyndman & Athanasopoulos, "Forecasting: Principles and Practice", 3rd ed., chapter 7). The range is the 80%
prediction interval of a single day (7.9 there). Neighbouring days resemble each other, so the fitted line is less certain
than the number of days suggests: its variance, not the day's own, is multiplied by (1 + r)/(1 - r), where r is the
correlation of neighbouring residuals (Thiébaux & Zwiers, J. Climate Appl. Meteor. 23, 1984).

A forecast reaches as many days ahead as there are days of data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pgqueue.spark.report.rule_expected import Floats

FEWEST_DAYS = 14
COVERED = 0.8
MOST_CORRELATION = 0.8
LEAST_SHARE = 0.01
"""A day with a smaller share of the median day's load counts as this share: a logarithm has no zero."""
THURSDAY = 3
"""The weekday of 1970-01-01; Monday is 0."""


class Range(NamedTuple):
    """The 80% range of a value, and its middle."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fitted line with weekdays, of the logarithm of the load.

    Attributes:
        origin: the day from which the line counts.
        days: how many days it was fitted to.
        coefficients: constant, growth a day, Tuesday to Sunday against Monday.
        inverse: the covariance of the coefficients, in units of ``variance``.
        variance: the variance of a day around the line.
        reach: the quantile of Student's t for the range.
    """

    origin: int
    days: int
    coefficients: Floats
    inverse: Floats
    variance: float
    reach: float

    def range(self, day: int) -> Range:
        """The value on a day, counted from 1970."""
        row = _row(day, self.origin)
        half = self.reach * np.sqrt(self.variance * (1.0 + row @ self.inverse @ row))
        return Range(*(float(np.exp(row @ self.coefficients + way * half)) for way in (-1, 0, 1)))

    @property
    def growth(self) -> Range:
        """The growth a week, as a share."""
        half = self.reach * np.sqrt(self.variance * self.inverse[1, 1])
        return Range(*(float(np.expm1(7 * (self.coefficients[1] + way * half))) for way in (-1, 0, 1)))


class Crossing(NamedTuple):
    """When a level is reached, as days from 1970; None: not within the forecast.

    Attributes:
        earliest: the first day whose range reaches the level.
        likely: the first day whose expected value reaches it.
        latest: the first day whose whole range has reached it.
    """

    earliest: int | None
    likely: int | None
    latest: int | None


def fit(days: Sequence[int], values: Sequence[float]) -> Fit | None:
    """The line through daily values; None: there are fewer than :data:`FEWEST_DAYS`, or no load.

    Args:
        days: counted from 1970, ascending, each once; some may be missing.
        values: one for each day.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - only a report needs SciPy

    load = np.asarray(values, dtype=np.float64)
    if len(days) < FEWEST_DAYS or not np.any(load > 0):
        return None
    measured = np.log(np.fmax(load, LEAST_SHARE * np.median(load[load > 0])))
    matrix = np.array([_row(day, days[0]) for day in days])
    coefficients, _, rank, _ = np.linalg.lstsq(matrix, measured, rcond=None)
    left = measured - matrix @ coefficients
    freedom = max(1, len(days) - int(rank))
    return Fit(
        origin=days[0],
        days=len(days),
        coefficients=coefficients,
        inverse=np.linalg.pinv(matrix.T @ matrix) * _enlarged(days, left),
        variance=float(left @ left) / freedom,
        reach=float(stdtrit(freedom, 0.5 + COVERED / 2)),
    )


def crossing(line: Fit, level: float, after: int) -> Crossing:
    """When the level is reached after a day; looks as many days ahead as there are days of data."""
    ahead = [(day, line.range(day)) for day in range(after + 1, after + 1 + line.days)]
    return Crossing(
        next((day for day, value in ahead if value.high >= level), None),
        next((day for day, value in ahead if value.middle >= level), None),
        next((day for day, value in ahead if value.low >= level), None),
    )


def _row(day: int, origin: int) -> Floats:
    row = np.zeros(8)
    row[0], row[1] = 1.0, day - origin
    weekday = (day + THURSDAY) % 7
    if weekday:
        row[1 + weekday] = 1.0
    return row


def _enlarged(days: Sequence[int], left: Floats) -> float:
    together = np.diff(np.asarray(days)) == 1
    square = float(np.mean(left * left))
    if square == 0 or not np.any(together):
        return 1.0
    correlation = float(np.mean((left[1:] * left[:-1])[together])) / square
    correlation = min(max(correlation, 0.0), MOST_CORRELATION)
    return (1 + correlation) / (1 - correlation)
