"""When jobs of a rate may start: the generic cell rate algorithm. Pure rules; all times are whole microseconds.

The state of a rate is one number, the *theoretical arrival time* (tat): when the next start would be due if starts came exactly
``every`` apart. A start that costs ``cost`` is allowed from ``tat - (burst - cost) * every`` on, and moves the tat to
``max(tat, start) + cost * every``. So in any window of the length ``t`` the starts cost at most ``burst + t / every``, and with
a burst of 1 they are at least ``every`` apart. A tat in the past counts as now: no start is made up for after a pause.

A cost counts as 1 at least and as the burst at most: SQL may have written another one, or an operator may have lowered the burst
since. Such a job would never start, and would keep all later jobs of its lane from their starts.

A worker claims jobs a *horizon* before their start, and waits for the instant, so that the starts are exact.

Source: ITU-T recommendation I.371, "Traffic control and congestion control in B-ISDN", annex A: virtual scheduling algorithm.
"""

from collections.abc import Iterable

HORIZON = 100_000
"""Microseconds. Jobs of rates are claimed at most this long before their start."""
LAST = 2**63 - 1
"""The last tat that PostgreSQL stores."""


def tolerance(every: int) -> int:
    """How many microseconds late a job of an exact interval may start: a tenth of it, and 5 ms at least.

    A later start would be too near to the next one. The job goes back, and gets the next place.
    """
    return max(every // 10, 5_000)


def settle_tat(tat: int, now: int, rate: tuple[int, int]) -> int:
    """A stored tat as it counts now.

    No claim leaves a tat later than ``now`` and the reach of the rate. A later one was stored before the clock was set back,
    or before the rate was made faster; it would stop all starts for that long. A claim that finds one stores what this
    returns; otherwise the bound would move with the clock, and never be reached.
    """
    return min(tat, now + reach(rate))


def reach(rate: tuple[int, int]) -> int:
    """How many microseconds after now the state of a rate lies, at most."""
    every, burst = rate
    return HORIZON + burst * every


def earliest(tat: int, now: int, rate: tuple[int, int], cost: int = 1) -> int:
    """When the next job may start, now or later.

    Args:
        tat: the state.
        now: the time.
        rate: ``every`` and ``burst``.
        cost: of the start.
    """
    every, burst = rate
    return max(now, max(tat, now) + (_counted_cost(cost, burst) - burst) * every)


def advance_tat(tat: int, at: int, rate: tuple[int, int], cost: int = 1) -> int:
    """The state after a start at this time; arguments as for :func:`earliest`."""
    every, burst = rate
    return min(LAST, max(tat, at) + _counted_cost(cost, burst) * every)


def count(tat: int, now: int, rate: tuple[int, int], *, cost: int = 1, horizon: int = HORIZON) -> int:
    """How many jobs of the same cost may start by ``now + horizon``; other arguments as for :func:`earliest`."""
    every, burst = rate
    return max(0, ((now + horizon - max(tat, now)) // every + burst) // _counted_cost(cost, burst))


def starts(
    tat: int, now: int, rate: tuple[int, int], costs: Iterable[int], *, horizon: int = HORIZON
) -> tuple[list[int], int]:
    """When the next jobs start, up to the first one that may not start by ``now + horizon``; and the state after them.

    Args:
        tat: the state, as stored.
        now: the time.
        rate: ``every`` and ``burst``.
        costs: of the jobs, in their order.
        horizon: how far to look ahead.
    """
    tat = settle_tat(tat, now, rate)
    found: list[int] = []
    for cost in costs:
        at = earliest(tat, now, rate, cost)
        if at > now + horizon:
            break
        found.append(at)
        tat = advance_tat(tat, at, rate, cost)
    return found, tat


def _counted_cost(cost: int, burst: int) -> int:
    return max(1, min(cost, burst))
