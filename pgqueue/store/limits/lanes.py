"""What the database is told of limits, how jobs get the lanes in which they wait for them, and how these lanes are found.

:mod:`pgqueue.store.limits.limits` claims the jobs from there.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs.finish import cancel_waiting
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob, Outcome
from pgqueue.values.limits.limit import LimitNumbers, keys_of
from pgqueue.values.limits.state import WaitingLane
from pgqueue.values.limits.status import LaneChange
from pgqueue.values.limits.task_limits import TaskLimits, limit_reached

AT_ONCE = 1_000
"""How many jobs are put into other lanes in one transaction."""
ROUNDS, PAUSE = 10, 0.5
"""How often jobs that others had locked are tried again, and how many seconds before each time."""
JOBS_READ_PER_LANE = 4
"""How many jobs are read for each lane that is asked for, at most, where lanes are found by reading on."""


class LaneScan(NamedTuple):
    """Lanes in which jobs wait.

    Attributes:
        lanes: those that may be claimed from.
        last: the queue and the name of the last lane that was looked at; the start of the look, where there was none.
        looked_at: how many lanes were looked at.
    """

    lanes: Sequence[WaitingLane]
    last: tuple[str, str]
    looked_at: int


@plan
def declare(limits: Mapping[str, LimitNumbers]) -> Steps[None]:
    """Store what the code says of limits; what an operator has set stays."""
    names = sorted(limits)
    params = {
        "names": texts(names),
        "mosts": numbers([limits[name].most for name in names]),
        "everies": numbers([limits[name].every for name in names]),
        "bursts": numbers([limits[name].burst for name in names]),
        "declared": texts(limits[name].declared for name in names),
    }
    yield Statement("limits/declare", params, returns=False)


@plan
def declare_tasks(tasks: Mapping[str, TaskLimits | None]) -> Steps[None]:
    """Store which limits and shares these tasks have, for jobs that SQL enqueues; None: a task has neither."""
    found = {name: one for name, one in sorted(tasks.items()) if one is not None}
    params = {
        "known": texts(tasks),
        "names": texts(found),
        "keys": texts(msgspec.json.encode(one.keys).decode() for one in found.values()),
        "costs": texts(msgspec.json.encode(one.cost).decode() for one in found.values()),
        "ordered": [one.ordered for one in found.values()],
        "defaults": texts(one.stored_defaults for one in found.values()),
    }
    yield Statement("limits/declare_tasks", params, returns=False)


@plan(transaction=True)
def put(jobs: Mapping[int, tuple[str, int | None]]) -> Steps[None]:
    """Give new jobs their lanes. Run it in the transaction that enqueues them.

    Args:
        jobs: by id, the lane, and what the start costs; None: 1.
    """
    params = {
        "ids": numbers(list(jobs)),
        "lanes": texts(lane for lane, _ in jobs.values()),
        "costs": numbers([cost for _, cost in jobs.values()]),
    }
    yield Statement("limits/put", params, returns=False)


@plan(transaction=True)
def require_place(job: NewJob, *, now: datetime | None = None) -> Steps[EnqueueAnswer | None]:
    """Do what the limit of a new job says of a full lane: of that, its queue's waiting jobs count, and all that run.

    Two transactions that add jobs to one lane do so one after the other.

    Returns:
        The answer to the enqueue, where the job is not to be added; None: it is to be added.

    Raises:
        LimitReached: no place is free, and the limit refuses more jobs.
    """
    assert job.when_full is not None  # noqa: S101 - only asked of jobs that have one
    policy, declared = job.when_full
    limit = keys_of(job.lane or "")[0].limit
    yield Statement("limits/lock_lane", {"lane": job.lane}, returns=True)
    params = {"limit": limit, "most": declared, "lane": job.lane, "queue": job.queue}
    ((most, running, waiting),) = yield Statement("limits/full", params)
    if running + len(waiting) < most:
        return None
    if policy == "refuse":
        raise limit_reached(limit, most)
    if policy == "oldest":
        return EnqueueAnswer(waiting[0], Outcome.REJECTED) if waiting else None
    if waiting:
        yield from cancel_waiting(waiting, now=now)
    return None


@plan
def relane(name: str, to: str | None) -> Steps[LaneChange]:
    """Put the jobs of a limit into other lanes, in short transactions, whether they wait in theirs or not.

    Args:
        name: the limit that they have.
        to: the limit that they get, by the same values; None: none.
    """
    jobs = 0
    for round_ in range(ROUNDS + 1):
        after: int | None = 0
        locked = 0
        while after is not None:
            params = {"name": name, "to": to, "after": after, "limit": AT_ONCE}
            ((changed, after, held),) = yield Statement("limits/relane", params)
            jobs, locked = jobs + changed, locked + held
        if not locked or round_ == ROUNDS:
            break
        yield Statement("bulk/wait", {"seconds": PAUSE})
    return LaneChange(jobs, locked)


@plan
def find(queues: Sequence[str] | None, after: tuple[str, str], limit: int) -> Steps[LaneScan]:
    """The next lanes in which jobs wait, in the order of queues and names.

    Args:
        queues: of which queues; None: all.
        after: the queue and the lane after which to look.
        limit: at most how many.
    """
    params = {
        "queues": None if queues is None else texts(queues),
        "after_queue": after[0],
        "after_lane": after[1],
        "limit": limit,
    }
    rows = yield Statement("limits/find", params)
    return _lane_scan(rows, after)


@plan
def read_on(after: tuple[str, str], limit: int) -> Steps[LaneScan]:
    """As :func:`find`, lanes of one queue, from its next jobs; cheaper where lanes have few jobs each, and may find fewer."""
    queue, lane = after
    params = {"queue": queue, "after": lane, "most": limit * JOBS_READ_PER_LANE, "limit": limit}
    rows = yield Statement("limits/read_on", params)
    return _lane_scan(rows, after)


@plan
def waiting_queues(limit: int) -> Steps[list[str]]:
    """The queues in which jobs wait in lanes; at most ``limit``."""
    return [row[0] for row in (yield Statement("limits/queues", {"limit": limit}))]


def _lane_scan(rows: Sequence[tuple[Any, ...]], after: tuple[str, str]) -> LaneScan:
    lanes = [
        WaitingLane(queue, lane, cost or 1, limited=limited, since=since, task=task)
        for queue, lane, cost, is_open, limited, since, task in rows
        if is_open
    ]
    return LaneScan(lanes, (rows[-1][0], rows[-1][1]) if rows else after, len(rows))
