"""An application that uses each part of the pipeline on a cluster, and kills an executor in each; ``spark-submit`` runs it.

Its arguments: a DSN, a lake with ended jobs, and a folder for what it finds. Each step writes there what it found, and the
killed executor leaves a file there. Before the steps and after them it exports the database to a lake in that folder, as the
file does that users submit; the test kills an executor during the first export, and this driver during the last one.
"""

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from pgqueue.cli import submit
from pgqueue.spark.config import Config
from pgqueue.spark.lake import files
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.rollup import in_duckdb
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterable[pa.RecordBatch]

JOBS = 3_000
"""Rows that the sink writes."""
FIRST, LAST = "first", "last"
"""The lakes of the two exports."""
GUARD = 120.0
"""Seconds after which a slow task ends although Spark has started no second attempt of it."""


def executor() -> int:
    """The process of the executor that runs this task."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def killing(flag: Path) -> "Callable[[Batches], Iterator[pa.RecordBatch]]":
    """Passes rows on; the first task that has passed some kills its executor, while its writer has a part of its rows."""

    def passed(batches: "Batches") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            yield batch
            try:
                flag.touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(executor(), signal.SIGKILL)

    return passed


def slow(flag: Path) -> "Callable[[Batches], Iterator[pa.RecordBatch]]":
    """Passes rows on; the first attempt of the first part ends only after a second one of it, which runs at the same time."""

    def passed(batches: "Batches") -> "Iterator[pa.RecordBatch]":
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0:
            if task.attemptNumber():
                flag.touch()
            until = time.monotonic() + GUARD
            while not flag.exists() and time.monotonic() < until:
                time.sleep(0.05)

    return passed


class Steps:
    """The steps, each with the name of the file for what it found."""

    def __init__(self, spark: "SparkSession", dsn: str, lake: Lake, folder: Path) -> None:
        self.spark, self.dsn, self.lake, self.folder = spark, dsn, lake, folder

    def source(self) -> list[int]:
        """The ids of all ended jobs, read from the database."""
        return self.ids(self.through(self.ended(), killing))

    def shuffle(self) -> dict[str, int]:
        """How many jobs each queue had: the executor is killed after it made what another stage fetches."""
        counted = self.ended().repartition(4, "id").groupBy("queue").count()
        return {row["queue"]: row["count"] for row in self.through(counted, killing).collect()}

    def stream(self) -> list[int]:
        """The ids of all ended jobs, read as a stream into files."""
        place = str(self.folder / "streamed")
        rows = (
            self.spark.readStream.format("pgqueue").options(dsn=self.dsn, table="ended", columns="id").load()
        )
        query = (
            self.through(rows, killing)
            .writeStream.format("parquet")
            .options(path=place, checkpointLocation=f"{place}-checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.ids(self.spark.read.parquet(place))

    def sink(self) -> None:
        self.write(killing)

    def sink_twice(self) -> None:
        """Enqueue jobs, with two attempts of a task at the same time."""
        self.write(slow)

    def rollup(self) -> list[str]:
        in_duckdb.MOST_ROWS = -1
        with self.every_read(killing):
            return [str(day) for day in rollup(self.spark, None, self.lake, Config())]

    def run(self) -> None:
        """Each step in turn."""
        for step in (
            self.source,
            self.shuffle,
            self.stream,
            self.sink,
            self.sink_twice,
            self.rollup,
        ):
            self.name = step.__name__
            (self.folder / f"{self.name}.json").write_text(json.dumps(step()))

    # What the steps use

    def ended(self) -> "DataFrame":
        return (
            self.spark.read.format("pgqueue")
            .options(dsn=self.dsn, table="ended", columns="id, queue", partitions="4")
            .load()
        )

    def through(self, frame: "DataFrame", what: "Callable[[Path], Any]") -> "DataFrame":
        """The same rows, through a function that knows this step's file."""
        return frame.mapInArrow(what(self.folder / f"{self.name}-happened"), frame.schema)

    def write(self, what: "Callable[[Path], Any]") -> None:
        rows = self.spark.range(JOBS, numPartitions=4).withColumnRenamed("id", "n")
        writer = self.through(rows, what).write.format("pgqueue")
        writer.options(dsn=self.dsn, task=self.name, run=self.name).mode("append").save()

    def every_read(self, what: "Callable[[Path], Any]") -> "Any":
        """A block in which what is read from the lake goes through a function."""
        from unittest.mock import patch  # noqa: PLC0415 - only here

        read = files.read
        return patch.object(files, "read", lambda *given: self.through(read(*given), what))

    @staticmethod
    def ids(frame: "DataFrame") -> list[int]:
        return sorted(row["id"] for row in frame.select("id").collect())


def export(dsn: str, lake: Path, rows_per_file: int) -> None:
    """Run the file for ``spark-submit``, in this driver; without a session it starts the application's."""
    words = ("pipeline", "export", "--lake", str(lake), "--rows-per-file", str(rows_per_file), "--dsn", dsn)
    sys.argv[:] = [submit.__file__, *words]
    try:
        runpy.run_path(submit.__file__, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise


def main(dsn: str, lake: Lake, folder: Path) -> None:
    """Export, go through the steps, and export again."""
    export(dsn, folder / FIRST, 80)
    Steps(session(), dsn, lake, folder).run()
    export(
        dsn, folder / LAST, 10
    )  # a file for each 10 rows: a day is far from written when its first file is there


if __name__ == "__main__":
    main(sys.argv[1], Lake(sys.argv[2]), Path(sys.argv[3]))
