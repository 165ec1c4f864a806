"""How the suite runs Java: for programs that end within minutes, and with Spark's classes as an archive.

A Spark that starts reads and checks 15,000 classes: a third of the CPU of a session that answers two queries. ``make archive``
writes the classes that one session uses to a file (``python tests/java.py FILE``), once for each installation; every Java
that a test starts, on a cluster too, maps it into its memory. Without the file, or with one of another Java or another
Spark, Java reads the classes as ever.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix, "spark.jsa")
QUICKLY = (
    # Compiling twice is worth it for programs that run for minutes. With one compiler Java has 48 MB for compiled code, which
    # Spark fills: methods are thrown out and compiled again. Spark's own classes need no verification.
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-Xlog:disable -Xlog:all=error:stderr"  # else what it says of an archive would be in a program's output
)
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
OF_A_CLUSTER = (
    "org.apache.spark.deploy.master.Master",
    "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.deploy.worker.ExecutorRunner",
    "org.apache.spark.deploy.client.StandaloneAppClient",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
    "org.apache.spark.network.client.TransportClientFactory",
    "org.apache.spark.network.shuffle.ExternalShuffleBlockResolver",
)
"""Classes that a session of one process does not use; those that they name are archived with them."""


def java_options() -> str:
    """What tests give to each Java; programs that a test starts inherit it as ``SPARK_SUBMIT_OPTS``."""
    return f"{QUICKLY} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICKLY


def archive(path: Path) -> None:
    """Write the classes of a Spark session that reads, sorts, joins, streams and writes."""
    from pgqueue.spark.session import session  # noqa: PLC0415 - heavy, and only here

    new = path.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICKLY} -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory() as folder:
        spark = session(
            master="local[2]",
            settings={**INTERPRETED, "spark.sql.warehouse.dir": folder, "spark.sql.shuffle.partitions": "2"},
        )
        _use(spark, folder)
        java: Any = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way
        for name in OF_A_CLUSTER:
            java.jvm.java.lang.Class.forName(name)
        spark.stop()
        java.shutdown()
        java.proc.stdin.close()
        java.proc.wait()
    new.rename(path)


def _use(spark: "SparkSession", folder: str) -> None:
    """Run what most tests run, on a handful of rows."""
    rows = spark.range(100, numPartitions=2).selectExpr(
        "id", "id % 7 as k", "cast(id as string) as text", "timestamp_seconds(id) as at", "array(id, 1) as list",
        "named_struct('a', id, 'b', null) as made", "to_json(named_struct('a', id)) as json",
    )  # fmt: skip
    rows.write.mode("overwrite").partitionBy("k").parquet(f"{folder}/rows")
    read = spark.read.parquet(f"{folder}/rows")
    read.createOrReplaceTempView("rows")
    spark.sql(
        """
        select k, date(at) as day, count(*) as n, count(distinct text) as texts, sum(id) as total, max(made.b) as most,
               percentile_approx(id, 0.5) as half, collect_list(text) as all_texts
        from rows left join (select id as other from rows where id > 3) as more on other = rows.id
        where get_json_object(json, '$.a') is not null group by 1, 2 order by n desc, k limit 5
        """
    ).collect()
    spark.sql(
        "select *, row_number() over (partition by k order by at) as place from rows, lateral explode(list)"
    ).toArrow()
    read.mapInArrow(lambda batches: batches, read.schema).groupBy("k").count().collect()
    (
        spark.readStream.schema(read.schema).parquet(f"{folder}/rows").writeStream.format("parquet")
        .options(path=f"{folder}/streamed", checkpointLocation=f"{folder}/checkpoint").trigger(availableNow=True).start()
        .awaitTermination()
    )  # fmt: skip


if __name__ == "__main__":
    archive(Path(sys.argv[1]))
