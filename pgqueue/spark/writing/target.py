"""Decides where rows go and how they are queued: once, on the driver, from the options of the write and the app.

The options are checked before any connection is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pyspark.sql.types import StructType

from pgqueue.errors import InvalidOption, as_duration
from pgqueue.spark.apps import find_app
from pgqueue.spark.options import TRUE_OR_FALSE, Options, truth
from pgqueue.spark.reading.options import names
from pgqueue.spark.writing.columns import Parameters, arguments_of, check_columns, parameters_of
from pgqueue.spark.writing.keys import key_columns
from pgqueue.store.connections.database import Database
from pgqueue.values.jobs.options import JobOptions, check_name
from pgqueue.values.jobs.unique import Debounce, Throttle

LONGEST_RUN = 200
KNOWN = (
    "task",
    "app",
    "dsn",
    "schema",
    "behind_pooler",
    "run",
    "args",
    "key",
    "onBadRow",
    "queue",
    "priority",
    "max_attempts",
    "unique_collision",
    "unique_until",
    "unique_period",
)
FAIL, DIVERT = "fail", "divert"
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
        key: the columns that each job keeps.
        diverts: whether rows that cannot be jobs are recorded, and the others enqueued.
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
    key: tuple[str, ...]
    diverts: bool
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
    options = Options(given)
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
        key=options.read("key", names, "names of columns, each once, with commas between them") or (),
        diverts=options.read("onBadRow", _diverts, f"{FAIL} or {DIVERT}") or False,
        queue=options.get("queue"),
        priority=options.read("priority", int, "a whole number"),
        max_attempts=options.read("max_attempts", int, "a whole number"),
        unique=_unique(options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """What executors and the committing driver need to know; it holds the DSN with its password.

    Attributes:
        dsn: where the database is.
        schema: where its tables are.
        behind_pooler: whether the DSN leads to a transaction pooler.
        app: the ``module:attribute`` of the queue that knows the task, or None.
        task: the task's name.
        args: the column that holds all arguments, or None: each other column is one.
        arguments: the columns that are arguments.
        key: the columns that each job keeps; none: it keeps nothing.
        diverts: as in WriteOptions.
        defaults: queue, priority and attempts of a row that names none.
        run: the write's name, or None.
        columns: the DataFrame's columns.
    """

    dsn: str
    schema: str
    behind_pooler: bool
    app: str | None
    task: str
    args: str | None
    arguments: tuple[str, ...]
    key: StructType
    diverts: bool
    defaults: JobOptions
    run: str | None
    columns: StructType

    @property
    def database(self) -> Database:
        """The database; not connected to yet."""
        return Database(self.dsn, schema=self.schema, behind_pooler=self.behind_pooler)


def decide(options: WriteOptions, columns: StructType) -> WriteTarget:
    """Decide where rows go, and refuse columns that cannot be jobs.

    Raises:
        ConfigurationError: the options name no database or no task, or one is out of its range.
        RowsRefused: neither the task nor a job can take a column.
    """
    defaults, parameters = _task(options)
    key = key_columns(columns, options.key)
    check_columns(columns, options.args, parameters, options.task, options.key)
    if options.unique and "unique_key" not in columns.names:
        given = ", ".join(f"unique_{name}" for name in options.unique)
        raise InvalidOption(f"{given}: this is about unique keys; give them in a column unique_key")
    database = _database(options)
    return WriteTarget(
        dsn=database.dsn,
        schema=database.catalogue.schema,
        behind_pooler=database.behind_pooler,
        app=options.app,
        task=options.task,
        args=options.args,
        arguments=arguments_of(columns, options.args, parameters, options.key),
        key=key,
        diverts=options.diverts,
        defaults=defaults,
        run=options.run,
        columns=columns,
    )


def _task(options: WriteOptions) -> tuple[JobOptions, Parameters | None]:
    """Return the task's options, replaced by the given ones, and its parameters; None: they are not known."""
    defaults, parameters = JobOptions(), None
    if options.app is not None:
        app = find_app(options.app)
        task = app.find_task(options.task)
        defaults, parameters = task.options, parameters_of(task)
        app.require_queue(options.queue or defaults.queue)
    changed = defaults.but(queue=options.queue, priority=options.priority, max_attempts=options.max_attempts)
    if not options.unique:
        return changed, parameters
    if isinstance(changed.unique, Debounce | Throttle):
        raise InvalidOption(
            f"unique_*: task {options.task} has {changed.unique}, which cannot be changed by a write"
        )
    return replace(changed, unique=replace(changed.unique, **options.unique)), parameters


def _database(options: WriteOptions) -> Database:
    if options.app is None:
        return Database(options.dsn, schema=options.schema or "pgqueue", behind_pooler=options.behind_pooler)
    return find_app(options.app).database.but(
        dsn=options.dsn, schema=options.schema, behind_pooler=options.behind_pooler
    )


def _unique(options: Options) -> dict[str, Any]:
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


def _diverts(text: str) -> bool:
    if text.strip().lower() not in {FAIL, DIVERT}:
        raise ValueError(text)
    return text.strip().lower() == DIVERT
