"""What a lake says of itself: whose it is, and which files make up each day of each table.

A manifest is the truth about its day: a file that it does not name does not exist for our readers. It is written last,
in one rename, so a day is either as it was before or as it is to be. Nothing here touches a disk; that is
:mod:`pgqueue.spark.lake.lake`'s business.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import TypeVar

import msgspec

from pgqueue.errors import LakeError, LakeTooNew
from pgqueue.store.pipeline.lake import NOTHING, Origin, Share

T = TypeVar("T")
FORMAT = 1
"""The format that this release writes, and the newest that it reads. New fields do not change it; new meanings do."""


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file.

    Attributes:
        path: below the lake.
        rows: in it.
        bytes: its size.
    """

    path: str
    rows: int
    bytes: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one export added to a day: the rows whose jobs ended in transactions from ``since`` to below ``below``.

    Attributes:
        generation: the day's, with this.
        since: the number of the first transaction.
        below: the number of the first that is not included; everything below it was final.
        highest: the highest that there is; None: no rows.
        exported_at: when, in UTC.
        history: the rows from the history.
        dead: the rows from the dead jobs, as they stood at the export.
    """

    generation: int
    since: int
    below: int
    highest: int | None
    exported_at: datetime
    history: Share
    dead: Share


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a day of a table, or of a table without days.

    Attributes:
        format: which format this is.
        table: the table's folder below the lake, such as ``rollup/hours``.
        day: the UTC day; None: the table has no days.
        generation: counts how often the day was written, from 1.
        files: all that there is.
        columns: each column's type, as Spark writes it.
        written_at: when, in UTC.
        made_from: what its rows were made from, as whoever wrote them chose to note it.
    """

    table: str
    day: date | None
    generation: int
    files: tuple[DataFile, ...]
    columns: dict[str, str]
    written_at: datetime
    made_from: dict[str, str] = {}
    format: int = FORMAT

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """What the files take."""
        return sum(file.bytes for file in self.files)


class EndedDay(Day, frozen=True, kw_only=True):
    """The manifest of a day of ended jobs.

    Attributes:
        queues: how many rows each queue has.
        batches: what came from the database when: one, and one more for each time that late rows were found.
        verified_at: when all of it was found to be what the database holds; None: not since the last batch.
    """

    queues: dict[str, int]
    batches: tuple[Batch, ...]
    verified_at: datetime | None = None

    @property
    def below(self) -> int:
        """Rows of transactions from this on are not in the lake."""
        return self.batches[-1].below

    @property
    def highest(self) -> int | None:
        """The highest number of a transaction that there is."""
        return max((batch.highest for batch in self.batches if batch.highest is not None), default=None)

    @property
    def history(self) -> Share:
        """What came from the history."""
        return self.history_since(0)

    @property
    def dead(self) -> Share:
        """What came from the dead jobs."""
        return sum((batch.dead for batch in self.batches), NOTHING)

    def history_since(self, pruned_below: int) -> Share:
        """What came from the history and was not among what has been pruned: rows below that transaction."""
        left = (batch.history for batch in self.batches if batch.below > pruned_below)
        return sum(left, NOTHING)


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What says that a folder is a lake.

    Attributes:
        origin: the database and schema whose history it holds.
        created_at: when, in UTC.
        format: which format its manifests have, at the most.
    """

    origin: Origin
    created_at: datetime
    format: int = FORMAT


def encode(value: Day | Marker) -> bytes:
    """A manifest or marker as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def decode(data: bytes, path: str, kind: type[T]) -> T:
    """A manifest or marker from its JSON.

    Args:
        data: the JSON.
        path: where it came from, for messages.
        kind: what it is.

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


def all_columns(days: Iterable[Day], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The columns of some days of a table, each with its type.

    Args:
        days: their manifests.
        known: what the reader or writer expects; other columns are then left out.

    Raises:
        LakeError: a column has one type here and another there.
    """
    columns = dict(known or {})
    for day in days:
        for name, kind in day.columns.items():
            if known is None:
                columns.setdefault(name, kind)
            if columns.get(name, kind) != kind:
                raise LakeError(
                    f"column {name} of {day.table} is {kind} in the lake ({day.day or 'all of it'}) and "
                    f"{columns[name]} here: use the release that wrote it, or move the lake aside and export anew"
                )
    return columns


class _Format(msgspec.Struct):
    format: int
