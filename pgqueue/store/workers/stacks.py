"""Plans about the stacks of running jobs: a program asks, the worker that runs the job answers.

The worker learns of a question as of everything that it is asked: a notification has it look at once, and each heartbeat
looks, too (:func:`pgqueue.store.workers.leases.beat`). What it answers is read in :mod:`pgqueue.worker.stacks`.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from pgqueue.errors import InvalidOption
from pgqueue.store.arrays import numbers
from pgqueue.store.jobs.control import is_id
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.workers.worker import Stack


@plan
def ask(job_id: int, *, by: str | None, now: datetime | None = None) -> Steps[Stack | None]:
    """Ask the worker that runs a job for the job's stack; None: it does not run.

    Args:
        job_id: which.
        by: who asks.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: it is held by a take, or by a worker that cannot be asked.
    """
    if not is_id(job_id):
        return None
    rows = yield Statement("stacks/ask", {"id": job_id, "by": by, "now": now})
    if not rows:
        return None
    worker, asked_at, listens, _ = rows[0]
    if not listens:
        raise InvalidOption(
            f"job {job_id}: {worker} holds it; it is a take, or a worker that is gone, and cannot be asked for a stack"
        )
    return Stack(job_id, worker, asked_at)


@plan
def look(job_id: int, *, now: datetime | None = None) -> Steps[Stack | None]:
    """The answer to the last question; None: it was not asked for within ten minutes.

    Args:
        job_id: of which job.
        now: the instant; the database's own by default.
    """
    rows = yield Statement("stacks/look", {"id": job_id, "now": now})
    return Stack(job_id, *rows[0]) if rows else None


@plan
def answer(worker: UUID, stacks: Mapping[int, str], *, now: datetime | None = None) -> Steps[None]:
    """Say where jobs of a worker are.

    Args:
        worker: which worker.
        stacks: what there is to say, by job.
        now: the instant; the database's own by default.
    """
    params = {"jobs": numbers([*stacks]), "stacks": [*stacks.values()], "worker": worker, "now": now}
    yield Statement("stacks/answer", params, returns=False)
