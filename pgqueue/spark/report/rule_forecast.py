"""A trend with a weekday pattern, and when it crosses a level: pure arithmetic on arrays, no Spark.

Ordinary least squares on a constant, the day's number and six weekday indicators (Hyndman & Athanasopoulos,
"Forecasting: Principles and Practice", 3rd ed., chapter 7: trend and seasonal dummies; prediction intervals in 7.9).
The range is the 80% prediction interval of a single day. Days in a row resemble each other, which makes the textbook
interval too narrow; its variance is enlarged by (1 + r)/(1 - r), where r is the correlation of neighbouring residuals
(the effective sample size of Thiébaux & Zwiers, J. Climate Appl. Meteor. 23, 1984), never below zero.

Nobody knows more of the future than of the past: forecasts reach as many days ahead as there are days behind.
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
"""1970-01-01 was one; Monday is 0."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fitted line with weekdays.

    Attributes:
        origin: the day that the line counts from.
        days: how many days it was fitted to.
        coefficients: constant, a day's growth, Tuesday to Sunday against Monday.
        inverse: of the normal matrix.
        variance: of a day around the line.
        freedom: days less coefficients.
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
        """By how much a week adds: the lowest, the likeliest and the highest of the 80% range."""
        middle = float(self.coefficients[1])
        error = float(np.sqrt(self.variance * self.inverse[1, 1]))
        half = student(0.5 + COVERED / 2, self.freedom) * error
        return 7 * (middle - half), 7 * middle, 7 * (middle + half)


class Crossing(NamedTuple):
    """When a level is reached, as days from 1970; None: not as far as can be seen.

    Attributes:
        earliest: the first day whose range reaches it.
        likely: the first day that is expected to.
        latest: the first day whose whole range has reached it.
    """

    earliest: int | None
    likely: int | None
    latest: int | None


def fit(days: Sequence[int], values: Sequence[float]) -> Fit | None:
    """The line through daily values; None: there are less than two weeks of them.

    Args:
        days: counted from 1970, ascending, each once; some may be missing.
        values: one of each.
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
    """When the level is reached after a day, as far ahead as there are days behind."""
    ahead = range(after + 1, after + 1 + line.days)
    middle = [(day, line.expected(day), line.half(day)) for day in ahead]
    return Crossing(
        next((day for day, value, half in middle if value + half >= level), None),
        next((day for day, value, _ in middle if value >= level), None),
        next((day for day, value, half in middle if value - half >= level), None),
    )


def student(probability: float, freedom: int) -> float:
    """A quantile of Student's t, from the normal one (Abramowitz & Stegun, 26.7.5); within 1% from 6 degrees on."""
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
