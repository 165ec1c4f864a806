"""The queue of a Django project, made from its settings; and its database, one of ``settings.DATABASES``.

The app enqueues and reads jobs on Django's own connection. So these statements are part of the ``atomic()`` block around
them, and are committed at once outside of one. Workers make connections of their own, from the same settings. Errors of
statements on Django's connection are Django's (``django.db.OperationalError``), as for the ORM.

The module is not called ``queue``: a package's attribute cannot be both a submodule and the queue itself.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

import django
import psycopg
from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist
from psycopg.conninfo import make_conninfo

from pgqueue.app.middleware import Middleware
from pgqueue.app.pgqueue import PgQueue
from pgqueue.django import conf
from pgqueue.django.backend_modules import ImportedTasks
from pgqueue.django.recycling import Recycling, closing_connections
from pgqueue.errors import ConfigurationError, ConnectionFailed, DatabaseError
from pgqueue.store.connections.connection import BEGIN, NOT_ROLLED_BACK
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.drivers import psycopg_connection
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.plan import Plan

IN_A_COROUTINE = (
    "this method of the queue blocks, and a coroutine, such as an async view, runs in an event loop: write "
    "`await task.aenqueue(...)` in place of task.enqueue(...), and for any other method the one with an a before its name"
)
P = ParamSpec("P")
T = TypeVar("T")


class DjangoQueue(PgQueue):
    """A job queue in one of the project's databases."""

    _queues_setting = "PGQUEUE['QUEUES'] of the settings"

    def __init__(
        self,
        alias: str = conf.DEFAULT_ALIAS,
        *,
        middleware: Iterable[Middleware] = (),
        **options: Any,  # noqa: ANN401 - PgQueue's own
    ) -> None:
        """Describe the queue. It connects when it runs its first statement.

        Args:
            alias: one of ``settings.DATABASES``.
            middleware: what runs around each attempt of each task, within Django's own; the outermost first.
            options: the others of :class:`pgqueue.PgQueue`, without ``dsn``.

        Raises:
            InvalidOption: one of them is out of its range.
        """
        self._alias = alias
        self._around_hook = closing_connections
        super().__init__(middleware=(Recycling(), *middleware), **options)
        self._loader = ImportedTasks(self, self.tasks)

    @classmethod
    def from_settings(cls) -> "DjangoQueue":
        """The queue that ``settings.PGQUEUE`` describes.

        Raises:
            ConfigurationError: it cannot be read.
            InvalidOption: a value is out of its range.
        """
        configured = conf.read()
        return cls(configured.alias, **configured.options)

    def _make_database(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401, ARG002 - PgQueue's signature
        return DjangoDatabase(self._alias, **options)


_making = threading.Lock()
_made: list[DjangoQueue] = []


def project_queue() -> DjangoQueue:
    """The project's queue, made from its settings at its first use.

    If ``settings.PGQUEUE`` cannot be read, each use of the queue raises the error, and the checks report it.

    Raises:
        ConfigurationError: Django cannot be set up.
    """
    if not _made:
        _set_up()
        with _making:
            if not _made:
                _made.append(_make())
    return _made[0]


def _make() -> DjangoQueue:
    try:
        return DjangoQueue.from_settings()
    except ConfigurationError as error:
        queue = DjangoQueue()
        queue.database = MisconfiguredDatabase(error)
        return queue


def _set_up() -> None:
    """Set Django up if it is not: ``pgqueue --app pgqueue.django:queue`` does not do so as ``manage.py`` does."""
    if apps.ready or apps.loading or "DJANGO_SETTINGS_MODULE" not in os.environ:
        return
    try:
        django.setup()
    except ImportError as error:
        raise ConfigurationError(
            f"Django cannot be set up with DJANGO_SETTINGS_MODULE={os.environ['DJANGO_SETTINGS_MODULE']!r}: {error}"
        ) from error


class DjangoDatabase(Database):
    """Runs plans on Django's connection of an alias, in its transaction.

    Attributes:
        alias: which of ``settings.DATABASES``.
    """

    dsn_settings = "DATABASES of the settings"
    migrate_hint = "run `manage.py migrate`"
    blocks = True

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

    @property
    def folder(self) -> None:
        """None: Django's settings name a server."""

    def joined(self) -> BaseDatabaseWrapper:
        """Django's connection in this thread, connected.

        Raises:
            ConfigurationError: the settings name no PostgreSQL database.
            ConnectionFailed: no connection could be made.
            SynchronousOnlyOperation: this is a coroutine, where Django's connection cannot be used.
        """
        with self._configuration_errors():
            wrapper = self._wrapper()
        try:
            wrapper.close_if_health_check_failed()
            wrapper.ensure_connection()
        except SynchronousOnlyOperation as error:
            raise SynchronousOnlyOperation(IN_A_COROUTINE) from error
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
        if connection is None and not self.in_job_transaction:  # that of an `async def` task is on psycopg
            return await self.acall(self.run, plan)
        return await super().arun(plan, connection)

    def joins(self, connection: object) -> bool:
        """Whether jobs are added on the user's connection or Django's: always, but for ``OWN_CONNECTION``."""
        return connection is not OWN_CONNECTION

    async def acall(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the thread in which Django's asynchronous ORM runs."""
        return await sync_to_async(function)(*args, **kwargs)

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
        super().__init__("default")
        self._error = error

    @property
    def dsn(self) -> str:
        """Raise the error."""
        raise type(self._error)(*self._error.args) from self._error

    def joined(self) -> BaseDatabaseWrapper:
        """Raise the error."""
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
