"""What an export reads from the database: ended jobs, day by day, and the tables that have no days."""

from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pgqueue.spark.lake.lake import DEPLOY_COLUMNS, DEPLOYS, ENDED_COLUMNS, WORKER_COLUMNS, WORKERS, Lake
from pgqueue.store.database import Database
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


def ended(spark: "SparkSession", database: Database, day: date, *, since: int, below: int) -> "DataFrame":
    """The jobs that ended on a day, in transactions from ``since`` to below ``below``."""
    rows = _table(spark, database, "ended", {"from": str(day), "to": str(day)})
    return rows.where(f.col("ended_in").between(since, below - 1)).select(*ENDED_COLUMNS)


def dead(spark: "SparkSession", database: Database, day: date, *, below: int) -> "DataFrame":
    """The dead jobs of a day that are still in ``dead_jobs``, in the shape of ended jobs."""
    return ended(spark, database, day, since=0, below=below).where(f.col("outcome") == "dead")


def keep_workers(spark: "SparkSession", database: Database, lake: Lake) -> None:
    """Add the database's workers to the lake's: the database deletes old ones in time, the lake keeps them."""
    found = _table(spark, database, WORKERS).select(*WORKER_COLUMNS, f.lit(0).alias("age"))
    former = lake.entry(WORKERS, None)
    if former is not None:
        # a worker that only the lake knows, and that was alive, has been deleted by the database since
        last_seen = f.coalesce("ended_at", f.lit(former.written_at))
        found = found.union(lake.workers(spark).withColumn("ended_at", last_seen).withColumn("age", f.lit(1)))
    newest = found.groupBy("id").agg(f.min_by(f.struct(*WORKER_COLUMNS), "age").alias("worker"))
    lake.replace(WORKERS, newest.select("worker.*").coalesce(1))


def keep_deploys(spark: "SparkSession", database: Database, lake: Lake) -> None:
    """Replace the lake's deploys with the database's."""
    schema = ", ".join(f"{name} {kind}" for name, kind in DEPLOY_COLUMNS.items())
    lake.replace(DEPLOYS, spark.createDataFrame(database.run(plans.deploys()), schema).coalesce(1))


def _table(
    spark: "SparkSession", database: Database, name: str, options: "Mapping[str, str] | None" = None
) -> "DataFrame":
    where = {"dsn": database.dsn, "schema": database.catalogue.schema, "table": name}
    return spark.read.format("pgqueue").options(**where, **(options or {})).load()
