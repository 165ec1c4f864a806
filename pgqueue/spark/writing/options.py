"""The options of ``df.write.format("pgqueue").option(...)``: pure rules, checked before any connection is opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgqueue.errors import InvalidOption, as_duration
from pgqueue.spark.options import TRUE_OR_FALSE, truth
from pgqueue.spark.options import Options as Spelled
from pgqueue.values.jobs.options import check_name

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
SPARKS_OWN = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
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
        unique: the fields of :class:`pgqueue.values.jobs.unique.Unique` that were given.
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


def read_options(given: Mapping[str, str]) -> WriteOptions:
    """Read the options of a write.

    Args:
        given: as Spark passes them: text, the names in lower case.

    Raises:
        InvalidOption: an option is missing, unknown, or cannot be read; the message says what to write instead.
    """
    options = Spelled(given)
    options.check_known((*KNOWN, *SPARKS_OWN))
    task = options.get("task")
    if not task:
        raise InvalidOption(
            'no task: say .option("task", ...), the name of the task that every row is a call of'
        )
    return WriteOptions(
        task=check_name("task", task),
        app=options.get("app"),
        dsn=options.get("dsn"),
        schema=options.get("schema"),
        behind_pooler=options.read("behind_pooler", truth, TRUE_OR_FALSE) or False,
        run=options.read("run", _run, f"1 to {LONGEST_RUN} characters"),
        args=options.get("args"),
        queue=options.get("queue"),
        priority=options.read("priority", int, "a whole number"),
        max_attempts=options.read("max_attempts", int, "a whole number"),
        unique=_unique(options),
    )


def _unique(options: Spelled) -> dict[str, Any]:
    found = {
        "collision": options.get("unique_collision"),
        "until": options.get("unique_until"),
        "period": options.read("unique_period", _period, "a number of seconds"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _period(text: str) -> timedelta | None:
    return as_duration("unique_period", float(text))


def _run(text: str) -> str:
    if not 0 < len(text) <= LONGEST_RUN or "\0" in text:
        raise ValueError(text)
    return text
