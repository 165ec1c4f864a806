"""Plans for callers that wait for a job: whether it has ended, with which result, and why it has not."""

from datetime import datetime
from typing import NamedTuple

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.records import job_of
from pgqueue.values.job import Job
from pgqueue.values.why import MOST_AHEAD, Facts, Why, explain

_RESULT = Job.__struct_fields__.index("result")


class Look(NamedTuple):
    """A job as a caller finds it that waits for its result.

    Attributes:
        job: the job.
        result: its result as JSON; None: it has none.
    """

    job: Job
    result: str | None


@plan
def look(job_id: int) -> Steps[Look | None]:
    """Everything recorded of one job, and its result as it is stored; None: no record."""
    rows = yield Statement("show", {"id": job_id})
    return Look(job_of(rows[0]), rows[0][_RESULT]) if rows else None


@plan
def why(job_id: int, *, now: datetime | None = None) -> Steps[Why]:
    """Why a job does not run.

    Args:
        job_id: which.
        now: the instant; the database's own by default.
    """
    rows = yield Statement("why", {"id": job_id, "most_ahead": MOST_AHEAD, "now": now})
    return explain(job_id, Facts(*rows[0]) if rows else None)
