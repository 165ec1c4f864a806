"""When a tenant crowds others: pure arithmetic on arrays, no Spark.

A tenant's *big* hours are those in which it took at least half of a queue's run time and twice what is usual for itself
at that hour of the day. In them the wait of the others is compared with what it usually is at the same hour of the day
while the tenant is not big (medians, so that a few bad hours move them little).

It crowds others if they were slowed (twice the usual wait, and five seconds more) in at least three of its big hours, in
at least half of them, and at least three times as often as in other hours. Fewer hours do if they are striking: ten times
the usual wait, and more than in any hour in which the tenant was not big. The last tests keep a queue that is always late
from being one tenant's fault; and hours in which the others brought half as much work again as they usually do are left
out, for then the wait may be their own doing.

The wait that it cost is the sum over its big hours of how much longer the others' jobs waited than usual. It is an
attribution by time, not a proof: the page says so.
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
FEWEST_CALM = 24
STRIKING = 10.0
OFTEN = 0.5
OFTENER = 3.0
DAY = 24


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """One queue from one tenant's place: arrays of one length, a value per hour in which any job ended.

    Attributes:
        hour: counted from 1970.
        own_run: seconds that the tenant's jobs ran.
        other_run: seconds that the others' ran.
        other_jobs: how many jobs of others ended.
        other_wait: seconds that those waited, summed.
    """

    hour: Integers
    own_run: Floats
    other_run: Floats
    other_jobs: Floats
    other_wait: Floats


class Crowding(NamedTuple):
    """What a tenant did to others.

    Attributes:
        hours: its big hours in which they were slowed.
        big: its big hours.
        share: of the run time in those in which they were slowed.
        wait: of a job of the others in those, in seconds.
        usual: of such a job at the same hours of other days.
        cost: seconds that jobs of others waited longer.
        others: jobs of others in those hours.
    """

    hours: tuple[int, ...]
    big: int
    share: float
    wait: float
    usual: float
    cost: float
    others: int


def judge(queue: Sharing, *, begin: int) -> Crowding | None:
    """Whether the tenant crowded others since an hour; what is usual is learnt from all hours."""
    total = queue.own_run + queue.other_run
    usual_own = _usual(queue.hour, queue.own_run, np.ones(queue.hour.size, dtype=np.bool_))
    big = (
        (queue.own_run >= BIG_SHARE * total) & (queue.own_run >= BIG_RATIO * usual_own) & (queue.own_run > 0)
    )
    asked = ~big & (queue.other_jobs > 0)
    if int(asked.sum()) < FEWEST_CALM:
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
    return _crowding(queue, counted, hit, usual)


def _crowding(queue: Sharing, counted: Flags, hit: Flags, usual: Floats) -> Crowding:
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
    """For every hour the median of the same hour of the day, or of all hours where there are fewer than three."""
    usual = np.full(hour.size, float(np.median(values[of])) if np.any(of) else np.nan)
    for time in range(DAY):
        here = hour % DAY == time
        if int((here & of).sum()) >= FEWEST_HOURS:
            usual[here] = np.median(values[here & of])
    return usual
