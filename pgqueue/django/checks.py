"""What ``manage.py check`` reports about the settings and the database, each with an id and a hint."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import django
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's own names
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DjangoError
from django.db import connections

from pgqueue.django import conf
from pgqueue.django.djangoqueue import DjangoQueue
from pgqueue.errors import (
    ConfigurationError,
    ConnectionFailed,
    InvalidOption,
    NotGranted,
    SchemaError,
    SchemaTooNew,
)

TAG = "pgqueue"
PAGE = "The page on Django in pgqueue's reference (docs/reference/django.md)"


def check_settings(**_: Any) -> list[CheckMessage]:  # noqa: ANN401 - Django's own
    """E004: a key of ``settings.PGQUEUE`` is unknown. E005: a value is out of its range."""
    try:
        given = conf.raw_settings()
    except InvalidOption as error:
        return [_error(5, error, f"PGQUEUE is one dict, its keys in capitals. {PAGE} has them.")]
    unknown = [key for key in given if key not in conf.OPTIONS | conf.OURS]
    if unknown:
        return [_unknown(key) for key in unknown]
    try:
        DjangoQueue.from_settings()
    except (ConfigurationError, TypeError) as error:
        return [_error(5, error, f"{PAGE} says what each key may be.")]
    return []


def check_database(**_: Any) -> list[CheckMessage]:  # noqa: ANN401 - Django's own
    """E001: no such alias. E002: not PostgreSQL. E003: psycopg2, which pgqueue cannot use."""
    alias = _alias()
    if alias not in connections.settings:
        known = ", ".join(repr(name) for name in connections.settings)
        return [
            _error(
                1, f"PGQUEUE['DATABASE'] is {alias!r}, but DATABASES has only {known}.", "Name one of them."
            )
        ]
    try:
        vendor = connections[alias].vendor
    except ImproperlyConfigured:  # Django reports it itself
        return []
    if vendor != "postgresql":
        hint = "Name a database on django.db.backends.postgresql in PGQUEUE['DATABASE']."
        return [_error(2, f"DATABASES[{alias!r}] is {vendor}; pgqueue needs PostgreSQL.", hint)]
    if not _is_on_psycopg_3():
        return [
            _error(
                3,
                f"DATABASES[{alias!r}] is used through psycopg2.",
                "Install psycopg 3: pip install psycopg.",
            )
        ]
    return []


def check_tasks(**_: Any) -> list[CheckMessage]:  # noqa: ANN401 - Django's own
    """W002: ``settings.TASKS`` names pgqueue's backend, and this Django has no Tasks."""
    named = getattr(settings, "TASKS", {})
    ours = isinstance(named, dict) and any(
        isinstance(one, dict) and str(one.get("BACKEND")).startswith("pgqueue.") for one in named.values()
    )
    if not ours or find_spec("django.tasks") or find_spec("django_tasks"):
        return []
    words = (
        f"TASKS is set, and Django {django.__version__} has no Tasks: they are a part of Django from 6.0 on."
    )
    hint = "Install the package for earlier releases: pip install django-tasks. Import django_tasks in place of django.tasks."
    return [Warning(words, hint=hint, id=f"{TAG}.W002")]


def check_schema(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:  # noqa: ANN401 - Django's own
    """W001: the schema is missing or older than the code. E006: it is newer, and the code cannot work on it.

    ``manage.py migrate`` does not show W001: Django runs the checks first, and then the migrations that solve it.
    """
    if _alias() not in (databases or ()) or check_settings() or check_database():
        return []
    database = DjangoQueue.from_settings().database
    try:
        database.run(database.verification())
    except SchemaTooNew as error:
        return [_error(6, error, "Upgrade pgqueue.")]
    except SchemaError as error:
        hint = "Until then jobs can neither be enqueued nor run."
        return [] if _is_migrating() else [Warning(str(error), hint=hint, id=f"{TAG}.W001")]
    except (ConnectionFailed, NotGranted, DjangoError):  # the code that needs the database will raise it
        return []
    return []


def _is_migrating() -> bool:
    return sys.argv[1:2] == ["migrate"]


def _alias() -> str:
    try:
        return str(conf.raw_settings().get("DATABASE", conf.DEFAULT_ALIAS))
    except InvalidOption:
        return conf.DEFAULT_ALIAS


def _is_on_psycopg_3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415 - needs a driver to be there

    return bool(is_psycopg3)


def _unknown(key: object) -> CheckMessage:
    try:
        conf.require_known(key)
    except ConfigurationError as error:
        return _error(4, error, "The keys are PgQueue's options in capitals, DATABASE and HEALTH_…")
    raise AssertionError(key)


def _error(number: int, words: object, hint: str) -> CheckMessage:
    return Error(str(words), hint=hint, id=f"{TAG}.E{number:03}")
