"""The jobs of a task as a DataFrame whose columns are the arguments, in Spark's types."""

from collections.abc import Collection
from datetime import date
from typing import TYPE_CHECKING, Final

from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.options import Options
from pgqueue.spark.reading.options import source_of
from pgqueue.spark.typed.columns import OWN, TypedColumns, selection
from pgqueue.spark.typed.contracts import columns_of, contract
from pgqueue.spark.typed.dialects import DIALECTS
from pgqueue.store.pipeline.extract_where import TABLES
from pgqueue.values.hints import remedy

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

FROM: Final = ("ended", "jobs")
"""Tables of the database that have arguments: ended jobs, and live ones."""


def arguments(
    spark: "SparkSession",
    task: str,
    *,
    lake: "Lake | str | PathLike[str] | None" = None,
    dsn: str | None = None,
    schema: str = "pgqueue",
    table: str = "ended",
    days: Collection[date] | None = None,
    contract_hash: str | None = None,
) -> "DataFrame":
    """The jobs of a task, with a column for each argument, in Spark's types, and the typed ``result``.

    The types are those of the task's contract, which its workers publish. The first columns are those of the job: ``id``,
    ``queue``, ``outcome`` or ``status``, its times and attempts. An argument whose name one of them has is called ``arg_`` and its
    name. An argument that a job does not have has its default.

    What does not fit the contract, as in jobs of earlier releases, is null, and ``misfit`` has the JSON of all arguments of such a
    job; ``result_misfit`` has the JSON of a result that does not fit. In all other rows both are null.

    Args:
        spark: the session, which :func:`pgqueue.spark.session.session` has made or prepared.
        task: the task's name.
        lake: the lake with the jobs; None: they are read from a database.
        dsn: of the database; None: as the environment says.
        schema: of pgqueue's tables in the database.
        table: of the database: ``ended`` or ``jobs``.
        days: only jobs that ended on these UTC days; None: all.
        contract_hash: the beginning of the hash of an earlier contract; None: the one that a worker said last.

    Raises:
        InvalidOption: no worker has published a contract of the task, or options contradict each other.
        LakeError: there is no lake, or it does not hold arguments.
        ConfigurationError: no database is named.
    """
    if lake is not None:
        if dsn is not None or table != "ended":
            raise InvalidOption("a lake has ended jobs of its own database: give no dsn, and no table")
        return _of_lake(spark, task, lake if isinstance(lake, Lake) else Lake(lake), days, contract_hash)
    return _of_database(
        spark, task, dsn=dsn, schema=schema, table=table, days=days, contract_hash=contract_hash
    )


def require_arguments(lake: Lake) -> None:
    """Check that a lake holds arguments as they are.

    Raises:
        LakeError: it leaves them out, or holds hashes of them.
    """
    if "args" in lake.choice.names:
        raise LakeError(f"{lake.uri} {lake.choice}: its jobs have no arguments to make columns of")


def _of_lake(
    spark: "SparkSession", task: str, lake: Lake, days: Collection[date] | None, contract_hash: str | None
) -> "DataFrame":
    require_arguments(lake)
    columns = columns_of(contract(lake, task, hash=contract_hash))
    rows = lake.ended(spark, days)
    shown = [name for name in rows.columns if name not in lake.choice.names]
    return typed(_of_task(rows, task).select(*shown), columns)


def _of_database(
    spark: "SparkSession",
    task: str,
    *,
    dsn: str | None,
    schema: str,
    table: str,
    days: Collection[date] | None,
    contract_hash: str | None,
) -> "DataFrame":
    if table not in FROM:
        raise InvalidOption(f"table={table!r}: {remedy(table, FROM)}")
    if days is not None and table != "ended":
        raise InvalidOption("days are those on which jobs ended: they go with the table ended")
    has = TABLES[table].columns
    given = {"table": table, "schema": schema} | ({} if dsn is None else {"dsn": dsn})
    source = source_of(Options(given))
    database = source.database()
    try:
        columns = columns_of(contract(database, task, hash=contract_hash))
    finally:
        database.close()
    wanted = ",".join(name for name in (*OWN, "task", "args", "result") if name in has)
    given |= {"dsn": source.dsn, "columns": wanted, "task": task}
    if days:
        given |= {"from": str(min(days)), "to": str(max(days))}
    rows = _of_task(spark.read.format("pgqueue").options(**given).load(), task)
    if days is not None:
        from pyspark.sql.functions import col  # noqa: PLC0415 - heavy

        rows = rows.where(col("day").isin(list(days)))
    return typed(rows, columns)


def typed(rows: "DataFrame", columns: TypedColumns) -> "DataFrame":
    """Jobs of one task with typed columns in place of ``args`` and ``result``.

    Args:
        rows: the jobs, with columns of :data:`OWN`, ``args`` and ``result``, as far as they are wanted.
        columns: the task's.
    """
    found, quote = selection(columns, "spark", rows.columns), DIALECTS["spark"].quote
    return found.stepped(rows).selectExpr(*(f"{sql} as {quote(name)}" for name, sql in found.columns))


def _of_task(rows: "DataFrame", task: str) -> "DataFrame":
    from pyspark.sql.functions import col, lit  # noqa: PLC0415 - heavy

    return rows.where(col("task") == lit(task))
