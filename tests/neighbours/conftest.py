"""Django set up in this process for the project under ``tests/neighbours/project``, on a fresh database for each test.

A test that takes ``django_dsn`` finds Django's ``default`` database fresh, with every migration of the project applied.
"""

import os
from collections.abc import Iterator
from typing import Any

import django
import psycopg
import pytest
from asgiref.sync import SyncToAsync
from django.core.management import call_command
from django.db import connections, reset_queries
from psycopg.conninfo import conninfo_to_dict
from pytest_postgresql import factories

SETTINGS = "neighbours.project.settings"

os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
django.setup()
del os.environ["DJANGO_SETTINGS_MODULE"]  # the processes that other tests start are not of this project


def point_django_at(dsn: str) -> None:
    """Make this the database of Django's connections in every thread; those that are open are closed."""
    where = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    forget_connections()
    connections["default"].settings_dict.update(
        {key: str(where.get(name, "")) for key, name in names.items()}
    )


def forget_connections() -> None:
    """Close Django's connections of this thread and of the one in which ``sync_to_async`` runs the ORM."""
    _forget_here()
    SyncToAsync.single_thread_executor.submit(_forget_here).result()


def _forget_here() -> None:
    connections.close_all()
    reset_queries()


def _apply_migrations(**where: Any) -> None:
    point_django_at(" ".join(f"{key}={where[key]}" for key in ("host", "port", "user", "dbname")))
    call_command("migrate", verbosity=0)
    forget_connections()


django_server = factories.postgresql_noproc(dbname="pgqueue_test_django", load=[_apply_migrations])
django_database = factories.postgresql("django_server")


@pytest.fixture
def django_dsn(django_database: psycopg.Connection[Any]) -> Iterator[str]:
    """Django's fresh database, every migration applied; jobs and orders are its own."""
    info = django_database.info
    where = f"postgresql://{info.user}@/{info.dbname}?host={info.host}&port={info.port}"
    point_django_at(where)
    yield where
    forget_connections()


@pytest.fixture
def bare_dsn(empty_dsn: str) -> Iterator[str]:
    """Django's fresh database with nothing in it, not even Django's own tables."""
    point_django_at(empty_dsn)
    yield empty_dsn
    forget_connections()
