"""The lake: a Delta table for ended jobs, one for each roll-up, and records of how their days were made.

::

    <lake>/ended/                 ended jobs, from the history and the dead table: a Delta table with a folder for each day
    <lake>/workers/  <lake>/deploys/                      tables without days
    <lake>/rollup/hours/                                  what is computed from them
    <lake>/_pgqueue/lake.json                             whose it is
    <lake>/_pgqueue/records/                              how each day of each table was made

A day is written in three steps: Spark's executors, or this process, write files at their final place, under new names; the
record of the day is written; one commit of the table adds the files, removes those that they replace, and notes the day's
generation. If the writer is killed before the commit, the day is unchanged: neither the files nor the record count. Files
that do not count are deleted after a week, so readers of an older version may finish.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import dataset

from pgqueue.errors import LakeError, LakeOfAnother
from pgqueue.spark.config import HiddenColumns
from pgqueue.spark.lake import columns, files
from pgqueue.spark.lake.columns import (
    DEPLOY_COLUMNS,
    DEPLOYS,
    ENDED,
    ENDED_COLUMNS,
    ENDED_SCHEMA,
    WORKER_COLUMNS,
    WORKERS,
)
from pgqueue.spark.lake.files import WrittenFile, arrow_schema
from pgqueue.spark.lake.folder import UNFINISHED, Folder
from pgqueue.spark.lake.records import DayRecord, EndedDay, Marker, Records, decode, encode
from pgqueue.spark.lake.table import KEPT_HOURS, LakeTable
from pgqueue.store.pipeline.lake import HiddenValues, Origin

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

M = TypeVar("M", bound=DayRecord)

ABOUT = "_pgqueue"
MARKER = f"{ABOUT}/lake.json"


class Lake:
    """A lake, existing or to be created. One process at a time writes to it."""

    def __init__(self, uri: "str | PathLike[str]") -> None:
        """Set the lake's place. No file is read yet.

        Args:
            uri: a folder's path, or a URI of a file system that Arrow and ``deltalake`` both know: ``s3://``, ``gs://``.

        Raises:
            LakeError: no such file system is known, or the path has characters that cannot be in it.
        """
        self.folder = Folder(str(uri))
        self._marker: Marker | None = None
        self._records = Records(self.folder)
        self._tables: dict[str, LakeTable] = {}

    def __repr__(self) -> str:
        return f"<Lake {self.folder.uri}>"

    @property
    def uri(self) -> str:
        """The lake's place."""
        return self.folder.uri

    def passed(self, point: str) -> None:
        """Called after each step; does nothing. Fault tests stop the process here."""

    # The lake's owner.

    def exists(self) -> bool:
        """Whether there is a lake."""
        return self.folder.has(MARKER)

    def marker(self) -> Marker:
        """The lake's owner: its database and schema.

        Raises:
            LakeTooNew: a later release made the lake.
            LakeError: there is no lake here.
        """
        if self._marker is None:
            if not self.exists():
                raise LakeError(
                    f"{self.uri} is no lake: run `pgqueue pipeline export` first, or check --lake"
                )
            self._marker = decode(self.folder.read(MARKER), f"{self.uri}/{MARKER}", Marker)
        return self._marker

    def hidden(self) -> HiddenValues:
        """What the lake does not hold as the database does, with the key from the environment.

        Raises:
            ConfigurationError: the key is missing, or is another one.
            LakeError: there is no lake here.
        """
        return columns.hidden_values(self.choice, self.marker().key_id)

    @property
    def choice(self) -> HiddenColumns:
        """Which columns the lake hides."""
        return HiddenColumns(self.marker().leave_out, self.marker().hashed)

    @property
    def owner(self) -> str:
        """What people call the lake's database, as far as it is known; else its numbers."""
        return self.marker().database or str(self.marker().origin)

    def create(self, origin: Origin, choice: HiddenColumns | None = None, database: str = "") -> None:
        """Create the lake of a database, unless it exists.

        Args:
            origin: the database.
            choice: the columns that it hides; None: none, or those that an existing lake hides.
            database: what people call the database; an existing lake takes it, too.

        Raises:
            ConfigurationError: the key of the hashes is missing.
            LakeError: the folder holds other files, or cannot be written to.
            LakeOfAnother: the lake is another database's.
            LakeTooNew: a later release made the lake.
        """
        if self.exists():
            self.require(origin)
            if choice not in {None, self.choice}:
                raise LakeError(
                    f"{self.uri} {self.choice}, and the configuration {choice}: which columns a lake hides is decided when "
                    "it is made. Change [export] in the file of --config, or export into another folder"
                )
            if database not in {"", self.marker().database}:
                self._mark(msgspec.structs.replace(self.marker(), database=database))
            return
        others = [path for path in self.folder.paths() if UNFINISHED not in path]
        if others:
            raise LakeError(
                f"{self.uri} is no lake, and not empty ({others[0]} is in it): give --lake a folder of its own"
            )
        self._mark(_marker(origin, choice or HiddenColumns(), database))
        self.passed("created")

    def require(self, origin: Origin) -> None:
        """Check that this is the lake of this database.

        Raises:
            LakeOfAnother: it is another database's.
            LakeError: there is no lake here.
        """
        owner = self.marker().origin
        if owner != origin:
            raise LakeOfAnother(
                f"{self.uri} holds the history of {owner}, and this is {origin}: check --lake and --dsn, "
                "or export into another folder"
            )

    # Reading.

    def days(self) -> list[EndedDay]:
        """The days of ended jobs, oldest first, without those that were dropped from the lake."""
        return [one for one in self._records.of(self.table(ENDED), EndedDay) if one.dropped_at is None]

    def entries(self, table: str) -> list[DayRecord]:
        """A table's days, oldest first; ``table`` is its folder, such as ``rollup/hours``."""
        return self._records.of(self.table(table), DayRecord)

    def entry(self, table: str, day: date | None) -> DayRecord | None:
        """A table's day, or a table without days; None: it is not in the lake."""
        return self._one(table, day, DayRecord)

    def ended(self, spark: "SparkSession", days: Iterable[date] | None = None) -> "DataFrame":
        """The ended jobs of some days, or of all; a day that is not in the lake gives no rows.

        Columns that an earlier release did not write are null; columns of a later release are left out.
        """
        return self._frame(spark, ENDED, ENDED_COLUMNS, days)

    def day_table(self, spark: "SparkSession", table: str, days: Iterable[date] | None = None) -> "DataFrame":
        """The rows of some days of a table, or of all its days; a day that is not in the lake gives no rows.

        Raises:
            LakeError: the table was never written.
        """
        if not self.table(table).exists():
            raise LakeError(f"{self.uri} has no table {table} yet: run `pgqueue pipeline rollup` first")
        return self._frame(spark, table, self._columns(table), days)

    def workers(self, spark: "SparkSession") -> "DataFrame":
        """All workers that ever ran; ``ended_at`` is null for those that were alive at the last export."""
        return self._frame(spark, WORKERS, WORKER_COLUMNS)

    def deploys(self, spark: "SparkSession") -> "DataFrame":
        """The deploys: version and time."""
        return self._frame(spark, DEPLOYS, DEPLOY_COLUMNS)

    def rows(self, table: str, schema: pa.Schema) -> pa.Table:
        """All rows of a small table without days, read in this process."""
        return self.dataset(table, schema).to_table()

    def dataset(self, table: str, schema: pa.Schema, days: Iterable[date] | None = None) -> dataset.Dataset:
        """The rows of some days of a table, or of all, to read in this process; a column that a file does not have is null."""
        return files.rows_of(self.folder.at(table), self._paths(table, days), schema)

    def table(self, name: str) -> LakeTable:
        """A table, by its folder, such as ``rollup/hours``; it need not exist."""
        self.marker()
        return self._tables.setdefault(name, LakeTable(self.folder, name))

    # Writing.

    def replace_day(
        self, table: str, day: date, frame: "DataFrame", *, made_from: Mapping[str, str] | None = None
    ) -> DayRecord:
        """Replace a table's day with rows; as :meth:`replace_days`, for one day."""
        notes = None if made_from is None else {day: made_from}
        return self.replace_days(table, [day], frame, made_from=notes)[0]

    def replace_days(
        self,
        table: str,
        days: Sequence[date],
        rows: "DataFrame | pa.Table",
        *,
        made_from: Mapping[date, Mapping[str, str]] | None = None,
    ) -> list[DayRecord]:
        """Replace some days of a table with rows, in one commit. A killed call can be repeated.

        Args:
            table: the table's folder below the lake, such as ``rollup/hours``.
            days: the days to replace; a day without rows becomes an empty one.
            rows: the rows, with a column ``day``, of these days; rows of other days in a frame are left out.
            made_from: what to record of each day, such as the generation of its source.

        Raises:
            LakeError: a column has another type in the other days, or the lake cannot be written to.
        """
        notes = made_from or {}
        made: dict[date | None, Mapping[str, str]] = {day: notes.get(day, {}) for day in days}
        if isinstance(rows, pa.Table):
            return self._replace(table, rows.schema, lambda: self._write_days(table, rows), made)
        from pyspark.sql.functions import col  # noqa: PLC0415 - heavy

        frame = rows.where(col("day").isin(list(days)))
        return self._replace(table, arrow_schema(frame), lambda: self.write(table, frame), made)

    def replace(self, table: str, rows: pa.Table) -> DayRecord:
        """Replace all rows of a table without days, from this process."""
        return self._replace(table, rows.schema, lambda: self.write_rows(table, None, rows), {None: {}})[0]

    def write(self, table: str, frame: "DataFrame") -> list[WrittenFile]:
        """Have Spark's executors write rows for a table; the files do not count yet."""
        written = files.write(frame, self.folder.at(table))
        self.passed("written")
        return written

    def write_rows(self, table: str, day: date | None, rows: pa.Table) -> list[WrittenFile]:
        """Write rows for a table from this process, without their day; the file does not count yet. No rows make no file."""
        written = [files.written_file(self.folder.at(table), day, rows)] if rows.num_rows else []
        self.passed("written")
        return written

    def _write_days(self, table: str, rows: pa.Table) -> list[WrittenFile]:
        written = files.written_files(self.folder.at(table), rows)
        self.passed("written")
        return written

    def written(self, written: Sequence[WrittenFile]) -> tuple[int, int]:
        """How many rows files of ended jobs hold, which need not count yet: of the history, and dead jobs.

        Raises:
            OSError: there is no such file.
        """
        rows = files.rows_of(self.folder.at(ENDED), (one.path for one in written), ENDED_SCHEMA)
        dead = rows.count_rows(filter=dataset.field("outcome") == "dead")
        return rows.count_rows() - dead, dead

    def commit(
        self,
        schema: pa.Schema,
        written: Sequence[WrittenFile],
        entries: Sequence[DayRecord],
        *,
        replaced: Collection[date | None] = (),
        removed: Collection[str] = (),
        why: str = "",
    ) -> None:
        """Make files count, and the records of their days, all of one table.

        Args:
            schema: the columns that were written, with the day; see :func:`pgqueue.spark.lake.files.arrow_schema`.
            written: the files.
            entries: the records, each of a new generation.
            replaced: the days whose former files no longer count.
            removed: paths, below the table, of single files that no longer count.
            why: what is done, for the history of the table.

        Raises:
            LakeError: a column has another type in the lake, or another process has changed the table meanwhile.
        """
        table = self.table(entries[0].table)
        self._records.add(entries)
        self.passed("recorded")
        generations = {one.day: one.generation for one in entries}
        table.commit(schema, written, generations, replaced=replaced, removed=removed, why=why)
        self.passed("committed")

    def note(self, entries: Sequence[DayRecord]) -> None:
        """Record more of generations that count, such as when they were verified, in one commit."""
        self._records.add(entries)
        self.passed("noted in the lake")

    def sweep(self, table: str, *, kept_hours: int = KEPT_HOURS) -> list[str]:
        """Delete files of a table that do not count and are older than this; merge the records' files."""
        self._records.compact()
        return self.table(table).sweep(kept_hours=kept_hours)

    # Within.

    def _mark(self, marker: Marker) -> None:
        self.folder.write(MARKER, encode(marker))
        self._marker = marker

    def _replace(
        self,
        name: str,
        schema: pa.Schema,
        write: Callable[[], Sequence[WrittenFile]],
        notes: Mapping[date | None, Mapping[str, str]],
    ) -> list[DayRecord]:
        table = self.table(name)
        table.sweep()
        table.require(schema)
        written = write()
        now = datetime.now(UTC)
        entries = [
            DayRecord(
                table=name,
                day=day,
                generation=table.generation(day) + 1,
                written_at=now,
                made_from=dict(made_from),
            )
            for day, made_from in notes.items()
        ]
        self.commit(schema, written, entries, replaced=notes.keys())
        there = table.files()
        return [msgspec.structs.replace(one, files=there.get(one.day, ())) for one in entries]

    def _one(self, table: str, day: date | None, kind: type[M]) -> M | None:
        return next(iter(self._records.of(self.table(table), kind, [day])), None)

    def _columns(self, table: str) -> dict[str, str]:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - heavy

        schema = from_arrow_schema(self.table(table).schema())
        return {one.name: one.dataType.simpleString() for one in schema}

    def _frame(
        self, spark: "SparkSession", name: str, columns: Mapping[str, str], days: Iterable[date] | None = None
    ) -> "DataFrame":
        return files.read(spark, self.folder.at(name), self._paths(name, days), columns)

    def _paths(self, name: str, days: Iterable[date] | None) -> dict[str, date | None]:
        """Return the files of these days, None: of all days: their paths below the table's folder, and their days."""
        wanted = None if days is None else set(days)
        return {
            file.path.removeprefix(f"{name}/"): day
            for day, found in self.table(name).files().items()
            for file in found
            if wanted is None or day in wanted
        }


def _marker(origin: Origin, choice: HiddenColumns, database: str) -> Marker:
    return Marker(
        origin=origin,
        created_at=datetime.now(UTC),
        leave_out=choice.leave_out,
        hashed=choice.hashed,
        key_id=columns.id_of(columns.hidden_values(choice).key),
        database=database,
    )
