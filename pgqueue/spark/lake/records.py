"""What a lake records of itself: whose it is, and how each day of each table was made, each time that it was made.

The records are in a Delta table of their own. A record is written before its table's commit, which notes the generation of the day.
So a record counts if the table has noted its generation: the one that a killed writer left does not. Of two records of one
generation the later one counts: a day that was verified has another record.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

import msgspec
import pyarrow as pa

from pgqueue.errors import LakeError, LakeTooNew
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.lake.table import DataFile, LakeTable, errors
from pgqueue.store.pipeline.lake import Checksum, Origin

T = TypeVar("T")
NAME = "_pgqueue/records"
SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("day", pa.date32()),
        ("generation", pa.int64()),
        ("recorded_at", pa.timestamp("us", "UTC")),
        ("record", pa.string()),
    ]
)
FORMAT = 1
"""The format that this release writes and reads. It changes with new meanings, not new fields."""


class ExportBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one export added to a day: the rows whose jobs ended in transactions from ``since`` to below ``below``.

    Attributes:
        generation: the day's generation after this export.
        since: the number of the first transaction.
        below: the number of the first transaction that is not included; all below it had ended.
        highest: the highest transaction number of a row; None: no rows.
        exported_at: the time, in UTC.
        history: the rows from the history; they are counted only.
        dead: the rows from the dead jobs, as they stood at the export; they are counted only.
    """

    generation: int
    since: int
    below: int
    highest: int | None
    exported_at: datetime
    history: Checksum
    dead: Checksum


class DayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A day of a table, or a table without days.

    Attributes:
        format: which format this is.
        table: the table's folder below the lake, such as ``rollup/hours``.
        day: the UTC day; None: the table has no days.
        generation: counts how often the day was written, from 1.
        files: all its files; they are the table's to know, and are not stored with the record.
        written_at: the time, in UTC.
        made_from: the source of its rows, in the writer's own form.
    """

    table: str
    day: date | None
    generation: int
    written_at: datetime
    files: tuple[DataFile, ...] = ()
    made_from: dict[str, str] = {}
    format: int = FORMAT

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The files' size."""
        return sum(file.bytes for file in self.files)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a day's files and the database held when both agreed.

    Attributes:
        at: the time, in UTC.
        history: the rows in the files that came from the history.
        dead: the rows in the files that came from the dead jobs.
        standing: the rows that were in the database's history: those that had not been pruned.
        versions: the sum of these rows' versions.
    """

    at: datetime
    history: Checksum
    dead: Checksum
    standing: Checksum
    versions: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were erased from a day. What they had in common is not told: it may name a person.

    Attributes:
        at: the time, in UTC.
        rows: how many rows were erased from the lake.
        condition: the SHA-256 of the condition that chose them.
        reason: the caller's words, such as the number of a request.
    """

    at: datetime
    rows: int
    condition: str
    reason: str


class EndedDay(DayRecord, frozen=True, kw_only=True):
    """A day of ended jobs.

    Attributes:
        day: the UTC day.
        batches: what each export added: the first one, and one more for each time that late rows were found.
        verified: how all of it was verified; None: not since the last batch.
        erased: what was erased from it.
        dropped_at: when its rows were dropped from the lake; it has no batches then. None: they were not.
    """

    day: date
    batches: tuple[ExportBatch, ...]
    verified: Verification | None = None
    erased: tuple[Erasure, ...] = ()
    dropped_at: datetime | None = None

    @property
    def below(self) -> int:
        """The number from which on the rows of transactions are not in the lake."""
        return self.batches[-1].below

    @property
    def history(self) -> int:
        """How many rows came from the history."""
        return sum(batch.history.rows for batch in self.batches)

    @property
    def dead(self) -> int:
        """How many rows came from the dead jobs."""
        return sum(batch.dead.rows for batch in self.batches)

    @property
    def verified_at(self) -> datetime | None:
        """When all of it was verified; None: not since the last batch."""
        return None if self.verified is None else self.verified.at


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The record that makes a folder a lake.

    Attributes:
        origin: the database and schema whose history it holds.
        created_at: the time, in UTC.
        leave_out: columns of ended jobs that are null in it.
        hashed: columns that hold hashes.
        key_id: by which it knows the key of the hashes.
        database: what people call the database, as :func:`pgqueue.store.connections.label.label_of` says it.
        format: the newest format of its records.
    """

    origin: Origin
    created_at: datetime
    leave_out: tuple[str, ...] = ()
    hashed: tuple[str, ...] = ()
    key_id: str = ""
    database: str = ""
    format: int = FORMAT


M = TypeVar("M", bound=DayRecord)


class Records:
    """The records of one lake. One process at a time writes to them."""

    def __init__(self, folder: Folder) -> None:
        self._table = LakeTable(folder, NAME)
        self._known: dict[str, dict[tuple[date | None, int], bytes]] = {}
        self._version = -1

    def add(self, entries: Sequence[DayRecord]) -> None:
        """Write records, in one commit."""
        now = datetime.now(UTC)
        rows = [
            {
                "table": one.table,
                "day": one.day,
                "generation": one.generation,
                "recorded_at": now,
                "record": encode(one).decode(),
            }
            for one in entries
        ]
        self._table.append(pa.Table.from_pylist(rows, SCHEMA))

    def of(self, table: LakeTable, kind: type[M], days: Collection[date | None] | None = None) -> list[M]:
        """The records that count of a table, oldest day first, each with its files.

        Args:
            table: the table.
            kind: the records' class.
            days: these days only; a day that was never committed has no record. A table without days has the day None.

        Raises:
            LakeTooNew: a later release wrote one.
        """
        records = self._of(table.name)
        asked = {day for day, _ in records} if days is None else days
        generations, files = table.generations(asked), table.files()
        return [
            msgspec.structs.replace(
                decode(record, f"{self._table.uri} ({table.name} {day})", kind), files=files.get(day, ())
            )
            for day, generation in sorted(generations.items(), key=_by_day)
            if (record := records.get((day, generation))) is not None
        ]

    def compact(self) -> None:
        """Merge their files, if there are many."""
        self._table.compact()

    def _of(self, name: str) -> Mapping[tuple[date | None, int], bytes]:
        table = self._table.latest()
        if table is None:
            return {}
        if table.version() != self._version:
            with errors(self._table.uri):
                rows = table.to_pyarrow_table().sort_by("recorded_at").to_pylist()
            known: dict[str, dict[tuple[date | None, int], bytes]] = {}
            for row in rows:
                key = row["day"], row["generation"]
                known.setdefault(row["table"], {})[key] = row["record"].encode()
            self._known, self._version = known, table.version()
        return self._known.get(name, {})


def _by_day(one: tuple[date | None, int]) -> date:
    return one[0] or date.min


def encode(value: DayRecord | Marker) -> bytes:
    """A record or marker as JSON, without the files."""
    stored = msgspec.structs.replace(value, files=()) if isinstance(value, DayRecord) else value
    return msgspec.json.encode(stored)


def decode(data: bytes, path: str, kind: type[T]) -> T:
    """A record or marker from its JSON.

    Args:
        data: the JSON.
        path: its file or table, for messages.
        kind: DayRecord, EndedDay or Marker.

    Raises:
        LakeTooNew: a later release wrote it.
        LakeError: it cannot be read.
    """
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found > FORMAT:
            raise LakeTooNew(
                f"{path} has format {found}, and this release reads up to {FORMAT}: upgrade pgqueue"
            )
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise LakeError(
            f"{path} cannot be read as one of ours ({error}): restore it, or move the lake aside"
        ) from error


class _Format(msgspec.Struct):
    format: int
