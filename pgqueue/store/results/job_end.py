"""Plans for callers that wait for jobs: have they ended, and with which result; notify their ends."""

from collections.abc import Sequence
from typing import NamedTuple

from pgqueue.store.arrays import numbers
from pgqueue.store.jobs.control import job_of
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import Job

_RESULT = Job.__struct_fields__.index("result")


class EndLook(NamedTuple):
    """The state of a job whose result a caller waits for.

    Attributes:
        job: the job.
        result: its result as JSON; None: it has none.
    """

    job: Job
    result: str | None


@plan
def look(job_id: int) -> Steps[EndLook | None]:
    """The record of one job, and its stored result; None: there is no record."""
    return (yield from looks([job_id])).get(job_id)


@plan
def looks(job_ids: Sequence[int]) -> Steps[dict[int, EndLook]]:
    """What :func:`look` returns for several jobs, by id; those without a record are missing."""
    rows = yield Statement("jobs/show", {"ids": numbers(job_ids)})
    return {row[0]: EndLook(job_of(row), row[_RESULT]) for row in reversed(rows)}


@plan
def await_ends(job_ids: Sequence[int]) -> Steps[set[int]]:
    """Have the ends of these jobs notified.

    Returns:
        The jobs for which it is so; of the others, some have ended, and some are locked at the moment.
    """
    return {row[0] for row in (yield Statement("results/await_ends", {"ids": numbers(job_ids)}))}


@plan
def live_ids(job_ids: Sequence[int]) -> Steps[set[int]]:
    """Which of these jobs have not ended."""
    return {row[0] for row in (yield Statement("jobs/live_ids", {"ids": numbers(job_ids)}))}
