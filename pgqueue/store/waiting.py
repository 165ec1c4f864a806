"""Plans for callers that wait for a job: whether it has ended, with which result, and why it has not."""

from datetime import datetime
from typing import NamedTuple

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.records import job_of
from pgqueue.values.job import Job
from pgqueue.values.why import MOST_AHEAD, Facts, Why, explain

_RESULT = Job.__struct_fields__.index("result")


class Look(NamedTuple):
    """The state of a job whose result a caller waits for.

    Attributes:
        job: the job.
        result: its result as JSON; None: it has none.
    """

    job: Job
    result: str | None


@plan
def look(job_id: int) -> Steps[Look | None]:
    """The record of one job, and its stored result; None: there is no record."""
    rows = yield Statement("show", {"id": job_id})
    return Look(job_of(rows[0]), rows[0][_RESULT]) if rows else None


@plan
def why(job_id: int, *, now: datetime | None = None) -> Steps[Why]:
    """Why a job does not run.

    Args:
        job_id: the job's id.
        now: the time; by default the database's clock.
    """
    rows = yield Statement("why", {"id": job_id, "most_ahead": MOST_AHEAD, "now": now})
    return explain(job_id, Facts(*rows[0]) if rows else None)
