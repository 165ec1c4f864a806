"""Reports jobs that are lost because their session was closed without a commit.

Most often this is a mistake: a view has committed first and enqueued after it. It is logged; while the app is in debug or
testing mode, the end of the app context raises an exception. If the view raised, or answered with an error, it is no
mistake, and nothing is reported.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from flask import Flask, Response, current_app, g, has_app_context

from pgqueue.errors import DatabaseError
from pgqueue.values.jobs.job import NewJob

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

log = logging.getLogger("pgqueue.flask")

TALLY = "pgqueue_uncommitted"
"""In a session's ``info``: the :class:`UncommittedJobs` of its transaction."""
LOST = "pgqueue_lost"
"""In ``flask.g``: the tallies of sessions that were closed without a commit."""
ANSWERED_ERROR = "pgqueue_answered_error"
"""In ``flask.g``: the view has answered with an error."""
SHOWN_IDS = 5


class UncommittedJobs:
    """The jobs that one transaction has added.

    Attributes:
        tasks: how many jobs of each task.
        ids: the ids of the first few jobs.
    """

    def __init__(self) -> None:
        self.tasks: Counter[str] = Counter()
        self.ids: list[int] = []

    def __add__(self, other: "UncommittedJobs") -> "UncommittedJobs":
        both = UncommittedJobs()
        both.tasks, both.ids = self.tasks + other.tasks, self.ids + other.ids
        return both

    def __str__(self) -> str:
        """Like ``3 jobs (shop.send: 2, shop.bill: 1; ids 4, 5, 6)``."""
        jobs = self.tasks.total()
        tasks = ", ".join(f"{task}: {count}" for task, count in self.tasks.most_common())
        ids = ", ".join(map(str, self.ids[:SHOWN_IDS])) + (", …" if jobs > SHOWN_IDS else "")
        return f"{jobs} {'job' if jobs == 1 else 'jobs'} ({tasks}; {'id' if jobs == 1 else 'ids'} {ids})"


def count_jobs(jobs: Iterable[NewJob], tasks: Counter[str]) -> Iterable[NewJob]:
    """The same jobs; each job's task is counted when the job is read."""
    if isinstance(jobs, Sequence):
        tasks.update(job.task for job in jobs)
        return jobs
    return _count_each(jobs, tasks)


def watch(session: "Session", ids: Sequence[int], tasks: Counter[str]) -> None:
    """Record the jobs that a session's transaction has added, to report them if it ends without a commit.

    Args:
        session: the session.
        ids: the jobs' ids.
        tasks: how many jobs of each task.
    """
    from sqlalchemy import event  # noqa: PLC0415 - heavy, and not every Flask app has it

    if TALLY not in session.info:
        event.listen(session, "after_commit", _committed_or_rolled_back)
        event.listen(session, "after_rollback", _committed_or_rolled_back)
        event.listen(session, "after_transaction_end", _forget_transaction)
        session.info[TALLY] = UncommittedJobs()
    tally: UncommittedJobs = session.info[TALLY]
    tally.tasks.update(tasks)
    tally.ids.extend(ids[: SHOWN_IDS - len(tally.ids)])


def report_lost_jobs(app: Flask) -> None:
    """Report, at the end of each app context, jobs that were lost in it."""
    app.after_request(_note_errors)
    app.teardown_appcontext_funcs.insert(
        0, _report
    )  # the first in this list is called last, after Flask-SQLAlchemy's has closed the session


def _count_each(jobs: Iterable[NewJob], tasks: Counter[str]) -> Iterator[NewJob]:
    for job in jobs:
        tasks[job.task] += 1
        yield job


def _committed_or_rolled_back(session: "Session") -> None:
    if not session.in_nested_transaction():
        session.info[TALLY] = UncommittedJobs()


def _forget_transaction(session: "Session", transaction: "SessionTransaction") -> None:
    if transaction.parent is not None or not session.info[TALLY].tasks:
        return
    lost, session.info[TALLY] = session.info[TALLY], UncommittedJobs()
    if has_app_context():
        g.setdefault(LOST, []).append(lost)
    else:
        _log(lost)


def _note_errors(response: Response) -> Response:
    if response.status_code >= 400:  # noqa: PLR2004 - by HTTP, an error from here on
        setattr(g, ANSWERED_ERROR, True)
    return response


def _report(error: BaseException | None) -> None:
    found: list[UncommittedJobs] = g.pop(LOST, [])
    if not found or error is not None or ANSWERED_ERROR in g:
        return
    lost = sum(found, UncommittedJobs())
    if current_app.debug or current_app.testing:
        raise DatabaseError(_message(lost))
    _log(lost)


def _log(lost: UncommittedJobs) -> None:
    log.warning(_message(lost), extra={"jobs": lost.tasks.total(), "tasks": sorted(lost.tasks)})


def _message(lost: UncommittedJobs) -> str:
    was, lost_is = ("was", "it is") if lost.tasks.total() == 1 else ("were", "they are")
    return (
        f"{lost} {was} enqueued in db.session, which was closed without a commit: {lost_is} lost. Call "
        "db.session.commit() after the enqueue, or enqueue with using(connection=OWN_CONNECTION)"
    )
