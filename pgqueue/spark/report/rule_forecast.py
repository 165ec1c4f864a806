"""Fits a trend with a weekday pattern, and finds when it crosses a level: pure arithmetic on arrays, no Spark.

Ordinary least squares on a constant, the day's number and six weekday indicators (Hyndman & Athanasopoulos,
"Forecasting: Principles and Practice", 3rd ed., chapter 7: trend and seasonal dummies; prediction intervals in 7.9).
The range is the 80% prediction interval of a single day. Neighbouring days are correlated, which makes the textbook
interval too narrow; so its variance is multiplied by (1 + r)/(1 - r), where r is the correlation of neighbouring residuals
(the effective sample size of Thiébaux & Zwiers, J. Climate Appl. Meteor. 23, 1984), never below zero.

A forecast reaches as many days ahead as there are days of data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from pgqueue.spark.report.rule_unusual import Floats

FEWEST_DAYS = 14
COVERED = 0.8
MOST_CORRELATION = 0.8
THURSDAY = 3
"""The weekday of 1970-01-01; Monday is 0."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fitted line with weekdays.

    Attributes:
        origin: the day from which the line counts.
        days: how many days it was fitted to.
        coefficients: constant, growth a day, Tuesday to Sunday against Monday.
        inverse: the inverse of the normal matrix.
        variance: the variance of a day around the line.
        freedom: the number of days minus the number of coefficients.
    """

    origin: int
    days: int
    coefficients: Floats
    inverse: Floats
    variance: float
    freedom: int

    def expected(self, day: int) -> float:
        """The value on a day, counted from 1970; never below zero."""
        return max(0.0, float(_row(day, self.origin) @ self.coefficients))

    def half(self, day: int) -> float:
        """Half the width of a day's 80% range."""
        row = _row(day, self.origin)
        around = self.variance * (1.0 + float(row @ self.inverse @ row))
        return student(0.5 + COVERED / 2, self.freedom) * float(np.sqrt(around))

    @property
    def growth(self) -> tuple[float, float, float]:
        """The growth a week: the lowest, the likeliest and the highest value of the 80% range."""
        middle = float(self.coefficients[1])
        error = float(np.sqrt(self.variance * self.inverse[1, 1]))
        half = student(0.5 + COVERED / 2, self.freedom) * error
        return 7 * (middle - half), 7 * middle, 7 * (middle + half)


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
    """The line through daily values; None: there are fewer than :data:`FEWEST_DAYS`.

    Args:
        days: counted from 1970, ascending, each once; some may be missing.
        values: one for each day.
    """
    if len(days) < FEWEST_DAYS:
        return None
    origin = days[0]
    matrix = np.array([_row(day, origin) for day in days])
    inverse = np.linalg.pinv(matrix.T @ matrix)
    measured = np.asarray(values, dtype=np.float64)
    coefficients, _, rank, _ = np.linalg.lstsq(matrix, measured, rcond=None)
    left = measured - matrix @ coefficients
    freedom = max(1, len(days) - int(rank))
    variance = float(left @ left) / freedom * _enlarged(days, left)
    return Fit(
        origin=origin,
        days=len(days),
        coefficients=coefficients,
        inverse=inverse,
        variance=variance,
        freedom=freedom,
    )


def crossing(line: Fit, level: float, after: int) -> Crossing:
    """When the level is reached after a day; looks as many days ahead as there are days of data."""
    ahead = range(after + 1, after + 1 + line.days)
    middle = [(day, line.expected(day), line.half(day)) for day in ahead]
    return Crossing(
        next((day for day, value, half in middle if value + half >= level), None),
        next((day for day, value, _ in middle if value >= level), None),
        next((day for day, value, half in middle if value - half >= level), None),
    )


def student(probability: float, freedom: int) -> float:
    """A quantile of Student's t, from the normal one (Abramowitz & Stegun, 26.7.5); within 1% for 6 degrees or more."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


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
