"""The options of an app's queue, from its configuration: ``PGQUEUE_...`` keys, else SQLAlchemy's database."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.values.hints import nearest

PREFIX = "PGQUEUE_"
SQLALCHEMY_DSN = "SQLALCHEMY_DATABASE_URI"


class OptionKind(NamedTuple):
    """An option's types, and their description for messages."""

    types: tuple[type, ...]
    words: str


OPTIONS = {
    "dsn": OptionKind((str,), "a DSN, for example postgresql://user@localhost/app"),
    "schema": OptionKind((str,), "the name of a schema"),
    "queues": OptionKind((list, tuple, set, frozenset), "a list of names"),
    "history": OptionKind((timedelta,), "a timedelta; for a number of days, PGQUEUE_HISTORY_DAYS"),
    "history_days": OptionKind((int,), "a whole number of days"),
    "dead": OptionKind((timedelta,), "a timedelta; for a number of days, PGQUEUE_DEAD_DAYS"),
    "dead_days": OptionKind((int,), "a whole number of days"),
    "history_args": OptionKind((int,), "a whole number of bytes"),
    "max_payload": OptionKind((int,), "a whole number of bytes"),
    "behind_pooler": OptionKind((bool,), "True or False"),
    "direct_dsn": OptionKind((str,), "a DSN, for example postgresql://user@localhost/app"),
    "pool_size": OptionKind((int,), "a whole number"),
    "redact": OptionKind((list, tuple), "a list of regular expressions"),
    "session": OptionKind((bool, Callable), "True, False, or a function that returns the session"),  # type: ignore[arg-type]  # isinstance takes it
}


def read(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an app's queue: those given in code take precedence over those of the configuration.

    Args:
        config: the app's configuration.
        given: the options given in code, by name; None: not given.

    Raises:
        ConfigurationError: a key begins with PGQUEUE_ and is no setting of pgqueue.
        InvalidOption: a value is of the wrong type.
    """
    _refuse_unknown(config)
    options: dict[str, Any] = _sqlalchemys(config.get(SQLALCHEMY_DSN))
    for name, kind in OPTIONS.items():
        value = config.get(_key(name))
        if value is not None:
            options[name] = _check_option(_key(name), value, kind)
    for name in ("history", "dead"):
        if (days := options.pop(f"{name}_days", None)) is not None:
            options[name] = _days(name, days, options.get(name))
    options.update((name, value) for name, value in given.items() if value is not None)
    if "dsn" in options:
        options.pop("other_database", None)
    return options


def _key(name: str) -> str:
    return PREFIX + name.upper()


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    for key in config:
        name = key.removeprefix(PREFIX).lower()
        if key.startswith(PREFIX) and name not in OPTIONS:
            meant = nearest(name, OPTIONS)
            hint = f"did you mean {_key(meant)}?" if meant else f"there are {', '.join(map(_key, OPTIONS))}"
            raise ConfigurationError(f"app.config[{key!r}] is no setting of pgqueue; {hint}")


def _check_option(key: str, value: object, kind: OptionKind) -> object:
    if not isinstance(value, kind.types) or (isinstance(value, bool) and bool not in kind.types):
        raise InvalidOption(f"app.config[{key!r}] = {value!r}: use {kind.words}")
    return value


def _days(name: str, days: int, given: timedelta | None) -> timedelta:
    key = _key(name)
    if given is not None:
        raise InvalidOption(f"{key} and {key}_DAYS are both set: keep one")
    try:
        return timedelta(days=days)
    except OverflowError:
        raise InvalidOption(f"app.config['{key}_DAYS'] = {days!r}: use up to 36500 days") from None


def _sqlalchemys(uri: Any) -> dict[str, str]:  # noqa: ANN401 - a string, or SQLAlchemy's URL, which stays unimported
    """Return SQLAlchemy's database, if it is a PostgreSQL; else its kind."""
    if uri is None:
        return {}
    text = str(uri) if isinstance(uri, str) else str(uri.render_as_string(hide_password=False))
    if text.startswith("postgres"):
        return {"dsn": text}
    return {"other_database": text.partition(":")[0].partition("+")[0]}
