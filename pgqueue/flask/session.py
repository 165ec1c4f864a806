"""The session of the current app, and how jobs join its transaction.

Within an app context, ``db.session`` writes every job that is enqueued without a connection, if Flask-SQLAlchemy uses
the queue's own database. So the job is like a row that was added to the session: it exists if and only if the session
commits. It makes no difference what the session has done before: otherwise the code of a view would not show whether
its jobs join the session.

A plain task's ``ctx.transaction()`` is a transaction of that session, too. It keeps one connection for the length of the
block. The completion must never be written on a connection that the session has returned to its engine, because another
thread may use it by then.

Jobs are lost when the session is closed without a commit. Most often this is a mistake: a view has committed first and enqueued
after it. It is logged; while the app is in debug or testing mode, the end of the app context raises an exception. If the view
raised, or answered with an error, it is no mistake, and nothing is reported.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from flask import Flask, Response, current_app, g, has_app_context
from psycopg.conninfo import conninfo_to_dict

from pgqueue.errors import ConfigurationError, DatabaseError
from pgqueue.store.connections.connection import BEGIN, NOT_ROLLED_BACK
from pgqueue.store.connections.database import Database
from pgqueue.store.flows.flows import AddedFlow
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob

if TYPE_CHECKING:
    from sqlalchemy import Dialect, Engine
    from sqlalchemy.orm import Session, SessionTransaction

T = TypeVar("T")

log = logging.getLogger("pgqueue.flask")

OUTSIDE_SESSION = "pgqueue_outside_session"
"""In ``flask.g``: this app context's enqueues are committed at once."""
TALLY = "pgqueue_uncommitted"
"""In a session's ``info``: the :class:`UncommittedJobs` of its transaction."""
LOST = "pgqueue_lost"
"""In ``flask.g``: the tallies of sessions that were closed without a commit."""
ANSWERED_ERROR = "pgqueue_answered_error"
"""In ``flask.g``: the view has answered with an error."""
SHOWN_IDS = 5


DSN_HINT = (
    "set app.config['PGQUEUE_DSN'], or app.config['SQLALCHEMY_DATABASE_URI'] to a PostgreSQL, or PGQUEUE_DSN or "
    "DATABASE_URL in the environment, for example postgresql://user@localhost/app"
)


class FlaskDatabase(Database):
    """The database of an app's queue, which knows the app's session."""

    dsn_hint = DSN_HINT
    dsn_settings = "PGQUEUE_DSN or SQLALCHEMY_DATABASE_URI of app.config, PGQUEUE_DSN or DATABASE_URL"
    migrate_hint = "run `flask pgqueue migrate`"

    def __init__(
        self,
        dsn: str | None = None,
        *,
        session: "bool | Callable[[], Session] | None" = None,
        other_database: str | None = None,
        **options: Any,  # noqa: ANN401 - Database's own
    ) -> None:
        """``session``: True: Flask-SQLAlchemy's; a function: what it returns; False: none.

        ``session=None``: Flask-SQLAlchemy's, if it uses this same database. ``other_database`` is the kind of SQLAlchemy's
        database, if it is no PostgreSQL.
        """
        super().__init__(dsn, **options)
        if other_database is not None:
            self.dsn_hint = f"SQLALCHEMY_DATABASE_URI leads to {other_database}, and jobs are kept in PostgreSQL; {DSN_HINT}"
        self._joins = session
        self._shared: WeakKeyDictionary[Engine, bool] = WeakKeyDictionary()

    def session(self) -> "Session | None":
        """The session to join in the current context; None: there is none.

        Raises:
            ConfigurationError: PGQUEUE_SESSION is True and there is no session, or its driver is not psycopg.
        """
        if self._joins is False or not has_app_context() or OUTSIDE_SESSION in g:
            return None
        if callable(self._joins):
            return self._joins()
        extension: Any = current_app.extensions.get("sqlalchemy")
        engine = extension and extension.engines.get(None)
        if self._joins and not engine:
            raise ConfigurationError(
                "PGQUEUE_SESSION = True, but this app has no Flask-SQLAlchemy with a default database"
            )
        if not engine or not (self._joins or self._is_shared_by(engine)):
            return None
        _require_psycopg(engine)
        session: Session = extension.session()
        return session

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`Database.run` does; one that adds jobs or a signal, in the transaction of the session."""
        session = self.session() if plan.kind.adds and connection is None else None
        return super().run(plan, connection) if session is None else self._run_in(session, plan)

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, awaited."""
        # An `async def` task's ctx.transaction() is on a connection of the queue's: the session is not in it.
        joins = plan.kind.adds and connection is None and not self.in_job_transaction
        session = self.session() if joins else None
        if session is None:
            return await super().arun(plan, connection)
        return await self.acall(self._run_in, session, plan)  # the session's driver blocks

    def joins(self, connection: object) -> bool:
        """Whether jobs would be added on the caller's connection, or in a transaction of the session or of a job."""
        return super().joins(connection) or (connection is None and self.session() is not None)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of the session to join; without a session, one on a connection from the pool."""
        session = self.session()
        with super().transaction() if session is None else _transaction_of(session) as connection:
            yield connection

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        session = None if dsn and self._joins else self._joins
        return FlaskDatabase(dsn or self._given_dsn, session=session, **options)

    def _run_in(self, session: "Session", plan: Plan[T]) -> T:
        answer = super().run(plan, session)
        if answer is not None and (
            jobs := _added_by(plan)
        ):  # None: it has added nothing, and another plan follows
            watch(session, _ids_in(answer), Counter(job.task for job in jobs))
        return answer

    def _is_shared_by(self, engine: "Engine") -> bool:
        if engine not in self._shared:
            self._shared[engine] = engine.dialect.name == "postgresql" and (
                _place(_connect_arguments(engine)) == _place(conninfo_to_dict(self.dsn))
            )
        return self._shared[engine]


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


@contextmanager
def _transaction_of(session: "Session") -> Iterator[psycopg.Connection[Any]]:
    """Begin on a connection that is reserved for the whole block, and let the session use it."""
    if session.in_transaction():
        raise DatabaseError(
            "ctx.transaction() begins a transaction of db.session, which is in one already: "
            "move the earlier reads and writes into the block, or call db.session.commit() before it"
        )
    engine: Any = session.get_bind()
    with engine.connect() as pinned:
        session.connection(bind_arguments={"bind": pinned})
        begun, connection = session.get_transaction(), pinned.connection.driver_connection
        try:
            connection.execute(BEGIN)  # else a transaction() block of the task would be the outermost one
            with _no_commits(session):
                yield connection
            _require_open(begun, session)
            session.commit()
        except BaseException as error:
            _undo(session, connection)
            if not isinstance(error, psycopg.Rollback):
                raise
            if connection.closed:
                raise psycopg.OperationalError(NOT_ROLLED_BACK) from error
            if error.transaction is not None:
                raise


@contextmanager
def _no_commits(session: "Session") -> Iterator[None]:
    from sqlalchemy import event  # noqa: PLC0415 - heavy, and not every Flask app has it

    event.listen(session, "before_commit", _refuse_commit)
    try:
        yield
    finally:
        event.remove(session, "before_commit", _refuse_commit)


def _refuse_commit(session: "Session") -> None:
    if not session.in_nested_transaction():
        raise DatabaseError(
            "db.session.commit() within ctx.transaction(), which commits at the end of its block: "
            "the job's completion would not be part of it; remove the commit"
        )


def _require_open(begun: "SessionTransaction | None", session: "Session") -> None:
    if session.get_transaction() is not begun:
        raise DatabaseError(
            "db.session was rolled back or closed within ctx.transaction(): the whole block is rolled back"
        )


def _undo(session: "Session", connection: psycopg.Connection[Any]) -> None:
    session.rollback()
    with suppress(psycopg.Error):  # it may be broken
        connection.rollback()  # in case the session no longer has it and so did not roll it back


def _require_psycopg(engine: "Engine") -> None:
    if engine.driver != "psycopg":
        raise ConfigurationError(
            f"jobs join db.session, but its driver is {engine.driver}: write "
            "SQLALCHEMY_DATABASE_URI = 'postgresql+psycopg://...', or set PGQUEUE_SESSION = False"
        )


def _connect_arguments(engine: "Engine") -> Mapping[str, Any]:
    from sqlalchemy.dialects.postgresql import psycopg as dialect  # noqa: PLC0415 - heavy, and not every app has it

    psycopgs: Dialect = dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    return psycopgs.create_connect_args(engine.url)[1]


def _place(named: Mapping[str, Any]) -> tuple[str, ...]:
    port, name = named.get("port") or 5432, named.get("dbname") or named.get("user")
    return str(named.get("host") or named.get("hostaddr")), str(port), str(name)


def _added_by(plan: Plan[Any]) -> Sequence[NewJob]:
    jobs: Sequence[NewJob] = ()
    match plan.arguments:
        case {"job": job}:
            jobs = [job]
        case {"jobs": several}:
            jobs = several
        case {"flow": flow}:
            jobs = flow.jobs
    return jobs


def _ids_in(answer: Any) -> Sequence[int]:  # noqa: ANN401 - of a plan that adds jobs
    match answer:
        case EnqueueAnswer():
            return [answer.id]
        case AddedFlow():
            return answer.jobs
    return [one.id for one in answer]


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
