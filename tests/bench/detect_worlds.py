"""Histories whose truth is known, for ``bench.detect``: NumPy only, the same for the same generator.

A history is nine weeks of hours that end with a Sunday a week after Europe's clocks changed: a false alarm about a
task in another time zone would show in every world.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Series: TypeAlias = dict[str, Floats]

WEEK, WEEKS = 168, 9
HOURS = WEEK * WEEKS
NOW = HOURS - WEEK
"""The index of the first hour of the judged week."""
MONDAY = 20_752
"""2026-10-26, the day after Europe's clocks went back, counted from 1970."""
START = MONDAY * 24 - NOW
NOON = 60
"""The hour of the week in which events begin: Wednesday, 12:00."""


@dataclass(frozen=True, kw_only=True)
class World:
    """How a task's load behaves.

    Attributes:
        name: the world's name.
        growth: a week, 0.1 is 10 %.
        flat: whether it has no rhythm by day and weekday.
        scatter: the coefficient of variation of an hour beside the chance of counts.
        alike: the correlation of that scatter from hour to hour.
        weekly: the scatter of whole weeks.
        steps: by the number of weeks before the end, the factor of the load from then on.
        holidays: days, counted back from the end of the judged week, on which half of the load comes.
        local: the share of tasks that follow Europe's clocks.
        since: the number of days since Europe's clocks changed.
        levels: the lowest and the highest number of jobs an hour of a report's tasks.
    """

    name: str
    growth: float = 0.0
    flat: bool = False
    scatter: float = 0.05
    alike: float = 0.0
    weekly: float = 0.0
    steps: dict[float, float] = field(default_factory=dict)
    holidays: tuple[int, ...] = ()
    local: float = 0.0
    since: int = 7
    levels: tuple[float, float] = (0.3, 20_000.0)

    @property
    def start(self) -> int:
        """The first hour, counted from 1970."""
        return START + (self.since - 7) * 24


WORLDS = (
    World(name="flat", flat=True),
    World(name="seasonal"),
    *(World(name=f"growing {growth:.0%} a week", growth=growth) for growth in (0.05, 0.1, 0.2, 0.5)),
    World(name="overdispersed, CV 0.32", scatter=0.32),
    World(name="scatter that lasts hours", scatter=0.15, alike=0.9),
    World(name="weeks that differ by 20%", weekly=0.2),
    World(name="doubled four weeks ago", steps={4: 2.0}),
    World(name="doubled within a week, 2.5 ago", steps={2.5: 2.0}),
    World(name="holidays in former weeks", holidays=(15, 22)),
    World(name="clocks changed a week ago", local=0.5),
    World(name="clocks changed in the week", local=0.5, since=3),
    World(name="clocks changed 4 weeks ago", local=0.5, since=28),
    World(name="small queues", levels=(0.3, 10.0)),
)
HOLIDAY = World(name="holidays in the judged week", holidays=(3, 4))


def task(chance: np.random.Generator, world: World, level: float = 200.0, *, local: bool = False) -> Series:
    """A quiet task: jobs, attempts, failed attempts and the wait of each hour."""
    mean = _mean(world, level, local=local)
    noise = np.exp(_scatter(chance, world) + np.repeat(chance.normal(0, world.weekly, WEEKS), WEEK))
    jobs = chance.poisson(mean * noise).astype(float)
    failed = chance.binomial(jobs.astype(int), 0.02).astype(float)
    wait = 3 * (1 + mean / mean.mean()) * chance.lognormal(0, 0.25, HOURS)
    return {"jobs": jobs, "attempts": jobs + failed, "failed": failed, "wait": wait}


def tasks(chance: np.random.Generator, world: World, count: int = 40) -> list[Series]:
    """The tasks of a report, from the smallest to the largest level."""
    levels = np.geomspace(*world.levels, count)
    return [
        task(chance, world, float(level), local=number < world.local * count)
        for number, level in zip(chance.permutation(count), levels, strict=True)
    ]


EVENTS = {"x2": 2.0, "x3": 3.0, "to 30%": 0.3, "stop": 0.0}


def with_event(chance: np.random.Generator, series: Series, times: float, hours: int = 3) -> Series:
    """The task with an event in the judged week, at noon; counts beside the planted factor come by chance."""
    at = slice(NOW + NOON, NOW + NOON + hours)
    made = {name: values.copy() for name, values in series.items()}
    jobs = made["jobs"][at]
    made["jobs"][at] = chance.binomial(jobs.astype(int), times) if times < 1 else np.round(jobs * times)
    made["failed"][at] = np.round(made["failed"][at] * times)
    made["attempts"][at] = made["jobs"][at] + made["failed"][at]
    return made


def _mean(world: World, level: float, *, local: bool) -> Floats:
    hours = np.arange(HOURS)
    clock = hours - (hours >= HOURS - world.since * 24 - 23) if local else hours
    mean = level * (1 + world.growth) ** ((hours - NOW) / WEEK)
    if not world.flat:
        # Office hours rise and fall within an hour or two, so that a clock change shows.
        by_day = 0.2 + 1.8 / (1 + np.exp(-2.5 * (3.5 - np.abs(clock % 24 - 13.0) / 1.6)))
        mean = mean * by_day / by_day.mean() * np.where(clock // 24 % 7 >= 5, 0.5, 1.0)
    for weeks, factor in world.steps.items():
        mean = mean * np.where(hours >= HOURS - weeks * WEEK, factor, 1.0)
    off = np.isin((HOURS - 1 - hours) // 24, world.holidays)
    return np.asarray(mean * np.where(off, 0.5, 1.0))


def _scatter(chance: np.random.Generator, world: World) -> Floats:
    sigma = np.sqrt(np.log1p(world.scatter**2))
    steps = chance.normal(0, sigma, HOURS)
    if world.alike:
        for at in range(1, HOURS):
            steps[at] = world.alike * steps[at - 1] + np.sqrt(1 - world.alike**2) * steps[at]
    return np.asarray(steps)


def daily(chance: np.random.Generator, days: int, growth: float, noise: float, alike: float = 0.0) -> Floats:
    """Daily load that grows by a factor each week, half of it at weekends; each day's noise resembles the day before's."""
    number = np.arange(days)
    steps = chance.normal(0, noise, days)
    for at in range(1, days):
        steps[at] = alike * steps[at - 1] + np.sqrt(1 - alike**2) * steps[at]
    return np.asarray(
        0.3 * (1 + growth) ** (number / 7) * np.where(number % 7 >= 5, 0.5, 1.0) * np.exp(steps)
    )


TENANTS = 20


def sharings(
    chance: np.random.Generator, jobs: float, *, spread: float, big: int = 0, times: float = 1.0
) -> list[Series]:
    """One queue of many tenants, split between each and the others.

    The first tenant is big in some hours of the last week, and others then wait several times as long.

    Args:
        chance: where chance comes from.
        jobs: of all tenants, an hour.
        spread: of the logarithm of waits.
        big: the number of hours in which the first tenant brings as many jobs again, each ten times as long.
        times: the factor of the others' waits in these hours.
    """
    of_day = 1 + 0.7 * np.sin(2 * np.pi * np.arange(HOURS) / 24)
    hour = np.repeat(np.arange(HOURS), chance.poisson(jobs * of_day))
    share = 1 / np.arange(2, TENANTS + 2)
    tenant = chance.choice(TENANTS, hour.size, p=share / share.sum())
    run = chance.lognormal(0, 0.8, hour.size)
    wait = 3 * of_day[hour] * chance.lognormal(-(spread**2) / 2, spread, hour.size)
    at = chance.choice(np.arange(NOW, HOURS), big, replace=False)
    wait = wait * np.where(np.isin(hour, at) & (tenant > 0), times, 1.0)
    more = np.repeat(at, max(10, int(jobs)))
    hour, tenant = np.append(hour, more), np.append(tenant, np.zeros(more.size, dtype=np.int64))
    run, wait = np.append(run, np.full(more.size, 10.0)), np.append(wait, np.full(more.size, 10.0))

    def summed(of: npt.NDArray[np.bool_], values: Floats) -> Floats:
        return np.bincount(hour[of], values[of], minlength=HOURS).astype(float)

    one = np.ones(hour.size)
    return [
        {
            "own_run": summed(tenant == number, run),
            "other_run": summed(tenant != number, run),
            "other_jobs": summed(tenant != number, one),
            "other_wait": summed(tenant != number, wait),
        }
        for number in range(TENANTS)
    ]


def runs(chance: np.random.Generator, count: int, *, times: float = 1.0, spread: float = 0.6) -> Floats:
    """Run times around a second; what each of 48 hours brings scatters by a tenth."""
    hourly = np.repeat(chance.lognormal(0, 0.1, 48), -(-count // 48))[:count]
    return np.asarray(times * hourly * chance.lognormal(0, spread, count))
