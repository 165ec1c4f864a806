"""Ended jobs as Spark reads them from the database, and how it distributes them over files."""

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pgqueue.spark.lake.columns import ENDED_COLUMNS
from pgqueue.spark.lake.hidden import in_spark
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline.lake import HiddenValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ended_jobs(
    spark: "SparkSession", database: Database, day: date, *, since: int, below: int, hidden: HiddenValues
) -> "DataFrame":
    """The jobs that ended on a day, in transactions from ``since`` to below ``below``, as the lake holds them."""
    where = {"dsn": database.dsn, "schema": database.catalogue.schema, "table": "ended"}
    columns = ",".join(name for name in ENDED_COLUMNS if name not in hidden.left_out)
    days = {"from": str(day), "to": str(day), "columns": columns}
    rows = spark.read.format("pgqueue").options(**where, **days).load()
    final = rows.where(f.col("ended_in").between(since, below - 1))
    return final.select(*(in_spark(name, hidden) for name in ENDED_COLUMNS))


def dead(
    spark: "SparkSession", database: Database, day: date, *, below: int, hidden: HiddenValues
) -> "DataFrame":
    """The dead jobs of a day that are still in ``dead_jobs``, in the shape of ended jobs."""
    return ended_jobs(spark, database, day, since=0, below=below, hidden=hidden).where(
        f.col("outcome") == "dead"
    )


def arrange_rows(frame: "DataFrame", queues: Mapping[str, int], rows_per_file: int) -> "DataFrame":
    """Rows distributed so that a large queue makes several files and a small one makes one.

    Args:
        frame: ended jobs.
        queues: how many rows each queue has.
        rows_per_file: about the most rows in a file.
    """
    large = {queue: -(-rows // rows_per_file) for queue, rows in queues.items() if rows > rows_per_file}
    small = sum(rows for queue, rows in queues.items() if queue not in large)
    shared = max(1, -(-small // rows_per_file))
    place, first = f.pmod(f.xxhash64("queue"), f.lit(shared)), shared
    for queue, files in large.items():
        spread = f.lit(first) + f.pmod(f.xxhash64("id"), f.lit(files))
        place, first = f.when(f.col("queue") == queue, spread).otherwise(place), first + files
    return frame.repartitionById(first, place.cast("int")).sortWithinPartitions(
        "day", "queue", "task", "ended_at", "id"
    )
