"""Admission: the place between an enqueue and the ready jobs, where a job waits that must not run yet.

Jobs wait before their queue, not in it. A job that has to wait for something (another job, a free place, its turn) is
``blocked``, and each thing that it waits for, a *reason*, is a row in ``waits``. Claims do not see blocked jobs, and a job
that waits for nothing is never handled here.

The feature that blocks jobs names its reasons and decides when a reason is gone. It must keep two rules:

- :func:`block` runs in the transaction that enqueues the job, so that no worker can claim the job before.
- Two transactions lock the same row (the other job's, the limit's): the one that blocks a job for a reason, and the one
  that removes the reason. Without that lock, a job could start to wait for something that has just happened.

:func:`admit` runs in the transaction that removes the reason, so that the jobs are admitted exactly if it commits. It
waits for a job's row that another transaction has locked. A worker's completer then postpones that verdict and continues.
"""

from collections.abc import Collection
from datetime import datetime

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.notifications import wake
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import JobState


@plan
def block(job_ids: Collection[int], reasons: Collection[str]) -> Steps[list[int]]:
    """Block jobs until every reason is removed. Run it in the transaction that enqueues them.

    Args:
        job_ids: jobs that are scheduled or ready.
        reasons: what each of them waits for; at least one.

    Returns:
        The ids of the jobs that are blocked now. The other jobs are running or have ended.
    """
    params = {"ids": numbers([*job_ids]), "reasons": texts(sorted({*reasons}))}
    return sorted(row[0] for row in (yield Statement("jobs/block", params)))


@plan(transaction=True)
def admit(reasons: Collection[str], *, now: datetime | None = None) -> Steps[States]:
    """Remove reasons, make those jobs ready that wait for nothing else, and wake idle workers for them.

    Args:
        reasons: what no job has to wait for any more.
        now: the instant; the database's own by default.

    Returns:
        The state of each admitted job: ready, or scheduled where it is not due.
    """
    removed = texts(sorted({*reasons}))
    if not (yield Statement("jobs/lock_blocked", {"reasons": removed})):
        return {}
    rows = yield Statement("jobs/admit", {"reasons": removed, "now": now})
    states = {job_id: JobState(state) for job_id, state in rows}
    if JobState.READY in states.values():
        yield from wake()
    return states


@plan
def forget(job_ids: Collection[int]) -> Steps[None]:
    """Remove the reasons of jobs that have ended."""
    yield Statement("jobs/forget_waits", {"ids": numbers([*job_ids])}, returns=False)
