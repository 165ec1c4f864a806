"""Plans that keep the queue in order. Each is safe to run by many at once, so there is no leader.

This module says *what* is to be done; :mod:`pgqueue.worker.upkeep` says *when*.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from pgqueue.store.arrays import columns, texts
from pgqueue.store.claim import NO_MARKS
from pgqueue.store.plan import Plan, Statement
from pgqueue.values.job import JobState, Mark

DAYS_AHEAD = 7
PROMOTED_AT_ONCE = 5_000


class Ticked(msgspec.Struct, frozen=True):
    """What a tick did and saw.

    Attributes:
        count: how many jobs became ready.
        refused: jobs that the database refused to put in line, and that were set aside.
        next_in: in how many seconds the next one will; None: none is waiting for its time.
        lost: whether there is a worker whose jobs are to be reclaimed.
        ready: whether a job is ready in the lines that were asked about.
    """

    count: int
    next_in: float | None
    lost: bool
    ready: bool
    refused: Sequence[int] = ()


def tick(
    lines: Mapping[str, Mark] = NO_MARKS, *, elsewhere: bool = False, now: datetime | None = None
) -> Plan[Ticked]:
    """Put due jobs in line, and wake whoever sleeps if there were any; look what else there is to do.

    Args:
        lines: the queues to look at for ready jobs, and from where on.
        elsewhere: whether to look at all other queues, too.
        now: the instant; the database's own by default.
    """
    params = {
        "now": now,
        "limit": PROMOTED_AT_ONCE,
        "queues": texts(lines),
        **columns(lines.values()),
        "elsewhere": elsewhere,
    }
    count, all_refused = 0, list[int]()
    while True:
        ((moved, refused, next_in, lost, ready, _),) = yield Statement("tick", params)
        count += moved
        all_refused += refused
        if moved + len(refused) < PROMOTED_AT_ONCE:
            break
    if count:
        yield from wake()
    return Ticked(count, next_in, lost, ready, all_refused)


def reclaim(*, now: datetime | None = None) -> Plan[dict[int, JobState]]:
    """Take workers whose lease has passed off the list, and end the claims of all that have left it.

    To be run within a transaction where one may be held open for as long as the jobs take to read; without
    one, two sweeps may read them at once, to no other harm.

    Returns:
        The state that each reclaimed job is in now: ready, dead (out of attempts) or cancelled (as asked).
    """
    yield Statement("expire_workers", {"now": now})
    departed = [row[0] for row in (yield Statement("departed", {}))]
    if not departed:
        return {}
    yield Statement("read_through", {})
    rows = yield Statement("reclaim", {"workers": departed, "now": now})
    states = {row[0]: JobState(row[1]) for row in rows}
    if JobState.READY in states.values():
        yield from wake()
    return states


def note_orphans() -> Plan[int]:
    """See to it that jobs in the name of a worker that nobody has ever seen are reclaimed, too; how many workers.

    Running jobs that name no worker, as after a repair by hand, count as those of one more. It reads the jobs
    from end to end; to be run within a transaction.
    """
    yield Statement("read_through", {})
    return len((yield Statement("orphans", {})))


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
