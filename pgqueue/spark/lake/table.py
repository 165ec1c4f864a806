"""A Delta table of a lake: which files count, and the commits that change this.

``deltalake`` reads and writes the table's log. The files themselves are written before, by :mod:`pgqueue.spark.lake.files`. One
commit adds files, removes the files that they replace, and notes the generation of each day: a reader sees the table as it was
before the commit, or after it. Delta calls such a noted number the version of an application's transaction.

A new table has its comments, and its columns that are never null, in its log (:mod:`pgqueue.spark.lake.comments`). An earlier one
gets comments that have changed with its next rows, in commits of their own; its files stay.
"""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from pgqueue.errors import LakeError
from pgqueue.spark.lake.columns import ENDED
from pgqueue.spark.lake.comments import COMMENT, comment_of, described, texts
from pgqueue.spark.lake.files import PARTITION, WrittenFile
from pgqueue.spark.lake.folder import Folder

WHOLE = "all"
"""Names the rows of a table without days, where a generation is noted."""
KEPT_HOURS = 7 * 24
"""For how long files stay that a commit has removed: their readers may finish."""
MERGED_HOURS = 1
"""The same for files of a table that grows by appends, when they were merged: its readers take a second."""
COMPACTED_AT = 50
"""Files of a table that grows by appends. Each append adds one, and a reader opens them all."""
DRAWN = re.compile("\x1b\\[[0-9;]*m|↳")
FEED = "delta.enableChangeDataFeed"
SETTINGS = {"delta.checkpointInterval": "10", "delta.deletedFileRetentionDuration": "interval 7 days"}
SHORT_LOG = {"delta.logRetentionDuration": "interval 7 days"}
"""Of tables that are made from the ended jobs, or tell of them: theirs is the log that other programs follow, for 30 days."""


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file.

    Attributes:
        path: its place below the lake.
        rows: the number of its rows.
        bytes: its size.
    """

    path: str
    rows: int
    bytes: int


class LakeTable:
    """A table of a lake, which may not exist yet. One process at a time writes to it."""

    def __init__(self, folder: Folder, name: str) -> None:
        """``name`` is the table's folder in the lake, such as ``rollup/hours``. Nothing is read yet."""
        self.name = name
        self.uri = f"{folder.uri}/{name}"
        self._options = dict(folder.storage_options)
        self._opened: DeltaTable | None = None
        self._version = -1
        self._generations: dict[date | None, int] = {}
        self._files: dict[date | None, tuple[DataFile, ...]] = {}

    @property
    def _settings(self) -> dict[str, str | None]:
        return {**SETTINGS, **({} if self.name == ENDED else SHORT_LOG)}

    def latest(self) -> DeltaTable | None:
        """The table as it is now; None: it does not exist.

        Raises:
            LakeError: it cannot be read.
        """
        with errors(self.uri):
            if self._opened is not None:
                self._opened.update_incremental()
            elif DeltaTable.is_deltatable(self.uri, self._options):
                self._opened = DeltaTable(self.uri, storage_options=self._options)
            if self._opened is not None and self._opened.version() != self._version:
                self._version, self._generations, self._files = self._opened.version(), {}, {}
            return self._opened

    def exists(self) -> bool:
        """Whether something was committed to it."""
        return self.latest() is not None

    def schema(self) -> pa.Schema:
        """Its columns; empty: it does not exist."""
        table = self.latest()
        return pa.schema([]) if table is None else pa.schema(table.schema())

    def require(self, schema: pa.Schema) -> pa.Schema:
        """Check that columns can be added to the table's, which are returned.

        Raises:
            LakeError: a column has another type in the table.
        """
        there = self.schema()
        for field in schema:
            if field.name in there.names and there.field(field.name).type != field.type:
                raise LakeError(
                    f"column {field.name} of {self.name} is {there.field(field.name).type} in the lake and {field.type} "
                    "here: use the release that wrote it, or move the lake aside and export again"
                )
        return there

    def generation(self, day: date | None) -> int:
        """How often a day was committed, or the whole table if it has no days; 0: never."""
        return self.generations([day])[day]

    def generations(self, days: Collection[date | None]) -> dict[date | None, int]:
        """How often each of these days was committed."""
        table = self.latest()
        if table is None:
            return dict.fromkeys(days, 0)
        for day in days:
            if day not in self._generations:  # to ask takes 2 ms
                self._generations[day] = table.transaction_version(_name(day)) or 0
        return {day: self._generations[day] for day in days}

    def files(self) -> dict[date | None, tuple[DataFile, ...]]:
        """The files that count, by day; paths are below the lake."""
        table = self.latest()
        if table is not None and not self._files:
            found: dict[date | None, list[DataFile]] = {}
            for path, size, rows, day in _rows(table):
                found.setdefault(day, []).append(DataFile(f"{self.name}/{path}", rows, size))
            self._files = {day: tuple(sorted(files, key=_path)) for day, files in found.items()}
        return self._files

    def commit(
        self,
        schema: pa.Schema,
        written: Sequence[WrittenFile],
        generations: Mapping[date | None, int],
        *,
        replaced: Collection[date | None] = (),
        removed: Collection[str] = (),
        why: str = "",
    ) -> None:
        """Make files count, in one commit.

        Args:
            schema: the columns of these files, and the day. Columns that are new to the table are added to it before.
            written: the files.
            generations: how often each of these days has been committed, with this commit.
            replaced: the days whose former files no longer count.
            removed: paths, below the table, of single files that no longer count.
            why: what is done, for the history of the table.

        Raises:
            LakeError: a column has another type in the table, or another process has changed the table meanwhile.
        """
        with errors(self.uri):
            table = self._widened(schema)
            # From here on the table is not looked at again: a commit that comes between is a conflict of this one.
            _require_before(table, generations)
            noted = [Transaction(_name(day), generation) for day, generation in generations.items()]
            _commit(table, _actions(table, written, replaced, removed), why, noted)

    def exchange(self, written: Sequence[WrittenFile], removed: Collection[str]) -> None:
        """Make files count in place of others that have the same rows: a reader that follows the table sees no change.

        Args:
            written: the files.
            removed: paths, below the table, of the files that no longer count.

        Raises:
            LakeError: another process has changed the table meanwhile.
        """
        table = self.latest()
        if table is not None:
            with errors(self.uri):
                _commit(table, _actions(table, written, (), removed, changes=False), "compact")

    def feed_changes(self, schema: pa.Schema) -> None:
        """Switch Delta's change data feed on, for the commits from now on; ``schema`` is for a table that does not exist yet."""
        with errors(self.uri):
            table = self._widened(schema)
            if table.metadata().configuration.get(FEED) != "true":
                table.alter.set_table_properties({FEED: "true"})

    def append(self, rows: pa.Table) -> None:
        """Add rows to a table without days, in a commit of their own."""
        table = self.latest()
        with errors(self.uri):
            to = self._created(rows.schema, days=[]) if table is None else self._commented(table)
            write_deltalake(to, rows, mode="append")

    def compact(self) -> None:
        """Merge the files of a table that grows by appends, if there are many."""
        table = self.latest()
        with errors(self.uri):
            if table is not None and len(table.file_uris()) > COMPACTED_AT:
                table.optimize.compact()
                table.vacuum(MERGED_HOURS, dry_run=False, enforce_retention_duration=False)

    def sweep(self, *, kept_hours: int = KEPT_HOURS) -> list[str]:
        """Delete files that do not count and are older than this: those of killed writers, and replaced ones."""
        table = self.latest()
        if table is None:
            return []
        with errors(self.uri):
            return list(table.vacuum(kept_hours, dry_run=False, enforce_retention_duration=False, full=True))

    def _widened(self, schema: pa.Schema) -> DeltaTable:
        """Return the table, with these columns added where they are missing."""
        table = self.latest()
        if table is None:
            return self._created(schema, days=[PARTITION] if PARTITION in schema.names else [])
        there = self.require(schema)
        if new := [field for field in schema if field.name not in there.names]:
            wider = Schema.from_arrow(described(self.name, pa.schema(new), new=False))
            table.alter.add_columns(wider.fields)
            table.update_incremental()
        return self._commented(table)

    def _created(self, schema: pa.Schema, *, days: list[str]) -> DeltaTable:
        text = texts().get(self.name)
        self._opened = DeltaTable.create(
            self.uri,
            described(self.name, schema),
            partition_by=days,
            description=None if text is None else text.comment,
            configuration=self._settings,
            storage_options=self._options,
        )
        return self._opened

    def _commented(self, table: DeltaTable) -> DeltaTable:
        """Return the table, with the comments of this release."""
        there, text = pa.schema(table.schema()), texts().get(self.name)
        for field in described(self.name, there):
            if (said := comment_of(field)) and said != comment_of(there.field(field.name)):
                table.alter.set_column_metadata(field.name, {COMMENT: said})
        if text is not None and table.metadata().description != text.comment:
            table.alter.set_table_description(text.comment)
        return table


def _commit(
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    why: str,
    noted: list[Transaction] | None = None,
) -> None:
    """Commit. The operation is always called WRITE: ``deltalake`` has no other name for given files, so ``why`` is noted."""
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": why} if why else None, app_transactions=noted
        ),
    )


def _actions(
    table: DeltaTable,
    written: Sequence[WrittenFile],
    replaced: Collection[date | None],
    removed: Collection[str],
    *,
    changes: bool = True,
) -> list[AddAction | RemoveAction]:
    """The files of a commit; ``changes``: whether the table has other rows after it than before."""
    now = int(time.time() * 1000)
    removes = [
        RemoveAction(path, changes, now, size, _values(day))
        for path, size, _, day in _rows(table)
        if day in replaced or path in removed
    ]
    adds = [AddAction(one.path, one.bytes, _values(one.day), now, changes, one.statistics) for one in written]
    return [*removes, *adds]


@contextmanager
def errors(uri: str) -> Iterator[None]:
    """Errors of ``deltalake`` and of the file system become ours.

    Raises:
        LakeError: the table cannot be used, or another process has changed it meanwhile.
    """
    try:
        yield
    except CommitFailedError as error:
        raise LakeError(
            f"another process has changed {uri} meanwhile, and nothing was committed; run it again: {_line(error)}"
        ) from error
    except (DeltaError, OSError) as error:
        raise LakeError(
            f"cannot use the table {uri}: {_line(error)}; check --lake, that it can be reached, and whose it is"
        ) from error


def _rows(table: DeltaTable) -> Iterator[tuple[str, int, int, date | None]]:
    """Yield path, size, rows and day of each file that counts."""
    found = pa.table(table.get_add_actions(flatten=True))
    column = f"partition.{PARTITION}"
    days = found[column].to_pylist() if column in found.column_names else [None] * found.num_rows
    named = (found[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    yield from zip(*named, days, strict=True)


def _require_before(table: DeltaTable, generations: Mapping[date | None, int]) -> None:
    for day, generation in generations.items():
        # deltalake would take a generation that is there already, or a later one.
        if (table.transaction_version(_name(day)) or 0) >= generation:
            raise LakeError(
                f"another process has committed {_name(day)} of {table.table_uri} meanwhile; nothing was committed: run it again"
            )


def _line(error: Exception) -> str:
    # deltalake draws an error as a tree, in colours.
    return " ".join(DRAWN.sub(" ", str(error)).split())


def _path(file: DataFile) -> str:
    return file.path


def _name(day: date | None) -> str:
    return WHOLE if day is None else str(day)


def _values(day: date | None) -> dict[str, str | None]:
    return {} if day is None else {PARTITION: str(day)}
