"""Notifications: to workers that sleep, and to programs that wait for a job to end."""

from collections.abc import Iterable

from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.jobs.job import JobFlags

TOLD_AT_ONCE = 350
"""Ids in one notification, which holds fewer than 8,000 bytes."""


@plan
def wake() -> Steps[None]:
    """Tell idle workers to look for jobs again."""
    yield Statement("jobs/wake", {})


@plan
def tell_ended(rows: Iterable[Row]) -> Steps[None]:
    """Tell the programs that wait for jobs that these have ended.

    Args:
        rows: the id, the state and ``flags`` of each job that has ended.
    """
    awaited = [row[0] for row in rows if row[2] and row[2] & JobFlags.TELL]
    for start in range(0, len(awaited), TOLD_AT_ONCE):
        said = ",".join(map(str, awaited[start : start + TOLD_AT_ONCE]))
        yield Statement("results/tell_ended", {"ids": said})
