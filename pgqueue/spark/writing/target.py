"""Decides where rows go and how they are queued: once, on the driver, from the options and the app."""

from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from pgqueue.errors import InvalidOption
from pgqueue.spark.writing.app import Parameters, find_app, parameters_of
from pgqueue.spark.writing.columns import check_columns
from pgqueue.spark.writing.options import WriteOptions
from pgqueue.store.connections.database import Database
from pgqueue.values.jobs.options import JobOptions
from pgqueue.values.jobs.unique import Debounce, Throttle


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
    check_columns(columns, options.args, parameters, options.task)
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
