"""The lake: Parquet files in a folder or an object store, and the manifests that say which of them count.

::

    <lake>/ended/day=2026-11-20/queue=mail/*.parquet      ended jobs, from the history and the dead table
    <lake>/workers/  <lake>/deploys/                      tables without days
    <lake>/rollup/hours/day=2026-11-20/*.parquet          what is computed from them
    <lake>/_staging/                                      what is being written
    <lake>/_pgqueue/lake.json                             whose it is
    <lake>/_pgqueue/ended/2026-11-20.json                 the manifest of a day

A day is written in three steps: Spark writes into ``_staging``; the files move to their final place, under names that no
manifest has; the manifest that names them replaces the old one, in one rename. If the writer is killed before the rename,
the day is unchanged, and the next write removes the unnamed files. Files that a manifest no longer names stay until that
next write, so that their readers may finish.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, TypeVar

from pgqueue.errors import LakeError, LakeOfAnother
from pgqueue.spark.lake.folder import UNFINISHED, Folder
from pgqueue.spark.lake.frames import QUEUE_NAME, Staged, queues_named, read, write
from pgqueue.spark.lake.manifest import DataFile, Day, EndedDay, Marker, all_columns, decode, encode
from pgqueue.store.pipeline.extract_tables import TABLES, Kind
from pgqueue.store.pipeline.lake import Origin

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
M = TypeVar("M", bound=Day)

ENDED = "ended"
WORKERS = "workers"
DEPLOYS = "deploys"
TYPES: Mapping[Kind, str] = {
    Kind.BIGINT: "bigint",
    Kind.INTEGER: "int",
    Kind.SMALLINT: "smallint",
    Kind.TEXT: "string",
    Kind.JSON: "string",
    Kind.TIMESTAMP: "timestamp",
    Kind.DATE: "date",
}
ENDED_COLUMNS: Mapping[str, str] = {name: TYPES[kind] for name, kind in TABLES["ended"].columns.items()}
ENDED_FILES: Mapping[str, str] = {**ENDED_COLUMNS, QUEUE_NAME: "string"}
WORKER_COLUMNS: Mapping[str, str] = {
    "id": "string",
    "started_at": "timestamp",
    "ended_at": "timestamp",
    "concurrency": "int",
    "host": "string",
    "version": "string",
    "queues": "string",
}
DEPLOY_COLUMNS: Mapping[str, str] = {"deployed_at": "timestamp", "version": "string"}
ABOUT = "_pgqueue"
MARKER = f"{ABOUT}/lake.json"
STAGING = "_staging"


class Lake:
    """A lake, existing or to be created. One process at a time writes to it."""

    def __init__(self, uri: "str | PathLike[str]") -> None:
        """Set the lake's place. No file is read yet.

        Args:
            uri: a folder's path, or a URI of a file system that Arrow and Spark both know: ``hdfs://``, ``s3://`` or
                ``s3a://``, ``gs://``.

        Raises:
            LakeError: no such file system is known, or the path has characters that Spark reads as a pattern.
        """
        self.folder = Folder(str(uri))
        self._marker: Marker | None = None

    def __repr__(self) -> str:
        """Like ``<Lake file:///data/lake>``."""
        return f"<Lake {self.folder.uri}>"

    @property
    def uri(self) -> str:
        """The lake's place, in Spark's form."""
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
            self._marker = self._read(MARKER, Marker)
        return self._marker

    def create(self, origin: Origin) -> None:
        """Create the lake of a database, unless it exists.

        Raises:
            LakeError: the folder holds other files, or cannot be written to.
            LakeOfAnother: the lake is another database's.
            LakeTooNew: a later release made the lake.
        """
        if self.exists():
            self.require(origin)
            return
        others = [path for path in self.folder.paths() if UNFINISHED not in path]
        if others:
            raise LakeError(
                f"{self.uri} is no lake, and not empty ({others[0]} is in it): give --lake a folder of its own"
            )
        self.folder.write(MARKER, encode(Marker(origin=origin, created_at=datetime.now(UTC))))
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
        """The manifests of the days of ended jobs, oldest first."""
        return self._entries(ENDED, EndedDay)

    def day(self, day: date) -> EndedDay | None:
        """The manifest of a day of ended jobs; None: it is not in the lake."""
        return self._entry(ENDED, day, EndedDay)

    def entries(self, table: str) -> list[Day]:
        """The manifests of a table's days, oldest first; ``table`` is its folder, such as ``rollup/hours``."""
        return self._entries(table, Day)

    def entry(self, table: str, day: date | None) -> Day | None:
        """The manifest of a table's day, or of a table without days; None: it is not in the lake."""
        return self._entry(table, day, Day)

    def ended(self, spark: "SparkSession", days: Iterable[date] | None = None) -> "DataFrame":
        """The ended jobs of some days, or of all; a day that is not in the lake gives no rows.

        Columns that files of an earlier release do not have are null; columns of a later release are left out.

        Raises:
            LakeError: a column has another type in the lake.
        """
        entries = _chosen(self.days(), days)
        all_columns(entries, ENDED_FILES)
        return queues_named(self._frame(spark, ENDED, entries, ENDED_FILES))

    def day_table(self, spark: "SparkSession", table: str, days: Iterable[date] | None = None) -> "DataFrame":
        """The rows of some days of a table, or of all its days; a day that is not in the lake gives no rows.

        Raises:
            LakeError: the table was never written, or a column has two types.
        """
        entries = self.entries(table)
        if not entries:
            raise LakeError(f"{self.uri} has no table {table} yet: run `pgqueue pipeline rollup` first")
        return self._frame(spark, table, _chosen(entries, days), all_columns(entries))

    def workers(self, spark: "SparkSession") -> "DataFrame":
        """All workers that ever ran; ``ended_at`` is null for those that were alive at the last export."""
        return self._whole(spark, WORKERS, WORKER_COLUMNS)

    def deploys(self, spark: "SparkSession") -> "DataFrame":
        """The deploys: version and time."""
        return self._whole(spark, DEPLOYS, DEPLOY_COLUMNS)

    # Writing.

    def replace_day(
        self, table: str, day: date, frame: "DataFrame", *, made_from: Mapping[str, str] | None = None
    ) -> Day:
        """Replace a table's day with rows; as :meth:`replace_days`, for one day."""
        notes = None if made_from is None else {day: made_from}
        return self.replace_days(table, [day], frame, made_from=notes)[0]

    def replace_days(
        self,
        table: str,
        days: Sequence[date],
        frame: "DataFrame",
        *,
        made_from: Mapping[date, Mapping[str, str]] | None = None,
    ) -> list[Day]:
        """Replace some days of a table with rows, each day in one rename. A killed call can be repeated.

        Args:
            table: the table's folder below the lake, such as ``rollup/hours``.
            days: the days to replace; a day without rows becomes an empty one.
            frame: the rows, with a column ``day``; rows of other days are left out.
            made_from: what to record in a day's manifest, such as the generation of its source.

        Raises:
            LakeError: a column has another type in the other days, or the lake cannot be written to.
        """
        from pyspark.sql.functions import col  # noqa: PLC0415 - heavy

        columns = dict(frame.dtypes)
        all_columns([entry for entry in self.entries(table) if entry.day not in days], columns)
        self.sweep(table, days)
        notes = made_from or {}
        with self.staged(table, frame.where(col("day").isin(list(days))), "day") as staged:
            return [self._replaced(table, day, columns, notes.get(day, {}), staged) for day in days]

    def replace(self, table: str, frame: "DataFrame") -> Day:
        """Replace all rows of a table without days."""
        self.sweep(table)
        with self.staged(table, frame) as staged:
            return self._replaced(table, None, dict(frame.dtypes), {}, staged)

    @contextmanager
    def staged(self, table: str, frame: "DataFrame", *partitions: str) -> Iterator[list[Staged]]:
        """Have Spark write rows into ``_staging``; files that were not settled are deleted after the block.

        Args:
            table: the table for which they are written.
            frame: the rows.
            partitions: the columns that make folders.
        """
        place = f"{STAGING}/{table}/{uuid.uuid4().hex}"
        try:
            write(frame, f"{self.uri}/{place}", partitions)
            paths = [path for path in self.folder.paths(place) if path.endswith(".parquet")]
            self.passed("staged")
            yield [
                Staged(path, path.removeprefix(f"{place}/"), *self.folder.measured(path)) for path in paths
            ]
        finally:
            self.folder.remove_all(place)

    def ended_of(self, spark: "SparkSession", staged: Sequence[Staged]) -> "DataFrame":
        """The ended jobs in staged files."""
        place = staged[0].path.removesuffix(staged[0].name)
        files = [f"{self.uri}/{one.path}" for one in staged]
        return queues_named(read(spark, f"{self.uri}/{place}", files, ENDED_FILES))

    def settle(self, table: str, staged: Iterable[Staged], generation: int) -> tuple[DataFile, ...]:
        """Move staged files to their final place, under names that no manifest has."""
        settled = []
        for one in staged:
            place, slash, name = one.name.rpartition("/")
            path = f"{table}/{place}{slash}{generation}-{name}"
            self.folder.move(one.path, path)
            settled.append(DataFile(path, one.rows, one.bytes))
            self.passed("moved")
        return tuple(settled)

    def name(self, entry: Day) -> None:
        """Write a manifest in place of the old one: from now on its files count."""
        self.folder.write(_manifest(entry.table, entry.day), encode(entry))
        self.passed("named")

    def sweep(self, table: str, days: Collection[date] | None = None) -> list[str]:
        """Remove files that a killed writer of a table left, and files that no manifest names any more.

        Args:
            table: the table's folder below the lake.
            days: look only in these days; None: in all.

        Returns:
            The removed files, without those of ``_staging``.
        """
        self.folder.remove_all(f"{STAGING}/{table}")
        whole = self.entry(table, None)
        entries = [*self.entries(table), *([] if whole is None else [whole])]
        named = {file.path for entry in entries for file in entry.files}
        places = [table] if days is None else [f"{table}/day={day}" for day in days]
        stray = [path for place in places for path in self.folder.paths(place) if path not in named]
        for path in stray:
            self.folder.remove(path)
        return stray

    # Within.

    def _replaced(
        self,
        table: str,
        day: date | None,
        columns: dict[str, str],
        made_from: Mapping[str, str],
        staged: Iterable[Staged],
    ) -> Day:
        former = self.entry(table, day)
        generation = 1 if former is None else former.generation + 1
        mine = [one for one in staged if day is None or one.part("day") == str(day)]
        entry = Day(
            table=table,
            day=day,
            generation=generation,
            files=self.settle(table, mine, generation),
            columns=columns,
            written_at=datetime.now(UTC),
            made_from=dict(made_from),
        )
        self.name(entry)
        return entry

    def _entries(self, table: str, kind: type[M]) -> list[M]:
        self.marker()
        place = f"{ABOUT}/{table}/"
        names = [path.removeprefix(place) for path in self.folder.paths(f"{ABOUT}/{table}")]
        return [
            self._read(f"{place}{name}", kind) for name in names if "/" not in name and UNFINISHED not in name
        ]

    def _entry(self, table: str, day: date | None, kind: type[M]) -> M | None:
        self.marker()
        path = _manifest(table, day)
        return self._read(path, kind) if self.folder.has(path) else None

    def _read(self, path: str, kind: type[T]) -> T:
        return decode(self.folder.read(path), f"{self.uri}/{path}", kind)

    def _whole(self, spark: "SparkSession", table: str, columns: Mapping[str, str]) -> "DataFrame":
        entry = self.entry(table, None)
        entries = [] if entry is None else [entry]
        all_columns(entries, columns)
        return self._frame(spark, table, entries, columns)

    def _frame(
        self, spark: "SparkSession", table: str, entries: Iterable[Day], columns: Mapping[str, str]
    ) -> "DataFrame":
        files = [f"{self.uri}/{file.path}" for entry in entries for file in entry.files]
        return read(spark, f"{self.uri}/{table}", files, columns)


def _manifest(table: str, day: date | None) -> str:
    return f"{ABOUT}/{table}.json" if day is None else f"{ABOUT}/{table}/{day}.json"


def _chosen(entries: list[M], days: Iterable[date] | None) -> list[M]:
    if days is None:
        return entries
    wanted = set(days)
    return [entry for entry in entries if entry.day in wanted]
