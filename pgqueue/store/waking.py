"""Notifications: to workers that sleep, and to programs that wait for a job to end."""

from collections.abc import Sequence

from pgqueue.store.plan import Statement, Steps, plan

TOLD_AT_ONCE = 350
"""Ids in one notification, which holds fewer than 8,000 bytes."""


@plan
def wake() -> Steps[None]:
    """Tell idle workers to look for jobs again."""
    yield Statement("wake", {})


@plan
def tell_ended(job_ids: Sequence[int]) -> Steps[None]:
    """Tell the programs that wait for these jobs that they have ended."""
    for start in range(0, len(job_ids), TOLD_AT_ONCE):
        said = ",".join(map(str, job_ids[start : start + TOLD_AT_ONCE]))
        yield Statement("tell_ended", {"ids": said})
