"""How jobs get the lanes in which they wait for their limits; :mod:`pgqueue.store.limits.limits` claims them from there."""

from collections.abc import Mapping
from datetime import datetime

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs.finish import cancel_waiting
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob, Outcome
from pgqueue.values.limits.limit import keys_of
from pgqueue.values.limits.status import LaneChange
from pgqueue.values.limits.task_limits import limit_reached

AT_ONCE = 1_000
"""How many jobs are put into other lanes in one transaction."""
ROUNDS, PAUSE = 10, 0.5
"""How often jobs that others had locked are tried again, and how many seconds before each time."""


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
