"""One of ``settings.DATABASES`` as the queue's database.

The app enqueues and reads jobs on Django's own connection. So these statements are part of the ``atomic()`` block around
them, and are committed at once outside of one. Workers make connections of their own, from the same settings. Errors of
statements on Django's connection are Django's (``django.db.OperationalError``), as for the ORM.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist
from psycopg.conninfo import make_conninfo

from pgqueue.errors import ConfigurationError, ConnectionFailed, DatabaseError
from pgqueue.store.connections.connection import BEGIN
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.drivers import psycopg_connection
from pgqueue.store.connections.transactions import NOT_ROLLED_BACK
from pgqueue.store.plan import Plan

T = TypeVar("T")


class DjangoDatabase(Database):
    """Runs plans on Django's connection of an alias, in its transaction.

    Attributes:
        alias: which of ``settings.DATABASES``.
    """

    dsn_settings = "DATABASES of the settings"
    migrate_hint = "run `manage.py migrate`"

    def __init__(self, alias: str, **options: Any) -> None:  # noqa: ANN401 - Database's own
        """The database connects when it runs its first statement.

        ``options`` are those of :class:`pgqueue.store.connections.database.Database`.
        """
        super().__init__(**options)
        self.alias = alias

    @property
    def dsn(self) -> str:
        """The DSN by Django's settings; for pgqueue's own connections, which workers use.

        Raises:
            ConfigurationError: the settings name no PostgreSQL database.
        """
        with self._configuration_errors():
            return _conninfo(self._wrapper())

    def joined(self) -> BaseDatabaseWrapper:
        """Django's connection in this thread, connected.

        Raises:
            ConfigurationError: the settings name no PostgreSQL database.
            ConnectionFailed: no connection could be made.
        """
        with self._configuration_errors():
            wrapper = self._wrapper()
        try:
            wrapper.close_if_health_check_failed()
            wrapper.ensure_connection()
        except OperationalError as error:
            raise ConnectionFailed(
                f"cannot connect to DATABASES[{self.alias!r}]: {error}; check its settings, and that the server runs"
            ) from error
        return wrapper

    def _wrapper(self) -> BaseDatabaseWrapper:
        wrapper: BaseDatabaseWrapper = connections[self.alias]
        if wrapper.vendor != "postgresql":
            raise ConfigurationError(
                f"DATABASES[{self.alias!r}] is {wrapper.vendor}, and jobs are kept in PostgreSQL: "
                "name a database on django.db.backends.postgresql in PGQUEUE['DATABASE']"
            )
        return wrapper

    @contextmanager
    def _configuration_errors(self) -> Iterator[None]:
        try:
            yield
        except (ConnectionDoesNotExist, ImproperlyConfigured) as error:
            known = ", ".join(map(repr, connections.settings))
            raise ConfigurationError(
                f"DATABASES[{self.alias!r}]: {error}; name one of {known} in PGQUEUE['DATABASE']"
            ) from error

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan on the user's connection, or on Django's: in its transaction, or committed at once."""
        used = self.joined() if connection is None else connection
        with _django_errors(used):
            return super().run(plan, used)

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, in the thread in which Django's asynchronous ORM runs."""
        if connection is None and not self.joins(None):
            return await sync_to_async(self.run)(plan)
        return await super().arun(plan, connection)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Django's own transaction, which the ORM uses, too; a :class:`psycopg.Rollback` rolls it back without an error.

        Raises:
            DatabaseError: Django rolls it back although the block ended without an error: an ``atomic()`` within it failed.
            django.db.OperationalError: the connection was lost; also in place of a Rollback.
            RuntimeError: it is within another ``atomic()`` block, which could roll back the job's completion unnoticed.
        """
        try:
            with transaction.atomic(using=self.alias, durable=True):
                connection = psycopg_connection(connections[self.alias])
                # Django sends BEGIN with the first statement. If a psycopg block sent it, that block would commit.
                connection.execute(BEGIN)
                yield connection
                self._require_commit()
        except psycopg.Rollback as error:
            if connection.closed:
                raise OperationalError(NOT_ROLLED_BACK) from error
            if error.transaction is not None:
                raise

    def _require_commit(self) -> None:
        if transaction.get_rollback(using=self.alias):
            raise DatabaseError(
                "Django rolls back the whole of ctx.transaction(), because an atomic() block within it failed or called "
                "set_rollback(True): let its error leave the block, or raise psycopg.Rollback"
            )

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        return (
            Database(dsn, **options) if dsn else DjangoDatabase(self.alias, **options)
        )  # with a DSN, not Django's


class MisconfiguredDatabase(DjangoDatabase):
    """The database of a queue whose settings cannot be read: every use raises the error.

    Tasks can still be registered, so Django starts, and its checks can report what is wrong.
    """

    def __init__(self, error: ConfigurationError) -> None:
        """Every use raises the error."""
        super().__init__("default")
        self._error = error

    @property
    def dsn(self) -> str:
        """Unknown.

        Raises:
            ConfigurationError: the settings cannot be read.
        """
        raise type(self._error)(*self._error.args) from self._error

    def joined(self) -> BaseDatabaseWrapper:
        """Raise the error.

        Raises:
            ConfigurationError: the settings cannot be read.
        """
        raise type(self._error)(*self._error.args) from self._error


def _django_errors(connection: object) -> AbstractContextManager[Any]:
    """Raise errors as Django's if the connection is Django's, so that Django notes that it may have to close it."""
    wrapped = getattr(connection, "wrap_database_errors", None)
    return nullcontext() if wrapped is None else wrapped


def _conninfo(wrapper: BaseDatabaseWrapper) -> str:
    given = wrapper.get_connection_params()
    if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        given["options"] = f"{given.get('options') or ''} -c role={escaped}".lstrip()
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return make_conninfo(
        "", **{key: value for key, value in given.items() if key in known and value is not None}
    )
