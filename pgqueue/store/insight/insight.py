"""The plans by which people look at the queue as a whole. Each takes milliseconds, however many jobs wait.

What the answers mean is decided in :mod:`pgqueue.values.insight.now`. How queues stand is read in :mod:`pgqueue.store.queues.queues`,
what happened over time in :mod:`pgqueue.store.insight.series`.
"""

from contextlib import suppress
from datetime import datetime

from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.queues.queues import WHOLE_PAGES
from pgqueue.store.schedules.schedules import timing_of
from pgqueue.values.insight.now import (
    DeadTask,
    DeadTasks,
    Deploy,
    ErrorGroup,
    Errors,
    IndexHealth,
    KeyUse,
    Running,
    RunningJob,
    ScheduleLag,
    StoreHealth,
    TableHealth,
    VacuumHorizon,
)
from pgqueue.values.jobs.error_group import error_group_key

LOOKED_AT = 20_000
"""Of the dead jobs the last ones are looked at, up to this number."""
COUNTED = 2_000
"""And of those that match, the errors of this many are read: an error is up to 10 kB long, and takes 10 µs."""
DEAD_COUNTED = 100_000
"""Dead jobs, the last ones, that are counted by task: it takes 0.1 s."""
LARGEST = 100
"""Indices that are named."""
OLDEST = 5
"""Snapshots that are named."""


@plan(reads=True)
def running(
    *, queue: str | None = None, task: str | None = None, limit: int = 100, now: datetime | None = None
) -> Steps[Running]:
    """The jobs that workers hold, those that were claimed first at the front.

    Args:
        queue: only those of this queue.
        task: only those of this task.
        limit: at most how many.
        now: the instant; the database's own by default.
    """
    ((pages, *_),) = yield Statement("insight/standing_sizes", {"now": now})
    complete = pages <= WHOLE_PAGES
    params = {"queue": queue, "task": task, "limit": limit, "now": now}
    rows = yield Statement("insight/running_all" if complete else "insight/running_named", params)
    return Running(tuple(RunningJob(*row) for row in rows), complete)


@plan(reads=True)
def errors(*, queue: str | None = None, task: str | None = None, limit: int = 100) -> Steps[Errors]:
    """The last dead jobs by task and error, the most frequent error first.

    Args:
        queue: only those of this queue.
        task: only those of this task.
        limit: at most how many groups.
    """
    params = {"queue": queue, "task": task, "looked_at": LOOKED_AT, "counted": COUNTED, "limit": limit}
    rows = yield Statement("insight/errors", params)
    looked_at, read = rows[0][9:] if rows else (0, 0)
    groups = tuple(_group(row) for row in rows)
    return Errors(groups, read, complete=looked_at < LOOKED_AT and read < COUNTED)


@plan(reads=True)
def dead_by_task(*, limit: int) -> Steps[DeadTasks]:
    """How many dead jobs the tasks have, the task with the most first; of very many dead jobs the last 100,000 are counted.

    Args:
        limit: at most how many tasks of a queue are named.
    """
    rows = yield Statement("insight/dead_by_task", {"looked_at": DEAD_COUNTED, "limit": limit})
    named = tuple(DeadTask(*row) for row in rows if row[0] is not None)
    others = sum(row[2] for row in rows if row[0] is None)
    return DeadTasks(named, others, complete=sum(row[2] for row in rows) < DEAD_COUNTED)


@plan(reads=True)
def keys_used() -> Steps[list[KeyUse]]:
    """How many rows need which key to be decrypted. It reads all rows."""
    return [KeyUse(*row) for row in (yield Statement("insight/keys_used", {}))]


@plan(reads=True)
def schedules(*, limit: int = 100, now: datetime | None = None) -> Steps[list[ScheduleLag]]:
    """How late schedules are, the latest first.

    Args:
        limit: at most how many.
        now: the instant; the database's own by default.
    """
    return [_lag(row) for row in (yield Statement("insight/schedules", {"limit": limit, "now": now}))]


@plan(reads=True)
def deploys() -> Steps[list[Deploy]]:
    """The versions of the user's code that went live, newest first."""
    return [Deploy(*row) for row in reversed((yield Statement("insight/deploys", {})))]


@plan
def store(*, now: datetime | None = None) -> Steps[StoreHealth]:
    """How the tables stand.

    Args:
        now: the instant; the database's own by default.
    """
    tables = [TableHealth(*row) for row in (yield Statement("insight/tables", {}))]
    indices = yield Statement("insight/indices", {"limit": LARGEST})
    horizon = yield Statement("insight/horizon", {"limit": OLDEST})
    ((days, first, last, strays, at, version, freeze_max_age),) = yield Statement(
        "insight/history", {"now": now}
    )
    return StoreHealth(
        at=at,
        version=version.partition(" ")[0],
        bytes=sum(one.bytes for one in tables),
        tables=tuple(tables),
        indices=tuple(IndexHealth(*row) for row in indices),
        horizon=tuple(VacuumHorizon(*row) for row in horizon),
        history_days=days,
        history_from=first,
        history_to=last,
        history_strays=strays,
        freeze_max_age=freeze_max_age,
    )


def _group(row: Row) -> ErrorGroup:
    task, kind, reason, message, jobs, queues, first_at, last_at, last_job = row[:9]
    key = error_group_key(task, kind, reason, message)
    return ErrorGroup(task, kind, reason, message, jobs, tuple(queues), first_at, last_at, last_job, key)


def _lag(row: Row) -> ScheduleLag:
    name, task, queue, paused, error, next_at, lag, last_at, last_lag, module = row[:10]
    state = "active" if next_at is not None else "ended"
    if paused or error is not None:
        state, next_at = "paused" if error is None else "set aside", None
    timing = None
    with suppress(Exception):  # a row that makes no sense is shown, too
        timing = timing_of(row[10:])
    return ScheduleLag(name, task, queue, state, next_at, lag, last_at, last_lag, error, module, timing)
