"""Plans by which people look at workers and ask them to do something.

The worker learns it from its row: a notification has it look at once, and each heartbeat looks, too
(:func:`pgqueue.store.workers.leases.beat`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pgqueue.errors import UnknownWorker
from pgqueue.store import audit
from pgqueue.store.arrays import texts
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.jobs.options import check_text
from pgqueue.values.queues.standing import UnknownTaskJobs
from pgqueue.values.workers.load import Bounds
from pgqueue.values.workers.worker import ALL, Steered, WorkerRequest, WorkerStatus, choose_workers


@plan
def listed(*, now: datetime | None = None) -> Steps[list[WorkerStatus]]:
    """Every worker that is known, by host and process.

    Args:
        now: the instant; the database's own by default.
    """
    return [_status(row) for row in (yield Statement("workers/list", {"now": now}))]


@plan(reads=True)
def unknown_tasks(*, now: datetime | None = None) -> Steps[list[UnknownTaskJobs]]:
    """The tasks of waiting jobs that no live worker runs, those first that no worker has run for longest.

    Args:
        now: the instant; the database's own by default.
    """
    return [UnknownTaskJobs(*row) for row in (yield Statement("insight/unknown_tasks", {"now": now}))]


@plan
def note_unknown_tasks(
    worker: UUID, met: Sequence[tuple[str, str]], *, now: datetime | None = None
) -> Steps[None]:
    """Note tasks of waiting jobs that a worker does not run, if no other live worker runs them.

    Args:
        worker: which.
        met: the queue of the jobs, and the task.
        now: the instant; the database's own by default.
    """
    queues, tasks = zip(*met, strict=True)
    params = {"worker": worker, "queues": texts(queues), "tasks": texts(tasks), "now": now}
    yield Statement("workers/note_unknown_tasks", params, returns=False)


@plan
def note_left_out(
    worker: UUID,
    tasks: Sequence[str],
    *,
    queues: Sequence[str] | None,
    known: Sequence[str],
    now: datetime | None = None,
) -> Steps[list[tuple[str, float]]]:
    """Note tasks that have waiting jobs and that no live worker runs, though the worker claims no job of them.

    Args:
        worker: which.
        tasks: those that it leaves out of its claims. It looks for those that were noted before, too.
        queues: what it serves; None: all queues.
        known: the tasks that it runs.
        now: the instant; the database's own by default.

    Returns:
        Each task that was noted before, and for how many seconds no worker has run it.
    """
    params = {
        "tasks": texts(tasks),
        "known": texts(known),
        "queues": None if queues is None else [*queues],
        "now": now,
    }
    rows = yield Statement("workers/left_out_tasks", params)
    if rows:
        yield from note_unknown_tasks(worker, [(queue, task) for queue, task, _ in rows], now=now)
    return [(task, seconds) for _, task, seconds in rows if seconds is not None]


@plan(transaction=True)
def ask(which: str, what: WorkerRequest, *, now: datetime | None = None) -> Steps[Steered]:
    """Ask workers to do something.

    Args:
        which: as for :func:`pgqueue.values.workers.worker.choose_workers`.
        what: what they are to do, and who asks.
        now: the instant; the database's own by default.

    Raises:
        UnknownWorker: there is none, it is dead, or it ended a moment ago.
        InvalidOption: several may be meant, or the one that is cannot do this.
    """
    check_text("by", what.by or "")
    found = choose_workers(which, (yield from listed(now=now)), what)
    if not found.asked:
        return found
    rows = yield Statement(
        "workers/ask",
        {
            "workers": [one.id for one in found.asked],
            "minimum": what.bounds and what.bounds.minimum,
            "maximum": what.bounds and what.bounds.maximum,
            "quiet": what.quiet,
            "end": what.end,
            "by": what.by,
            "now": now,
        },
    )
    told = {row[0] for row in rows}
    if not told:
        if which == ALL:  # each of them ended a moment ago
            return Steered((), found.refused)
        raise UnknownWorker(f"worker {found.asked[0]} ended a moment ago")
    asked = tuple(one for one in found.asked if one.id in told)
    yield from audit.note(
        f"worker {what.verb}", which, by=what.by, workers=", ".join(map(str, asked)), slots=what.bounds
    )
    return Steered(asked, found.refused)


def _status(row: Row) -> WorkerStatus:
    most, least, slots = row[8:11]
    return WorkerStatus(
        id=row[0],
        host=row[1],
        pid=row[2],
        version=row[3],
        queues=None if row[4] is None else tuple(row[4]),
        tasks=None if row[5] is None else tuple(row[5]),
        started_at=row[6],
        alive=row[7],
        bounds=Bounds(most if least is None else least, most),
        slots=most if slots is None else slots,
        listens=least is not None,
        quiet=row[11],
        supervised=row[12],
        answer=row[13],
        blocked_since=row[14],
        not_looked=row[15],
        not_returned=row[16],
        asked=asked_of(row[17:]),
    )


def asked_of(row: Sequence[Any]) -> WorkerRequest:
    """What a row says that a worker is asked to do: its columns ``ask_minimum`` to ``asked_by``."""
    least, most, quiet, end, at, by = row
    return WorkerRequest(
        bounds=None if least is None else Bounds(least, most), quiet=quiet, end=end, at=at, by=by
    )


@plan
def has_free_slots(
    worker: UUID, queue: str, task: str, slots: int, *, now: datetime | None = None
) -> Steps[bool]:
    """Whether another worker waits for jobs of this queue and task, and has this many free slots.

    Args:
        worker: the one that asks.
        queue: of the job.
        task: the job's.
        slots: how many the job takes.
        now: the instant; the database's own by default.
    """
    params = {"worker": worker, "queue": queue, "task": task, "slots": slots, "now": now}
    ((found,),) = yield Statement("workers/has_free_slots", params)
    return bool(found)
