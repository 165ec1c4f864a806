"""One of ``settings.DATABASES`` as the queue sees it.

What the app enqueues and looks at goes through Django's own connection, so it is part of whatever ``atomic()`` block
it stands in, and is committed at once outside of one. Workers make connections of their own, from the same settings.
Errors of statements on Django's connection are Django's (``django.db.OperationalError``), as for the ORM.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import psycopg
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist
from psycopg.conninfo import make_conninfo

from pgqueue.errors import ConfigurationError, ConnectionFailed
from pgqueue.store.connection import BEGIN
from pgqueue.store.database import Database
from pgqueue.store.drivers import psycopg_connection
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
        """Remember which database. Nothing is connected until something is run.

        Args:
            alias: one of ``settings.DATABASES``.
            options: as for :class:`pgqueue.store.database.Database`.
        """
        super().__init__(**options)
        self.alias = alias

    @property
    def dsn(self) -> str:
        """Where the database is, by Django's settings; for connections of our own, which workers use.

        Raises:
            ConfigurationError: the settings name no PostgreSQL database.
        """
        with self._configuration_errors():
            return _conninfo(self._wrapper())

    def joined(self) -> BaseDatabaseWrapper:
        """Django's connection in this thread, connected.

        Raises:
            ConfigurationError: the settings name no PostgreSQL database.
            ConnectionFailed: there is none to be had.
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
        with _in_djangos_words(used):
            return super().run(plan, used)

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, in the thread in which Django's asynchronous ORM runs."""
        if connection is None and not self.joins(None):
            return await sync_to_async(self.run)(plan)
        return await super().arun(plan, connection)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Django's own transaction, which the ORM is in as well; a :class:`psycopg.Rollback` ends it quietly.

        Raises:
            RuntimeError: it is within another ``atomic()`` block, which could undo the job's completion unseen.
        """
        with suppress(psycopg.Rollback), transaction.atomic(using=self.alias, durable=True):
            connection = psycopg_connection(connections[self.alias])
            # Django sends BEGIN with the first statement. Were that a psycopg block's, the block would commit it.
            connection.execute(BEGIN)
            yield connection

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        return (
            Database(dsn, **options) if dsn else DjangoDatabase(self.alias, **options)
        )  # with a DSN, not Django's


class Misconfigured(DjangoDatabase):
    """What a queue has whose settings cannot be read: it refuses everything.

    Tasks can be registered all the same, so Django starts, and its checks can say what is wrong.
    """

    def __init__(self, error: ConfigurationError) -> None:
        """Remember what is wrong.

        Args:
            error: what to answer to everything.
        """
        super().__init__("default")
        self._error = error

    @property
    def dsn(self) -> str:
        """Not known.

        Raises:
            ConfigurationError: the settings cannot be read.
        """
        raise type(self._error)(*self._error.args) from self._error

    def joined(self) -> BaseDatabaseWrapper:
        """Refuse.

        Raises:
            ConfigurationError: the settings cannot be read.
        """
        raise type(self._error)(*self._error.args) from self._error


def _in_djangos_words(connection: object) -> AbstractContextManager[Any]:
    """Errors as Django's, where the connection is Django's: so it learns, too, that it may have to be closed."""
    wrapped = getattr(connection, "wrap_database_errors", None)
    return nullcontext() if wrapped is None else wrapped


def _conninfo(wrapper: BaseDatabaseWrapper) -> str:
    """What Django's settings say of a connection, as far as libpq is concerned."""
    given = wrapper.get_connection_params()
    if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        given["options"] = f"{given.get('options') or ''} -c role={escaped}".lstrip()
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return make_conninfo(
        "", **{key: value for key, value in given.items() if key in known and value is not None}
    )
