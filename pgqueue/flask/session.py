"""The session of the app at hand, and how jobs take part in its transaction.

Within an app context, whatever is enqueued without a connection is written by ``db.session``, if Flask-SQLAlchemy
leads to the queue's own database. So the job is like a row that was added to the session: it is there once the
session commits, and gone if it does not. This does not depend on what the session has done before, for then one
could not tell from reading a view which of the two it will be.

A plain task's ``ctx.transaction()`` is a transaction of that session, too. It keeps a connection of its own for
the length of the block: the completion must never be written on one that the session has given back to its
engine, where another thread may have it by then.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from flask import current_app, g, has_app_context
from psycopg.conninfo import conninfo_to_dict

from pgqueue.errors import ConfigurationError, DatabaseError
from pgqueue.store.connection import BEGIN
from pgqueue.store.database import Database

if TYPE_CHECKING:
    from sqlalchemy import Dialect, Engine
    from sqlalchemy.orm import Session, SessionTransaction

APART = "pgqueue_apart"
"""In ``flask.g``: this app context's enqueues are committed at once."""


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
        """Remember where the database is, and which session to join.

        Args:
            dsn: as for :class:`~pgqueue.store.database.Database`.
            session: True: Flask-SQLAlchemy's; a function: what it returns; False: none; None: Flask-SQLAlchemy's
                if it leads to this same database.
            other_database: of what kind SQLAlchemy's database is, where that is no PostgreSQL.
            options: as for :class:`~pgqueue.store.database.Database`.
        """
        super().__init__(dsn, **options)
        if other_database is not None:
            self.dsn_hint = f"SQLALCHEMY_DATABASE_URI leads to {other_database}, and jobs are kept in PostgreSQL; {DSN_HINT}"
        self._joins = session
        self._shared: WeakKeyDictionary[Engine, bool] = WeakKeyDictionary()

    def session(self) -> "Session | None":
        """The session to join at this place in the program; None: there is none.

        Raises:
            ConfigurationError: there should be one and is not, or its driver is not psycopg.
        """
        if self._joins is False or not has_app_context() or APART in g:
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

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of the session to join; where there is none, one on a connection from the pool."""
        session = self.session()
        with super().transaction() if session is None else _transaction_of(session) as connection:
            yield connection

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        session = None if dsn and self._joins else self._joins
        return FlaskDatabase(dsn or self._given_dsn, session=session, **options)

    def _is_shared_by(self, engine: "Engine") -> bool:
        """Whether an engine leads to this very database, by what the two DSNs say."""
        if engine not in self._shared:
            self._shared[engine] = engine.dialect.name == "postgresql" and (
                _place(_connect_arguments(engine)) == _place(conninfo_to_dict(self.dsn))
            )
        return self._shared[engine]


@contextmanager
def _transaction_of(session: "Session") -> Iterator[psycopg.Connection[Any]]:
    """Begin on a connection that stays ours for the whole block, and let the session work on it."""
    if session.in_transaction():
        raise DatabaseError(
            "ctx.transaction() begins a transaction of db.session, which is in one already: "
            "move what was read or written before into the block, or db.session.commit() it first"
        )
    engine: Any = session.get_bind()
    with engine.connect() as pinned:
        session.connection(bind_arguments={"bind": pinned})
        begun, connection = session.get_transaction(), pinned.connection.driver_connection
        try:
            connection.execute(BEGIN)  # else a transaction() block of the task's would be the outermost one
            with _nobody_commits(session):
                yield connection
            _require_open(begun, session)
            session.commit()
        except BaseException as error:
            _undo(session, connection)
            if not isinstance(error, psycopg.Rollback) or error.transaction is not None:
                raise


@contextmanager
def _nobody_commits(session: "Session") -> Iterator[None]:
    from sqlalchemy import event  # noqa: PLC0415 - as above

    event.listen(session, "before_commit", _refuse_commit)
    try:
        yield
    finally:
        event.remove(session, "before_commit", _refuse_commit)


def _refuse_commit(session: "Session") -> None:
    if not session.in_nested_transaction():
        raise DatabaseError(
            "db.session.commit() within ctx.transaction(), which commits by itself when its block is left: "
            "the job's completion would not be part of it"
        )


def _require_open(begun: "SessionTransaction | None", session: "Session") -> None:
    if session.get_transaction() is not begun:
        raise DatabaseError(
            "db.session was rolled back or closed within ctx.transaction(): so is the whole block"
        )


def _undo(session: "Session", connection: psycopg.Connection[Any]) -> None:
    session.rollback()
    with suppress(psycopg.Error):  # it may be broken
        connection.rollback()  # should the session have let go of it, nobody else would


def _require_psycopg(engine: "Engine") -> None:
    if engine.driver != "psycopg":
        raise ConfigurationError(
            f"jobs join db.session, but its driver is {engine.driver}: write "
            "SQLALCHEMY_DATABASE_URI = 'postgresql+psycopg://...', or set PGQUEUE_SESSION = False"
        )


def _connect_arguments(engine: "Engine") -> Mapping[str, Any]:
    """What libpq would be told of an engine's URL, whichever driver it is for."""
    from sqlalchemy.dialects.postgresql import psycopg as dialect  # noqa: PLC0415 - as above

    psycopgs: Dialect = dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    return psycopgs.create_connect_args(engine.url)[1]


def _place(named: Mapping[str, Any]) -> tuple[str, ...]:
    port, name = named.get("port") or 5432, named.get("dbname") or named.get("user")
    return str(named.get("host") or named.get("hostaddr")), str(port), str(name)
