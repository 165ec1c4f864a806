"""The options of ``df.write.format("pgqueue").option(...)``: pure rules, checked before any connection is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pgqueue.errors import InvalidOption, as_duration
from pgqueue.values.nearest import remedy
from pgqueue.values.options import check_name

T = TypeVar("T")
LONGEST_RUN = 200
KNOWN = (
    "task",
    "app",
    "dsn",
    "schema",
    "behind_pooler",
    "run",
    "args",
    "queue",
    "priority",
    "max_attempts",
    "unique_collision",
    "unique_until",
    "unique_period",
)
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a write as they were given; None: not given.

    Attributes:
        task: the task that every row is a call of.
        app: the ``module:attribute`` of the queue that knows the task.
        dsn: where the database is.
        schema: where its tables are.
        behind_pooler: whether the DSN leads to a transaction pooler.
        run: the write's name: a name is written once.
        args: the column that holds all arguments.
        queue: the queue of rows that name none.
        priority: the priority of rows that name none.
        max_attempts: the number of attempts of rows that name none.
        unique: the fields of :class:`pgqueue.values.unique.Unique` that were given.
    """

    task: str
    app: str | None
    dsn: str | None
    schema: str | None
    behind_pooler: bool
    run: str | None
    args: str | None
    queue: str | None
    priority: int | None
    max_attempts: int | None
    unique: Mapping[str, Any]


def read_options(given: Mapping[str, str]) -> Options:
    """Read the options of a write.

    Args:
        given: as Spark passes them: text, the names in lower case.

    Raises:
        InvalidOption: an option is missing, unknown, or cannot be read; the message says what to write instead.
    """
    for name in given:
        if name.lower() not in SPARKS_OWN | set(KNOWN):
            raise InvalidOption(f"option {name}={given[name]!r} is unknown; {remedy(name.lower(), KNOWN)}")
    if not given.get("task"):
        raise InvalidOption(
            'no task: say .option("task", ...), the name of the task that every row is a call of'
        )
    return Options(
        task=check_name("task", given["task"]),
        app=given.get("app"),
        dsn=given.get("dsn"),
        schema=given.get("schema"),
        behind_pooler=_read(given, "behind_pooler", _truth, "true or false") or False,
        run=_read(given, "run", _run, f"1 to {LONGEST_RUN} characters"),
        args=given.get("args"),
        queue=given.get("queue"),
        priority=_read(given, "priority", int, "a whole number"),
        max_attempts=_read(given, "max_attempts", int, "a whole number"),
        unique=_unique(given),
    )


def _unique(given: Mapping[str, str]) -> dict[str, Any]:
    found = {
        "collision": given.get("unique_collision"),
        "until": given.get("unique_until"),
        "period": _read(given, "unique_period", _period, "a number of seconds"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _read(given: Mapping[str, str], name: str, read: Callable[[str], T], form: str) -> T | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return read(text)
    except (KeyError, ValueError) as error:
        raise InvalidOption(f"option {name}={text!r}: use {form}") from error


def _truth(text: str) -> bool:
    return TRUTHS[text.lower()]


def _period(text: str) -> timedelta | None:
    return as_duration("unique_period", float(text))


def _run(text: str) -> str:
    if not 0 < len(text) <= LONGEST_RUN or "\0" in text:
        raise ValueError(text)
    return text
