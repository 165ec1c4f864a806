"""Parquet files of a lake, written and read by Spark's executors through Arrow, at their final place.

A file counts once a commit of its table names it (:mod:`pgqueue.spark.lake.table`). If Spark runs a task twice, each
attempt writes files with other names, and Spark gives the driver the files of one attempt.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset, fs, parquet

from pgqueue.spark.lake.folder import open_location
from pgqueue.spark.lake.statistics import have_bounds, statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION = "day"
"""The column that makes folders, in tables that have it; the files do not have it."""
ROWS_PER_FILE = 1_000_000
"""About the most rows in a file."""
ROW_GROUP = 128_000
"""Rows of a row group."""
COMPRESSION = "zstd"
FEW_ROWS = 1_000
"""A file with fewer rows is without what helps readers of large ones only: it is larger than the rows of a small day."""
REPORT = pa.schema(
    [
        ("path", pa.string()),
        ("day", pa.date32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("statistics", pa.string()),
    ]
)
REPORT_IN_SPARK = "path string, day date, rows bigint, bytes bigint, statistics string"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written.

    Attributes:
        path: its place below its table.
        day: the day of its rows; None: its table has no days.
        rows: the number of its rows.
        bytes: its size.
        statistics: what the table's log says of it, see :mod:`pgqueue.spark.lake.statistics`.
    """

    path: str
    day: date | None
    rows: int
    bytes: int
    statistics: str


def arrow_schema(frame: "DataFrame") -> pa.Schema:
    """The columns of a frame as a table of a lake has them: instants are microseconds in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - heavy

    schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    return schema


def write(frame: "DataFrame", location: str) -> list[WrittenFile]:
    """Have Spark's executors write rows; returns the files, which no table names yet.

    Args:
        frame: the rows. Each of its partitions makes a file for each day that it has.
        location: the table's folder, as :func:`pgqueue.spark.lake.folder.open_location` takes it.
    """
    told = frame.mapInArrow(
        partial(_write_partition, arrow_schema(frame), location), REPORT_IN_SPARK
    ).collect()
    return [WrittenFile(**row.asDict()) for row in told]


def read(
    spark: "SparkSession", location: str, files: Mapping[str, date | None], columns: Mapping[str, str]
) -> "DataFrame":
    """The rows of these files, in the given columns: a column that a file does not have is null.

    Args:
        spark: the session.
        location: the table's folder.
        files: the files to read, below the table, each with its day.
        columns: each column's type, in order.
    """
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    if not files:
        return spark.createDataFrame([], schema)
    if location.startswith("file://"):  # Spark's own reader skips row groups
        paths = [f"{location}/{path}" for path in files]
        return spark.read.schema(schema).option("basePath", location).parquet(*paths).select(*columns)
    named = spark.createDataFrame([*files.items()], "path string, day date").repartition(len(files))
    wanted = arrow_schema(spark.createDataFrame([], schema))
    return named.mapInArrow(partial(_read, wanted, location), schema)


def rows_of(location: str, paths: Iterable[str], schema: pa.Schema) -> dataset.Dataset:
    """The rows of these files, to read in this process: a column that a file does not have is null.

    Args:
        location: the table's folder.
        paths: the files, below the table.
        schema: the columns; the day is that of a file's folder.

    Raises:
        OSError: there is no such file.
    """
    system, root = open_location(location)
    named = [f"{root}/{path}" for path in paths]
    if not named:
        return dataset.dataset(schema.empty_table())
    days = [field for field in schema if field.name == PARTITION]
    return dataset.dataset(
        named,
        schema=schema,
        filesystem=system,
        format="parquet",
        partitioning=dataset.partitioning(pa.schema(days), flavor="hive"),
        partition_base_dir=root,
    )


def written_file(location: str, day: date | None, rows: pa.Table) -> WrittenFile:
    """Write rows into one file of a table, from this process.

    Args:
        location: the table's folder.
        day: the day of the rows, which are without that column; None: the table has no days.
        rows: the rows.
    """
    files, root = open_location(location)
    file = _OpenFile(files, root, day, rows.schema)
    file.add(rows)
    return file.close()


def written_files(location: str, rows: pa.Table) -> list[WrittenFile]:
    """Write rows into a file for each of their days, from this process."""
    return [written_file(location, day, of_day) for day, of_day in _by_day(rows)]


def _write_partition(
    schema: pa.Schema, location: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In an executor: write a partition's rows; yield one row for each file."""
    files, root = open_location(location)
    by_day: dict[date | None, _OpenFile] = {}
    for batch in batches:
        for day, rows in _by_day(pa.Table.from_batches([batch]).cast(schema)):
            if day not in by_day:
                by_day[day] = _OpenFile(files, root, day, rows.schema)
            by_day[day].add(rows)
    done = [one.close() for one in by_day.values()]
    if done:
        yield from pa.Table.from_pylist([asdict(one) for one in done], REPORT).to_batches()


def _by_day(rows: pa.Table) -> Iterator[tuple[date | None, pa.Table]]:
    if PARTITION not in rows.column_names:
        yield None, rows
        return
    days = rows[PARTITION]
    others = rows.drop_columns([PARTITION])
    for day in pc.unique(days):
        yield day.as_py(), others.filter(pc.equal(days, day))


class _OpenFile:
    """A file that is being written; its rows are kept until they make a row group."""

    def __init__(self, files: fs.FileSystem, root: str, day: date | None, schema: pa.Schema) -> None:
        folder = "" if day is None else f"{PARTITION}={day}/"
        self.path = f"{folder}{uuid.uuid4().hex}.parquet"
        self.day = day
        self._at = f"{root}/{self.path}"
        if isinstance(files, fs.LocalFileSystem):  # in an object store a folder is part of a name
            files.create_dir(self._at.rpartition("/")[0], recursive=True)
        self._sink = files.open_output_stream(self._at)
        self._schema = schema
        self._told: list[parquet.FileMetaData] = []
        self._writer: parquet.ParquetWriter | None = None
        self._kept: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._kept.append(rows)
        self._rows += rows.num_rows
        if self._rows >= ROW_GROUP:
            self._flush()

    def close(self) -> WrittenFile:
        self._flush()
        self._opened().close()
        size = self._sink.tell()
        self._sink.close()
        (found,) = self._told
        return WrittenFile(self.path, self.day, found.num_rows, size, statistics(found))

    def _flush(self) -> None:
        if self._rows:
            self._opened().write_table(pa.concat_tables(self._kept), row_group_size=ROW_GROUP)
            self._kept, self._rows = [], 0

    def _opened(self) -> parquet.ParquetWriter:
        if self._writer is None:
            few = self._rows < FEW_ROWS
            self._writer = parquet.ParquetWriter(
                self._sink,
                self._schema,
                compression=COMPRESSION,
                metadata_collector=self._told,
                use_dictionary=not few,
                store_schema=not few,
                write_statistics=not few or have_bounds(self._schema),
            )
        return self._writer


def _read(schema: pa.Schema, location: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In an executor: yield the rows of the files that these rows name."""
    files, root = open_location(location)
    for batch in batches:
        for path, day in zip(batch["path"].to_pylist(), batch["day"].to_pylist(), strict=True):
            file = parquet.ParquetFile(f"{root}/{path}", filesystem=files)
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for rows in file.iter_batches(columns=there):
                yield from shape_rows(pa.Table.from_batches([rows]), schema, day).to_batches()


def shape_rows(rows: pa.Table, schema: pa.Schema, day: date | None) -> pa.Table:
    """Rows in these columns: those that are missing are null, and the day is the file's."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.repeat(pa.scalar(day if field.name == PARTITION else None, field.type), rows.num_rows)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
