"""The records of a lake, in a Delta table of their own: how each day of each table was made, each time that it was made.

A record is written before its table's commit, which notes the generation of the day. So a record counts if the table has noted
its generation: the one that a killed writer left does not. Of two records of one generation the later one counts: a day that was
verified has another record.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

import msgspec
import pyarrow as pa
from deltalake import write_deltalake

from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.lake.record import DayRecord, decode, encode
from pgqueue.spark.lake.table import KEPT_HOURS, SETTINGS, LakeTable, errors

M = TypeVar("M", bound=DayRecord)

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
COMPACTED_AT = 50
"""Files of the table. Each commit adds one, and a reader opens them all."""


class Records:
    """The records of one lake. One process at a time writes to them."""

    def __init__(self, folder: Folder) -> None:
        self._table = LakeTable(folder, NAME)
        self._options = dict(folder.storage_options)
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
        with errors(self._table.uri):
            write_deltalake(
                self._table.uri,
                pa.Table.from_pylist(rows, SCHEMA),
                mode="append",
                configuration=SETTINGS,
                storage_options=self._options,
            )

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
        table = self._table.latest()
        if table is None:
            return
        with errors(self._table.uri):
            if len(table.file_uris()) > COMPACTED_AT:
                table.optimize.compact()
                table.vacuum(KEPT_HOURS, dry_run=False)

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
