"""``pgqueue.spark.apply``: a job for each row of a DataFrame, and the rows with what became of their jobs."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption, RowsRefused
from pgqueue.spark.apps import find_app
from pgqueue.spark.loop.progress import OnProgress
from pgqueue.spark.loop.runs import opened
from pgqueue.spark.loop.waiting import wait_for
from pgqueue.spark.session import session
from pgqueue.spark.typed.columns import TypedColumns, selection
from pgqueue.spark.typed.contracts import result_kind
from pgqueue.spark.typed.dialects import DIALECTS
from pgqueue.store.connections.dsn import dsn_in_environment
from pgqueue.store.insight import runs
from pgqueue.store.pipeline import sink
from pgqueue.values.hints import remedy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pgqueue.app.pgqueue import PgQueue
    from pgqueue.spark.typed.kinds import Kind

logger = logging.getLogger("pgqueue.spark")
SHOWN = 5
MISFIT = "result_misfit"
"""The column that results have besides, where the result has a type."""
_REFUSED = re.compile(
    rf"^pgqueue\.errors\.{RowsRefused.__name__}: (.*?)(?:\n SQLSTATE: \d+)?\s*\Z", re.MULTILINE | re.DOTALL
)
"""How an error of the commit ends, inside Spark's."""


def apply(
    df: "DataFrame",
    task: "str | Task[..., Any]",
    *,
    key: str | Sequence[str],
    run: str,
    wait: bool | float = True,
    app: str | None = None,
    dsn: str | None = None,
    schema: str | None = None,
    arguments: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    progress: OnProgress | bool = True,
) -> "DataFrame":
    """Call a task for each row, by jobs of the queue, and return the rows with what became of them.

    Called again with the same ``run``, it enqueues nothing and waits on: after a crash or an interrupt, start the program again.

    Args:
        df: the rows. With ``app``, the columns that the task takes are its arguments; without, all are. It is computed twice by
            the first call, and again by the result; ``cache()`` it if that is expensive.
        task: the task, or its name.
        key: the columns that tell the rows apart. The results are joined to the rows by them.
        run: the name of the run. Each name is enqueued once.
        wait: True: until all jobs have ended. A number: for at most this many seconds. False: not at all.
        app: the ``module:attribute`` of the queue that has the task. Then arguments are checked, and results decoded.
        dsn: where the database is; by default the app's, or PGQUEUE_DSN or DATABASE_URL in the environment.
        schema: the database schema in which the tables are; by default the app's, or ``pgqueue``.
        arguments: the columns that are arguments; None: as ``df`` says.
        options: other options of the write: ``queue``, ``priority``, ``max_attempts``, ``onBadRow``, ….
        progress: whether to show a line of progress on stderr; or a function, which gets each look as a
            :class:`~pgqueue.spark.loop.progress.Progress`.

    Returns:
        The DataFrame, left joined to the results of the run: a row for each row, with the columns of ``results`` after its
        own. They are null for a row that came into ``df`` after the first call, and for one whose job has no record any
        more, since its history was deleted; a warning says how many these are.

    Raises:
        RowsRefused: two rows have the same key, a key is null, or a row cannot be a job; nothing was enqueued.
        InvalidOption: an option is out of its range, or the run is of another task or other key columns.
        TimeoutError: ``wait`` seconds have passed; the jobs go on.
        KeyboardInterrupt: someone interrupted the wait; the jobs go on.
        PgQueueError: as for a write.
    """
    names = [key] if isinstance(key, str) else [*key]
    _check_key(df, names)
    _check_names(df)
    session()  # the data source is registered
    given = _database_options(dsn, schema, app)
    with opened(dsn, schema, app) as queue:
        of_write = {"task": _name_of(task), "run": run, "key": ",".join(names), **(options or {}), **given}
        known = None if app is None else find_app(app).find_task(_name_of(task))
        if arguments is None and "args" in of_write:
            arguments = [str(of_write["args"])]
        _enqueue(queue, df.select(*_sent(df, names, known, arguments)), names, of_write)
        if wait is not False:
            wait_for(queue, run, seconds=None if wait is True else float(wait), progress=progress)
        _warn_of_gone(queue, run)
    return _joined(df, results(df.sparkSession, run, app=app, dsn=dsn, schema=schema), names)


def results(
    spark: "SparkSession",
    run: str,
    *,
    app: str | None = None,
    dsn: str | None = None,
    schema: str | None = None,
    columns: Sequence[str] | None = None,
    typed: bool = True,
) -> "DataFrame":
    """What became of the rows of a run: a row for each, as ``option("results", run)`` reads it.

    The column ``result`` has the type that the task returns, by the contract that its workers have published, and ``result_misfit``
    has the JSON of a result that does not fit it. Before a worker has started, ``result`` is JSON.

    Args:
        spark: a session that knows pgqueue's data source.
        run: the run's name.
        app: the ``module:attribute`` of the queue that has the task, whose codec decodes.
        dsn: as for :func:`apply`.
        schema: as for :func:`apply`.
        columns: which columns; None: all.
        typed: False: ``result`` is JSON in any case.
    """
    with opened(dsn, schema, app) as queue:
        kind = _result_kind(queue, run) if typed else None
        given = {"schema": queue.database.catalogue.schema, "results": run}
        if (
            queue.database.dsn != dsn_in_environment()
        ):  # else it need not be among the options, which Spark may log
            given["dsn"] = queue.database.dsn
    if app is not None:
        given["app"] = app
    if columns is not None:
        given["columns"] = ", ".join(columns)
    found = spark.read.format("pgqueue").options(**given).load()
    return found if kind is None or "result" not in found.columns else with_typed_result(found, kind)


def _result_kind(queue: "PgQueue", run: str) -> "Kind | None":
    """What the task of a run returns; None: no worker has said it, or the run has several tasks."""
    tasks = queue.database.run(runs.glance(run)).tasks
    return result_kind(queue.database, tasks[0]) if len(tasks) == 1 else None


def with_typed_result(found: "DataFrame", kind: "Kind") -> "DataFrame":
    """Results with their JSON as a value of this kind, and ``result_misfit`` behind all columns: the JSON that does not fit."""
    selected = selection(TypedColumns((), closed=False, result=kind), "spark", ["result"])
    made, others = dict(selected.columns), [_quoted(name) for name in found.columns]
    return selected.stepped(found).selectExpr(
        *(f"{made['result']} as result" if name == "`result`" else name for name in others),
        f"{made[MISFIT]} as {MISFIT}",
    )


def _check_key(df: "DataFrame", names: Sequence[str]) -> None:
    if not names:
        raise InvalidOption("key=[]: name the columns that tell the rows apart")
    for name in names:
        if name not in df.columns:
            raise InvalidOption(
                f"key={name!r}: the DataFrame has no such column; {remedy(name, df.columns)}. If no column tells its rows "
                'apart, add one, df.withColumn("row", monotonically_increasing_id()), and store it before the call'
            )


def _check_names(df: "DataFrame") -> None:
    """Refuse columns that results have, too, before anything is enqueued: a run may take hours."""
    from pgqueue.spark.reading.result_rows import COLUMNS  # noqa: PLC0415 - it needs PySpark

    taken = [name for name in df.columns if name.lower() in {*COLUMNS, MISFIT}]
    if taken:
        raise InvalidOption(
            f"column {taken[0]!r}: results have a column of this name; rename it in the DataFrame. Nothing was enqueued"
        )


def _sent(
    df: "DataFrame", names: Sequence[str], task: "Task[..., Any] | None", arguments: Sequence[str] | None
) -> "list[Column]":
    """Return the columns that are written; the others come back with the results, and are no part of the jobs."""
    from pgqueue.spark.writing.columns import RESERVED, parameters_of  # noqa: PLC0415 - it needs PySpark

    for name in arguments or ():
        if name not in df.columns:
            raise InvalidOption(
                f"arguments: the DataFrame has no column {name!r}; {remedy(name, df.columns)}"
            )
    wanted = {*(arguments or df.columns), *names, *RESERVED}
    if arguments is None and task is not None:
        parameters = parameters_of(task)
        if not parameters.others:
            wanted = {*parameters.named, *names, *RESERVED}
    return [_column(df, name) for name in df.columns if name in wanted]


def _enqueue(queue: "PgQueue", df: "DataFrame", names: Sequence[str], given: Mapping[str, object]) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

    from pgqueue.spark.writing.target import decide, read_options  # noqa: PLC0415 - it needs PySpark

    run = str(given["run"])
    earlier = queue.database.run(sink.find(run))
    if earlier is not None:
        sink.require_task(earlier, str(given["task"]))
        _require_key(queue, run, names)
        return
    options = {name: str(value) for name, value in given.items()}
    decide(read_options(options), df.schema)  # what is wrong with them is told before the rows are computed
    _require_unique(df, names)
    try:
        df.write.format("pgqueue").options(**options).mode("append").save()
    except PySparkException as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        raise RowsRefused(refused[1]) from error


def _require_key(queue: "PgQueue", run: str, names: Sequence[str]) -> None:
    from pgqueue.spark.reading.results import key_of  # noqa: PLC0415 - it needs PySpark

    kept = key_of(run, queue.database.run(runs.written(run))).names
    if {*kept} != {*names}:
        raise InvalidOption(
            f"key={', '.join(names)}: run {run!r} was written with the key {', '.join(kept) or 'none'}; "
            "give the same, or another run"
        )


def _require_unique(df: "DataFrame", names: Sequence[str]) -> None:
    from pyspark.sql.functions import col  # noqa: PLC0415 - heavy

    bad = col("count") > 1
    for name in names:
        bad |= _column(df, name).isNull()
    doubled = df.groupBy(*(_column(df, name) for name in names)).count().where(bad).limit(SHOWN + 1).collect()
    if doubled:
        shown = "; ".join(
            ", ".join(f"{name}={row[name]!r:.80}" for name in names) + f" in {row['count']} rows"
            for row in doubled[:SHOWN]
        )
        more = "; and more" if len(doubled) > SHOWN else ""
        raise RowsRefused(
            f"the key does not tell the rows apart, or is null: {shown}{more}. Nothing was enqueued; add a column to "
            "the key, or drop these rows"
        )


def _warn_of_gone(queue: "PgQueue", run: str) -> None:
    found = queue.database.run(runs.counted(run))
    if found.gone:
        logger.warning(
            "%d of the %d jobs of run %r have no record any more, since their history was deleted",
            found.gone,
            found.jobs,
            run,
        )


def _joined(df: "DataFrame", found: "DataFrame", names: Sequence[str]) -> "DataFrame":
    """Join by the key, which is never null; the columns of the results come behind, without the key."""
    renamed = found.select(
        *(_column(found, name).alias(f"_key_{name}" if name in names else name) for name in found.columns)
    )
    condition: Column | None = None
    for name in names:
        same = _column(df, name) == _column(renamed, f"_key_{name}")
        condition = same if condition is None else condition & same
    return df.join(renamed, condition, "left").drop(*(f"_key_{name}" for name in names))


def _column(df: "DataFrame", name: str) -> "Column":
    """A column by its name, which may have dots."""
    return df[_quoted(name)]


def _quoted(name: str) -> str:
    return DIALECTS["spark"].quote(name)


def _name_of(task: "str | Task[..., Any]") -> str:
    return task.name if isinstance(task, Task) else task


def _database_options(dsn: str | None, schema: str | None, app: str | None) -> dict[str, object]:
    given = {"dsn": dsn, "schema": schema, "app": app}
    return {name: value for name, value in given.items() if value is not None}
