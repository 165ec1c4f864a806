"""Finds tenants that crowd others: pure arithmetic on arrays, no Spark.

A tenant's *big* hours are those in which it took at least half of a queue's run time, and at least twice its own usual
run time at that hour of the day. In these hours the others' wait is compared with its usual value at the same hour of the
day, taken from hours in which the tenant is not big (medians, so that a few bad hours move them little).

The tenant crowds others if they were slowed (at least twice the usual wait, and 5 seconds more) in at least three of its
big hours, in at least half of them, and at least three times as often as in other hours. Fewer hours are enough if they
are striking: ten times the usual wait, and more than in any hour in which the tenant was not big. The last tests ensure
that no tenant is named for a queue that is always late. Hours in which the others brought 1.5 times their usual work are
left out, because their own work may be the cause.

The cost is the sum, over the tenant's big hours, of the others' wait above the usual. It shows what happened at the same
time, not a cause: the page says so.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pgqueue.spark.report.rule_unusual import Flags, Floats, Integers

BIG_SHARE = 0.5
BIG_RATIO = 2.0
SLOWED_RATIO = 2.0
SLOWED_SECONDS = 5.0
OWN_DOING = 1.5
FEWEST_HOURS = 3
FEWEST_KNOWN = 24
STRIKING = 10.0
OFTEN = 0.5
OFTENER = 3.0
DAY = 24


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """One queue, split between a tenant and the others: arrays of one length, a value per hour in which a job ended.

    Attributes:
        hour: counted from 1970.
        own_run: seconds that the tenant's jobs ran.
        other_run: seconds that the others' jobs ran.
        other_jobs: how many of the others' jobs ended.
        other_wait: the sum of their waits, in seconds.
    """

    hour: Integers
    own_run: Floats
    other_run: Floats
    other_jobs: Floats
    other_wait: Floats


class Crowding(NamedTuple):
    """How a tenant slowed others.

    Attributes:
        hours: its big hours in which others were slowed.
        big: its big hours.
        share: its share of the run time in ``hours``.
        wait: the mean wait of the others' jobs in ``hours``, in seconds.
        usual: their mean wait at the same hours of other days, in seconds.
        cost: seconds that the others' jobs waited longer.
        others: the number of the others' jobs in ``hours``.
    """

    hours: tuple[int, ...]
    big: int
    share: float
    wait: float
    usual: float
    cost: float
    others: int


def judge(queue: Sharing, *, begin: int) -> Crowding | None:
    """Whether the tenant crowded others since the hour ``begin``; usual values come from all hours."""
    total = queue.own_run + queue.other_run
    usual_own = _usual(queue.hour, queue.own_run, np.ones(queue.hour.size, dtype=np.bool_))
    big = (
        (queue.own_run >= BIG_SHARE * total) & (queue.own_run >= BIG_RATIO * usual_own) & (queue.own_run > 0)
    )
    asked = ~big & (queue.other_jobs > 0)
    if int(asked.sum()) < FEWEST_KNOWN:
        return None
    wait = np.divide(queue.other_wait, queue.other_jobs, out=np.zeros(big.size), where=queue.other_jobs > 0)
    usual = _usual(queue.hour, wait, asked)
    busy = queue.other_run > OWN_DOING * _usual(queue.hour, queue.other_run, asked)
    slowed = (wait >= SLOWED_RATIO * usual) & (wait - usual >= SLOWED_SECONDS) & (queue.other_jobs > 0)
    base = float(np.mean(slowed[asked]))
    counted = big & ~busy & (queue.other_jobs > 0) & (queue.hour >= begin)
    hit = counted & slowed
    often = hit.sum() / max(1, int(counted.sum()))
    striking = hit & (wait >= STRIKING * usual) & (wait > np.max(wait[asked]))
    if hit.sum() < FEWEST_HOURS and not np.any(striking):
        return None
    if often < max(OFTEN, OFTENER * base):
        return None
    return _judge_crowding(queue, counted, hit, usual)


def _judge_crowding(queue: Sharing, counted: Flags, hit: Flags, usual: Floats) -> Crowding:
    jobs = queue.other_jobs[hit]
    waited, due = float(queue.other_wait[hit].sum()), float((usual[hit] * jobs).sum())
    own, others = float(queue.own_run[hit].sum()), float(queue.other_run[hit].sum())
    return Crowding(
        hours=tuple(int(hour) for hour in np.sort(queue.hour[hit])),
        big=int(counted.sum()),
        share=own / (own + others),
        wait=waited / float(jobs.sum()),
        usual=due / float(jobs.sum()),
        cost=waited - due,
        others=int(jobs.sum()),
    )


def _usual(hour: Integers, values: Floats, of: Flags) -> Floats:
    """For every hour the median of the same hour of the day; with fewer than three such hours, of all hours."""
    usual = np.full(hour.size, float(np.median(values[of])) if np.any(of) else np.nan)
    for time in range(DAY):
        here = hour % DAY == time
        if int((here & of).sum()) >= FEWEST_HOURS:
            usual[here] = np.median(values[here & of])
    return usual
