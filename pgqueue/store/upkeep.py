"""Plans that keep the queue in order. Each is safe to run by many at once, so there is no leader.

This module says *what* is to be done; :mod:`pgqueue.worker.upkeep` says *when*.
"""

from datetime import datetime, timedelta

import msgspec

from pgqueue.store.plan import Plan, Statement
from pgqueue.values.job import JobState

DAYS_AHEAD = 7
PROMOTED_AT_ONCE = 5_000


class Promoted(msgspec.Struct, frozen=True):
    """How many jobs became ready, and in how many seconds the next one will (None: none is waiting)."""

    count: int
    next_in: float | None


def promote(*, now: datetime | None = None) -> Plan[Promoted]:
    """Move jobs that are due into their lines, and wake whoever sleeps if there were any."""
    count = 0
    while True:
        ((moved, next_in),) = yield Statement("promote", {"now": now, "limit": PROMOTED_AT_ONCE})
        count += moved
        if moved < PROMOTED_AT_ONCE:
            break
    if count:
        yield from wake()
    return Promoted(count, next_in)


def reclaim(*, now: datetime | None = None) -> Plan[dict[int, JobState]]:
    """Expire workers whose lease has passed, and end the claims of every worker that is not on the list.

    Returns:
        The state that each reclaimed job is in now: ready, dead (out of attempts) or cancelled (as asked).
    """
    yield Statement("expire_workers", {"now": now})
    rows = yield Statement("reclaim", {"now": now})
    states = {row[0]: JobState(row[1]) for row in rows}
    if JobState.READY in states.values():
        yield from wake()
    return states


def wake() -> Plan[None]:
    """Tell sleeping workers to look again."""
    yield Statement("wake", {})


def ensure_history_days(*, now: datetime | None = None) -> Plan[int]:
    """Make the history's partitions for the coming days; returns how many were missing."""
    rows = yield Statement("ensure_history_days", {"now": now, "days": DAYS_AHEAD})
    return int(rows[0][0])


def drop_history(retention: timedelta, *, now: datetime | None = None) -> Plan[int]:
    """Drop the history's partitions that lie wholly before the retention; returns how many went."""
    rows = yield Statement("drop_history", {"now": now, "retention": retention})
    return int(rows[0][0])


def release_holds(*, now: datetime | None = None) -> Plan[int]:
    """Forget unique keys whose period is over; returns how many."""
    return len((yield Statement("release_holds", {"now": now})))
