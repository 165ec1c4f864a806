"""For how long what pgqueue stores is kept: what holds, what there is, and the plans that remove what is older.

The history is partitioned by day. A day that no queue keeps is dropped whole. Of a day that some queue keeps for longer, the jobs
of the other queues are deleted, some pages at a time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pgqueue.store import audit
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.retention import FOREVER, Kept, Removal, Retention

DAYS_AHEAD = 7
DELETED_AT_ONCE = 10_000
PAGES_AT_ONCE = 1_000
"""Of a day that is cleared of some queues' jobs: 8 MB in each transaction."""
FIXED: Final = timedelta(days=30)
"""For how long ticks of schedules, and signals to keys, are kept."""


@plan
def keep_for(
    history: timedelta | None,
    dead: timedelta | None,
    *,
    history_args: int | None = None,
    said_by: str | None,
    why: str | None = None,
) -> Steps[Retention]:
    """Store for how long ended and dead jobs are kept, and with which arguments, where a value is given. The audit notes a change.

    Args:
        history: for ended jobs; None: what is stored stays.
        dead: for dead jobs, 100,000 days or longer: for ever; None: what is stored stays.
        history_args: the longest arguments of succeeded jobs, in bytes as stored; None: what is stored stays.
        said_by: who stores it, for people to read.
        why: why, for people to read.
    """
    params = {
        "history": history,
        "dead": dead,
        "history_args": history_args,
        "said_by": said_by,
        "why": why or audit.reason(),
    }
    ((kept, of_dead, args, changed),) = yield Statement("retention/keep_for", params)
    return Retention(_length(kept) or timedelta(0), _length(of_dead), args, changed=changed)


@plan
def shown(*, now: datetime | None = None) -> Steps[list[Kept]]:
    """What is kept, for how long, and when what is removed next. It reads sizes and ends of indices, no table."""
    return [_kept(row) for row in (yield Statement("retention/show", {"fixed": FIXED, "now": now}))]


@plan
def preview(
    *,
    history: timedelta | None = None,
    dead: timedelta | None = None,
    queue: str | None = None,
    now: datetime | None = None,
) -> Steps[list[Removal]]:
    """What the next tidying removes if these lengths hold; it reads the dead jobs, and of the history days that are cleared.

    Args:
        history: for ended jobs; None: as now.
        dead: for dead jobs; None: as now.
        queue: for the jobs of this queue; None: for those of queues without a length of their own.
        now: the instant; the database's own by default.
    """
    yield Statement("connections/allow_full_reads", {})
    params = {"history": history, "dead": dead, "queue": queue, "now": now}
    return [Removal(*row) for row in (yield Statement("retention/preview", params))]


def _kept(row: Sequence[Any]) -> Kept:
    what, queue, kept, until, rows, size, oldest, next_at, frees_rows, frees_bytes, set_at, set_by = row
    return Kept(
        what,
        queue,
        _length(kept),
        until,
        rows,
        size,
        oldest,
        next_at,
        frees_rows,
        frees_bytes,
        set_at,
        set_by,
    )


def _length(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=min(seconds, FOREVER.total_seconds()))


@plan
def ensure_history_days(*, now: datetime | None = None) -> Steps[int]:
    """Make the history's partitions for the coming days; returns how many it made.

    Most often none is missing, and nothing is locked. Each day is a statement, and so a transaction, of its own. A day
    that cannot be made because the tables are in use is left to a later run; so are the days after it. A day whose name
    another relation has is passed over: see :func:`find_taken_history_days`.
    """
    made = 0
    for (day,) in (yield Statement("retention/missing_history_days", {"now": now, "days": DAYS_AHEAD})):
        ((said,),) = yield Statement("retention/make_history_day", {"day": day})
        made += said == "made"
        if said == "in use":
            break
    return made


@plan
def find_taken_history_days(*, now: datetime | None = None) -> Steps[list[str]]:
    """The relations that keep the history's partitions of the coming days from being made, by their names.

    Each has the name of a day's partition and is none: a table that was made by hand, or a partition that was detached.
    :func:`ensure_history_days` passes such a day over, and jobs that end on it go into the default partition.
    """
    return [
        name
        for (name,) in (yield Statement("retention/taken_history_days", {"now": now, "days": DAYS_AHEAD}))
    ]


@plan
def drop_history(*, now: datetime | None = None) -> Steps[int]:
    """Drop the history's partitions that lie wholly before the stored retention; returns how many went."""
    rows = yield Statement("retention/drop_history", {"now": now})
    return int(rows[0][0])


@plan
def clear_history(*, now: datetime | None = None) -> Steps[int]:
    """Delete jobs that their queue keeps for a shorter time than others keep their day; how many.

    A day is read once for all queues. Their rows then note up to which day that was done, unless an operator has changed
    the length meanwhile.
    """
    queues, lengths, cuts = zip(*(yield Statement("retention/cuts", {})), strict=True)
    days = yield Statement("retention/find_uncleared", {"now": now})
    count = 0
    for day, pages in days:
        for page in range(0, pages, PAGES_AT_ONCE):
            portion = {"day": day, "from_page": f"({page},0)", "to_page": f"({page + PAGES_AT_ONCE},0)"}
            ((deleted,),) = yield Statement("retention/clear_pages", {**portion, "now": now})
            count += deleted
    if days:
        read = {"queues": [*queues], "lengths": [*lengths], "cuts": [*cuts]}
        yield Statement("retention/note_cleared", {**read, "now": now}, returns=False)
    return count


@plan
def drop_strays(*, now: datetime | None = None) -> Steps[int]:
    """Delete what the default partition holds from before the stored retention; returns how many rows."""
    return (yield from some_at_a_time("retention/drop_strays", now))


@plan
def drop_dead(*, now: datetime | None = None) -> Steps[int]:
    """Delete dead jobs from before the stored retention; returns how many."""
    return (yield from some_at_a_time("retention/drop_dead", now))


def some_at_a_time(name: str, now: datetime | None, **params: object) -> Steps[int]:
    """Run a statement that deletes some rows and counts them, until none is left; how many went."""
    count, deleted = 0, DELETED_AT_ONCE
    # Each statement, and so each transaction, has a bounded size.
    while deleted == DELETED_AT_ONCE:
        ((deleted,),) = yield Statement(name, {"now": now, "limit": DELETED_AT_ONCE, **params})
        count += deleted
    return count
