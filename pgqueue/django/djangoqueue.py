"""The queue of a Django project: made from its settings, on its database; its connections are recycled around jobs.

The module is not called ``queue``: a package's attribute cannot be both a submodule and the queue itself.
"""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.apps import apps

from pgqueue.app.handle import JobHandle
from pgqueue.app.middleware import Middleware
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.django import conf
from pgqueue.django.backend_imported import ImportedTasks
from pgqueue.django.database import DjangoDatabase, MisconfiguredDatabase
from pgqueue.django.recycling import Recycling, closing_connections
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database
from pgqueue.values.jobs.job import NewJob


class DjangoQueue(PgQueue):
    """A job queue in one of the project's databases."""

    _queues_setting = "PGQUEUE['QUEUES'] of the settings"

    def __init__(self, alias: str = conf.DEFAULT_ALIAS, **options: Any) -> None:  # noqa: ANN401 - PgQueue's own
        """Describe the queue. It connects when it runs its first statement.

        Args:
            alias: one of ``settings.DATABASES``.
            options: those of :class:`pgqueue.PgQueue`, without ``dsn``.

        Raises:
            InvalidOption: one of them is out of its range.
        """
        self._alias = alias
        super().__init__(**options)

    @classmethod
    def from_settings(cls) -> "DjangoQueue":
        """The queue that ``settings.PGQUEUE`` describes.

        Raises:
            ConfigurationError: it cannot be read.
            InvalidOption: a value is out of its range.
        """
        configured = conf.read()
        return cls(configured.alias, **configured.options)

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks, by name; a Django task in a loaded module is registered at its first look-up."""
        return ImportedTasks(self, super().tasks)

    def load_task(self, name: str) -> bool:
        """Import the module of a Django task, if that is allowed; returns whether the task is registered now."""
        return ImportedTasks(self, super().tasks).load(name)

    def _make_database(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401, ARG002 - PgQueue's signature
        return DjangoDatabase(self._alias, **options)

    def _framework_middleware(self) -> Sequence[Middleware]:
        return [Recycling()]

    def _around_hook(self) -> AbstractContextManager[object]:
        return closing_connections()

    def _add(self, jobs: Iterable[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        if connection is None and isinstance(self.database, DjangoDatabase):
            connection = (
                self.database.joined()
            )  # given, so that no job is made while the connection sends others
        return super()._add(jobs, connection)

    async def _aadd(self, jobs: Iterable[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        if (
            connection is None
            and isinstance(self.database, DjangoDatabase)
            and not self.database.joins(None)  # else it is the transaction of an `async def` task, on psycopg
        ):
            return await sync_to_async(self._add)(jobs)
        return await super()._aadd(jobs, connection)


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
