"""Finds tenants that crowd others: arithmetic on arrays, no Spark.

A tenant's *big* hours are those in which it took at least half of what the others usually leave of a queue's run time, and
at least twice its own usual run time at that hour of the day. In these hours the others' wait is compared with its usual
value at the same hour of the day, taken from hours in which the tenant is not big (medians, so that a few bad hours move
them little). Only hours in which ten or more of the others' jobs ended are asked: the mean wait of a few jobs says little.

The tenant crowds others if they were slowed (at least twice the usual wait, and 5 seconds more) in at least three of its
big hours, in at least half of them, at least three times as often as in other hours, and more often than chance allows:
a binomial probability, with the share of slowed hours among the others. Fewer hours are enough if they are striking: ten
times the usual wait, six standard deviations above it, and more than in any hour in which the tenant was not big. Hours in
which the others brought 1.5 times their usual work are left out, because their own work may be the cause.

The cost is the sum, over the tenant's big hours, of the others' wait above the usual. It shows what happened at the same
time, not a cause: the page says so.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pgqueue.spark.report.rule_expected import Flags, Floats, Integers

BIG_SHARE = 0.5
"""Of the run time that a tenant usually leaves to others. A tenant's share is as large at least."""
FEWEST_OTHERS = 10
CHANCE = 1e-5
"""With a thousand tenants, one report in a hundred names one by chance."""
FAR = 6.0
LEAST_SPREAD = 0.1
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
    from scipy.special import bdtrc  # noqa: PLC0415 - only a report needs SciPy

    many, big = queue.other_jobs >= FEWEST_OTHERS, _big(queue)
    asked = ~big & many
    if not np.any(big & many & (queue.hour >= begin)) or int(asked.sum()) < FEWEST_KNOWN:
        return None
    wait = queue.other_wait / np.fmax(queue.other_jobs, 1)
    usual = _usual(queue.hour, wait, asked)
    busy = queue.other_run > OWN_DOING * _usual(queue.hour, queue.other_run, asked)
    slowed = (wait >= SLOWED_RATIO * usual) & (wait - usual >= SLOWED_SECONDS)
    base = float((slowed & asked).sum() + 1) / float(asked.sum() + 2)
    counted = big & many & ~busy & (queue.hour >= begin)
    hit, of = counted & slowed, int(counted.sum())
    hits = int(hit.sum())
    striking = hit & (wait >= STRIKING * usual) & (wait > np.max(wait[asked])) & _far(wait, usual, asked)
    often = hits >= FEWEST_HOURS and bdtrc(hits - 1, of, base) <= CHANCE
    if not (often or np.any(striking)) or hits < max(OFTEN, OFTENER * base) * of:
        return None
    return _judge_crowding(queue, counted, hit, usual)


def _big(queue: Sharing) -> Flags:
    every, total = np.ones(queue.hour.size, dtype=np.bool_), queue.own_run + queue.other_run
    share = np.divide(queue.own_run, total, out=np.zeros(total.size), where=total > 0)
    taken = share >= 1 - BIG_SHARE * (1 - _usual(queue.hour, share, every))
    flags: Flags = (
        taken & (queue.own_run > 0) & (queue.own_run >= BIG_RATIO * _usual(queue.hour, queue.own_run, every))
    )
    return flags


def _far(wait: Floats, usual: Floats, asked: Flags) -> Flags:
    """Which waits are far beyond what hours in which the tenant is not big show."""
    off = np.log1p(wait) - np.log1p(usual)
    known = np.abs(off[asked])
    spread = max(LEAST_SPREAD, 1.4826 * float(np.median(known)), float(np.quantile(known, 0.99)) / 2.576)
    flags: Flags = off >= FAR * spread
    return flags


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
