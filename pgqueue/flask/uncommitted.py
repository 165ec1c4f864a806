"""Jobs that a session's transaction has added: what is said when the session is closed without a commit.

Such jobs are gone, and most often that is a mistake: a view has committed first and enqueued after it. It is logged;
while the app is in debug or testing mode, an exception is raised where the app context ends. It is no mistake where the
view raised, or answered with an error: then nothing is said.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, current_app, g, has_app_context

from pgqueue.app.handle import JobHandle
from pgqueue.errors import DatabaseError
from pgqueue.values.job import NewJob

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

log = logging.getLogger("pgqueue.flask")

TALLY = "pgqueue_uncommitted"
"""In a session's ``info``: the :class:`Tally` of its transaction."""
LOST = "pgqueue_lost"
"""In ``flask.g``: the tallies of sessions that were closed without a commit."""
GAVE_UP = "pgqueue_gave_up"
"""In ``flask.g``: the view has answered with an error."""
IDS_TOLD = 5


class Tally:
    """The jobs that one transaction has added.

    Attributes:
        tasks: how many of each task.
        ids: the ids of the first few.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.tasks: Counter[str] = Counter()
        self.ids: list[int] = []

    def __add__(self, other: "Tally") -> "Tally":
        """Both."""
        both = Tally()
        both.tasks, both.ids = self.tasks + other.tasks, self.ids + other.ids
        return both

    def __str__(self) -> str:
        """Like ``3 jobs (shop.send: 2, shop.bill: 1; ids 4, 5, 6)``."""
        jobs = self.tasks.total()
        tasks = ", ".join(f"{task}: {count}" for task, count in self.tasks.most_common())
        ids = ", ".join(map(str, self.ids[:IDS_TOLD])) + (", …" if jobs > IDS_TOLD else "")
        return f"{jobs} {'job' if jobs == 1 else 'jobs'} ({tasks}; {'id' if jobs == 1 else 'ids'} {ids})"


def counted(jobs: Iterable[NewJob], tasks: Counter[str]) -> Iterable[NewJob]:
    """The same jobs; their tasks are counted as they are drawn."""
    if isinstance(jobs, Sequence):
        tasks.update(job.task for job in jobs)
        return jobs
    return _counting(jobs, tasks)


def watch(session: "Session", handles: Sequence[JobHandle[Any]], tasks: Counter[str]) -> None:
    """Note the jobs that a session's transaction has added, and say so should it end without a commit.

    Args:
        session: which.
        handles: of the jobs.
        tasks: how many of each task.
    """
    from sqlalchemy import event  # noqa: PLC0415 - heavy, and not every Flask app has it

    if TALLY not in session.info:
        event.listen(session, "after_commit", _settled)
        event.listen(session, "after_rollback", _settled)
        event.listen(session, "after_transaction_end", _ended)
        session.info[TALLY] = Tally()
    tally: Tally = session.info[TALLY]
    tally.tasks.update(tasks)
    tally.ids.extend(handle.id for handle in handles[: IDS_TOLD - len(tally.ids)])


def look_after(app: Flask) -> None:
    """Tell, at the end of an app's contexts, of jobs that were lost in them."""
    app.after_request(_note_errors)
    app.teardown_appcontext_funcs.insert(
        0, _tell
    )  # the last to be called: Flask-SQLAlchemy's closes the session


def _counting(jobs: Iterable[NewJob], tasks: Counter[str]) -> Iterator[NewJob]:
    for job in jobs:
        tasks[job.task] += 1
        yield job


def _settled(session: "Session") -> None:
    if not session.in_nested_transaction():
        session.info[TALLY] = Tally()


def _ended(session: "Session", transaction: "SessionTransaction") -> None:
    if transaction.parent is not None or not session.info[TALLY].tasks:
        return
    lost, session.info[TALLY] = session.info[TALLY], Tally()
    if has_app_context():
        g.setdefault(LOST, []).append(lost)
    else:
        _log(lost)


def _note_errors(response: Response) -> Response:
    if response.status_code >= 400:  # noqa: PLR2004 - by HTTP, an error from here on
        setattr(g, GAVE_UP, True)
    return response


def _tell(error: BaseException | None) -> None:
    found: list[Tally] = g.pop(LOST, [])
    if not found or error is not None or GAVE_UP in g:
        return
    lost = sum(found, Tally())
    if current_app.debug or current_app.testing:
        raise DatabaseError(_words(lost))
    _log(lost)


def _log(lost: Tally) -> None:
    log.warning(_words(lost), extra={"jobs": lost.tasks.total(), "tasks": sorted(lost.tasks)})


def _words(lost: Tally) -> str:
    return (
        f"{lost} were enqueued in db.session, which was closed without a commit: they are gone. Call "
        "db.session.commit() after the enqueue, or enqueue with using(connection=OWN_CONNECTION)"
    )
