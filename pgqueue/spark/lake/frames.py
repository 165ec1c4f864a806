"""Writes Spark's rows to files of a lake, in folders named by columns, and reads them back."""

import hashlib
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN_WITH = {
    # Spark's own default, INT96, has no statistics to skip row groups by, and others read it without a zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
EMPTY = "__HIVE_DEFAULT_PARTITION__"
"""Where Spark puts the rows of a queue whose name is empty."""
QUEUE_NAME = "queue_name"
"""The column with the queue's name, in files whose folder cannot have that name; elsewhere it is missing or null."""
HASHED = "~"
LONGEST_FOLDER = 200
"""In bytes. A file system holds names of up to 255, ``queue=`` included."""
PLAIN = frozenset(string.ascii_letters + string.digits + "_-.")


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that Spark has written and that no manifest names yet.

    Attributes:
        path: its place now, below the lake.
        name: its final place, below its table.
        rows: the number of its rows.
        bytes: its size.
    """

    path: str
    name: str
    rows: int
    bytes: int

    def part(self, column: str) -> str | None:
        """The value of a column, read from the file's folders; None: the column makes no folder."""
        for folder in self.name.split("/")[:-1]:
            name, _, value = folder.partition("=")
            if name == column:
                return "" if value == EMPTY else unquote(value)
        return None


def write(frame: "DataFrame", place: str, partitions: Sequence[str]) -> None:
    """Have Spark write rows into a folder.

    Args:
        frame: the rows.
        place: the folder, which must not exist yet.
        partitions: the columns that make folders in it.
    """
    with _settings(frame.sparkSession):
        frame.write.partitionBy(*partitions).parquet(place)


def read(spark: "SparkSession", place: str, files: Sequence[str], columns: Mapping[str, str]) -> "DataFrame":
    """The rows of these files, in the given columns: a column that a file does not have is null.

    Args:
        spark: the session.
        place: the folder below which folders are columns.
        files: the files to read.
        columns: each column's type, in order.
    """
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", place).parquet(*files).select(*columns)


def folder_of(queue: str) -> str:
    """The name of a queue's folder: the queue's name, or a hash of it where the name cannot be a folder.

    Spark writes some characters as ``%2F``, three bytes for one. A name that Spark uses itself, or that begins like a
    hash, is hashed too.
    """
    length = sum(len(char.encode()) if char in PLAIN or not char.isascii() else 3 for char in queue)
    if length <= LONGEST_FOLDER and queue != EMPTY and not queue.startswith(HASHED):
        return queue
    return HASHED + hashlib.sha256(queue.encode()).hexdigest()


def queues_placed(frame: "DataFrame", queues: Iterable[str]) -> "DataFrame":
    """Ended jobs in the form of the files: where a queue's name cannot be a folder, another column keeps the name.

    Args:
        frame: the ended jobs.
        queues: the queues of these jobs.
    """
    from pyspark.sql.functions import col, concat, lit, sha2, when  # noqa: PLC0415 - heavy

    hashed = [queue for queue in queues if folder_of(queue) != queue]
    if not hashed:
        return frame
    is_hashed, folder = col("queue").isin(hashed), concat(lit(HASHED), sha2(col("queue"), 256))
    named = frame.withColumn(QUEUE_NAME, when(is_hashed, col("queue")))
    return named.withColumn("queue", when(is_hashed, folder).otherwise(col("queue")))


def queues_named(frame: "DataFrame") -> "DataFrame":
    """Ended jobs as read from files, with the names of queues whose folder is not the name, the empty one included."""
    from pyspark.sql.functions import coalesce, col, lit  # noqa: PLC0415 - heavy

    return frame.withColumn("queue", coalesce(col(QUEUE_NAME), col("queue"), lit(""))).drop(QUEUE_NAME)


def arranged(frame: "DataFrame", queues: Mapping[str, int], rows_per_file: int) -> "DataFrame":
    """Rows distributed so that a large queue makes several files and a small one makes one.

    Args:
        frame: ended jobs.
        queues: how many rows each queue has.
        rows_per_file: about the most rows in a file.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

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


@contextmanager
def _settings(spark: "SparkSession") -> Iterator[None]:
    """Set the session's settings for writing, and restore them after the block."""
    former = {name: spark.conf.get(name, None) for name in WRITTEN_WITH}
    try:
        for name, value in WRITTEN_WITH.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, before in former.items():
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)
