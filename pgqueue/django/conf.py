"""``settings.PGQUEUE``: one dict, its keys in capitals. This file checks names and types; others use the values.

The keys are the options of :class:`pgqueue.PgQueue`, ``DATABASE`` in place of a DSN, and the thresholds of the
health check.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.values.hints import remedy
from pgqueue.values.payloads.codec import Codec

DEFAULT_ALIAS = "default"
DEFAULT_MAX_WAIT = timedelta(minutes=5)
NOT_IN_SETTINGS = frozenset({"self", "dsn", "replica", "shards", "embedded"})
"""The jobs are in the project's own database."""
OPTIONS = frozenset(
    name.upper() for name in inspect.signature(PgQueue.__init__).parameters if name not in NOT_IN_SETTINGS
)
OURS = frozenset({"DATABASE", "HEALTH_MIN_WORKERS", "HEALTH_MAX_WAIT"})
KINDS: Mapping[str, type | tuple[type, ...]] = {
    "DATABASE": str,
    "SCHEMA": str,
    "QUEUES": (list, tuple, set, frozenset),
    "HISTORY": timedelta,
    "DEAD": timedelta,
    "HISTORY_ARGS": int,
    "MAX_PAYLOAD": int,
    "BEHIND_POOLER": bool,
    "DIRECT_DSN": str,
    "POOL_SIZE": int,
    "MIDDLEWARE": (list, tuple),
    "CODEC": (str, Codec),
    "REDACT": (list, tuple),
    "HEALTH_MIN_WORKERS": int,
    "HEALTH_MAX_WAIT": timedelta,
}
MAY_BE_NONE = frozenset({"QUEUES", "CODEC", "DIRECT_DSN", "HEALTH_MAX_WAIT"})


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The values of ``settings.PGQUEUE``.

    Attributes:
        alias: the database of ``settings.DATABASES`` in which the jobs are.
        options: for :class:`pgqueue.PgQueue`, by their names there.
        min_workers: with fewer live workers than this, the health check fails.
        max_wait: with a job that has been ready for longer than this, the health check fails; None: waiting jobs
            never fail it.
    """

    alias: str
    options: Mapping[str, Any]
    min_workers: int
    max_wait: timedelta | None


def read() -> Configuration:
    """The settings, checked for names and types; :class:`pgqueue.PgQueue` checks ranges.

    Raises:
        ConfigurationError: there are no Django settings, or a key is unknown.
        InvalidOption: a value is of the wrong type.
    """
    given = raw_settings()
    for key in given:
        require_known(key)
    for key, value in given.items():
        require_kind(key, value)
    return Configuration(
        alias=given.get("DATABASE", DEFAULT_ALIAS),
        options={key.lower(): _option(key, value) for key, value in given.items() if key in OPTIONS},
        min_workers=given.get("HEALTH_MIN_WORKERS", 1),
        max_wait=given.get("HEALTH_MAX_WAIT", DEFAULT_MAX_WAIT),
    )


def raw_settings() -> dict[str, Any]:
    """``settings.PGQUEUE``, unchecked; an empty dict if it is not set.

    Raises:
        ConfigurationError: there are no Django settings.
        InvalidOption: it is no dict.
    """
    try:
        given = getattr(settings, "PGQUEUE", {})
    except ImproperlyConfigured as error:
        raise ConfigurationError(
            "Django has no settings here: run `manage.py pgqueue`, or set DJANGO_SETTINGS_MODULE"
        ) from error
    if not isinstance(given, dict):
        raise InvalidOption(f"PGQUEUE={given!r}: use a dict")
    return given


def require_known(key: object) -> None:
    """Raise an error for a key that ``settings.PGQUEUE`` cannot have.

    Raises:
        ConfigurationError: there is no such key; the message suggests the nearest.
    """
    if key in OPTIONS | OURS:
        return
    hint = remedy(str(key).upper(), sorted(OPTIONS | OURS))
    if key == "DSN":
        hint = "the database is one of settings.DATABASES; name its alias in PGQUEUE['DATABASE']"
    raise ConfigurationError(f"PGQUEUE[{key!r}]: there is no such key; {hint}")


def require_kind(key: str, value: object) -> None:
    """Raise an error for a value of the wrong type, or a threshold out of its range.

    Raises:
        InvalidOption: the value is wrong.
    """
    kind = KINDS.get(key)
    if kind is None or (value is None and key in MAY_BE_NONE):
        return
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidOption(f"PGQUEUE[{key!r}]={value!r}: use {_named_object(key, kind)}")
    if key == "HEALTH_MIN_WORKERS" and isinstance(value, int) and value < 0:
        raise InvalidOption(f"PGQUEUE[{key!r}]={value!r}: use a number from zero")
    if key == "HEALTH_MAX_WAIT" and isinstance(value, timedelta) and value <= timedelta(0):
        raise InvalidOption(f"PGQUEUE[{key!r}]={value!r}: use a timedelta above zero, or None")


def _option(key: str, value: Any) -> Any:  # noqa: ANN401 - any option's value
    match key:
        case "MIDDLEWARE":
            return [_make_object(key, one) for one in value]
        case "CODEC":
            return _make_object(key, value)
    return value


def _make_object(key: str, given: Any) -> Any:  # noqa: ANN401 - any option's value
    if not isinstance(given, str):
        return given
    try:
        make: Callable[[], Any] = import_string(given)
    except ImportError as error:
        raise ConfigurationError(f"PGQUEUE[{key!r}]: {given!r} cannot be imported: {error}") from error
    return make()


def _named_object(key: str, kind: type | tuple[type, ...]) -> str:
    if isinstance(kind, tuple):
        lists = {
            "MIDDLEWARE": "a list of classes' dotted paths",
            "CODEC": "the dotted path of a class",
            "REDACT": "a list of regular expressions",
        }
        return lists.get(key, "a list of names")
    words = {str: "a string", int: "a whole number", bool: "True or False", timedelta: "a timedelta"}[kind]
    return f"{words}, such as timedelta(days=7)" if key == "HISTORY" else words
