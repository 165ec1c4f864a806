"""``spark.readStream.format("pgqueue")``: ended jobs as a stream, each once, in any order of commits.

An offset is a *horizon*: a transaction number such that all transactions below it had ended when it was taken. A batch is
a range of such numbers, its end not included. All rows of that range exist and do not change, so a batch that is read
again, after a crash or years later, has the same rows. An open transaction holds the horizon back: jobs that ended since
it began are read later, and none is skipped.

An offset also names its database, and the days that may hold rows after it: if one of these is dropped before it is read,
the query ends with an error. For dead jobs this is not known: a user revives or purges them, and a job that is gone
before it is read is not seen.
"""

import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pgqueue.errors import PipelineError
from pgqueue.spark.reading.columns import Shape
from pgqueue.spark.reading.fetching import Fetch, KeptPieces
from pgqueue.spark.reading.options import EARLIEST, StreamOptions
from pgqueue.spark.reading.page_ranges import kept_at_all
from pgqueue.spark.reading.reader import read_part, shape_of
from pgqueue.store.pipeline import extract
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline.extract import GROUPS_AT_ONCE, DatabaseState, Planner
from pgqueue.store.pipeline.extract_where import HISTORY, SparkTable

QUIET = timedelta(seconds=0.2)
"""The pause after an answer without new rows: Spark itself asks again within 10 ms."""


class Offset(msgspec.Struct, frozen=True):
    """How far a stream has read.

    Attributes:
        horizon: all rows of jobs that ended in a transaction below this number have been read.
        system: the server's system identifier.
        database: the database's oid.
        schema: where pgqueue's tables are.
        at: when it was taken.
        days: the days of the history, up to that time, that may hold unread rows.
    """

    horizon: int
    system: str
    database: int
    schema: str
    at: datetime
    days: tuple[date, ...] = ()


class Range(NamedTuple):
    """Rows of a batch: those from one transaction up to, not including, another; or one of several shares of them."""

    first: int
    after: int
    share: int
    shares: int


class Chosen(NamedTuple):
    """A table, and which of its rows."""

    table: SparkTable
    conditions: Sequence[sql.Composable]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads ended jobs as they end."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        """Check the options and the schema; the database is not asked."""
        self._options = options
        self._shape = self._shaped(schema)
        self._target: int | None = None
        self._ahead: deque[tuple[int, int]] = deque()
        self._ahead_from = self._ahead_until = -1
        self._look_again = 0.0

    def _shaped(self, schema: StructType) -> Shape:
        return shape_of(self._options.source, schema)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        with self._planning() as planner:
            state = planner.run(extract.look())
            planner.run(extract.check_numbers(state))
            starting = self._options.starting
            horizon = 0 if starting == EARLIEST else state.horizon
            if isinstance(starting, date):
                horizon = self._first_of(planner, starting, state)
            return self._plain_offset(planner, state, horizon)

    def _first_of(self, planner: Planner, day: date, state: DatabaseState) -> int:
        first = planner.run(extract.first_of(self._options.source.table, day))
        return state.horizon if first is None else min(first, state.horizon)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The most rows in a batch."""
        return ReadMaxRows(self._options.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the stream: the rows that are final now, and no later ones."""
        with self._planning() as planner:
            self._target = planner.run(extract.look()).horizon

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch; the start itself, when no job ended since.

        Without new rows, the offset moves on once a day, so that it does not name days that are dropped.

        Raises:
            PipelineError: the start is not an offset of this database.
        """
        self._leave_alone()
        with self._planning() as planner:
            state = planner.run(extract.look())
            begun = self._offset_of(start, state)
            horizon = state.horizon if self._target is None else min(self._target, state.horizon)
            if horizon <= begun.horizon:
                return start
            cut = self._cut(planner, begun.horizon, horizon, limit)
            if cut is None and state.at.date() == begun.at.date():
                return start
            return self._plain_offset(planner, state, cut or horizon)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a batch among its tasks.

        Raises:
            PipelineError: the offsets are not of this database, or days were dropped unread.
        """
        with self._planning() as planner:
            state = planner.run(extract.look())
            begun, until = self._offset_of(start, state), self._offset_of(end, state)
            kept = self._kept(planner, begun)
            ranges = self._ranges(planner, begun.horizon, until.horizon)
            chosen = self._chosen(planner)
            return [InputPartition((self._fetch(planner, one, chosen, kept),)) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch, in a task."""
        return read_part(self._options.source, self._shape, partition)

    def _planning(self) -> AbstractContextManager[Planner]:
        return extract.open_planner(self._options.source.database())

    def _leave_alone(self) -> None:
        time.sleep(max(0.0, self._look_again - time.monotonic()))

    def _cut(self, planner: Planner, start: int, end: int, limit: ReadLimit) -> int | None:
        """Return the end of a batch that holds no more rows than the limit; None: no job ended in the range."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sys.maxsize
        if self._ahead_from != start or not self._ahead:
            self._look_ahead(planner, start, end)
        rows = 0
        while self._ahead:
            self._ahead_from, jobs = self._ahead[0]
            if rows and rows + jobs > most:
                return self._ahead_from
            rows += jobs
            self._ahead.popleft()
        if not rows:
            self._look_again = time.monotonic() + QUIET.total_seconds()
            return None
        return end if most == sys.maxsize else self._ahead_until

    def _look_ahead(self, planner: Planner, start: int, end: int) -> None:
        # For many batches at once; else a backlog would be counted again for each batch.
        self._ahead = deque(planner.run(extract.news(self._options.source.table, start, end)))
        self._ahead_until = end if len(self._ahead) < GROUPS_AT_ONCE else self._ahead[-1][0] + 1

    def _ranges(self, planner: Planner, start: int, end: int) -> Iterator[Range]:
        aim = self._options.rows_per_partition
        cuts = planner.run(extract.cuts(self._options.source.table, start, end, rows=aim))
        for (first, rows), (after, _) in pairwise([*cuts, (end, 0)]):
            shares = 1 if rows < 2 * aim else -(-rows // aim)  # many jobs may have ended in one transaction
            yield from (Range(first, after, share, shares) for share in range(shares))

    def _chosen(self, planner: Planner) -> Chosen:  # noqa: ARG002 - a run's jobs are asked for
        """Return what a batch reads, beside the ranges of its tasks."""
        return Chosen(self._options.source.table, [*where.only(self._options.source.only)])

    def _fetch(self, planner: Planner, one: Range, chosen: Chosen, kept: KeptPieces | None) -> Fetch:
        ended = where.ended_between(one.first, one.after, share=one.share, of=one.shares)
        conditions = [*chosen.conditions, ended]
        return Fetch(
            planner.text(where.statement(chosen.table, self._shape.wanted, conditions, planner.catalogue)),
            kept=kept,
        )

    def _kept(self, planner: Planner, begun: Offset) -> KeptPieces | None:
        """Return what must exist until a batch is read: the days that may hold its rows."""
        table = self._options.source.table
        if HISTORY not in table.of or not self._options.fail_on_data_loss:
            return None
        pieces = [piece for piece in planner.run(extract.pieces(table)) if piece.table == HISTORY]
        lost = dropped_days(begun, {piece.day for piece in pieces if piece.day})
        if lost:
            raise PipelineError(
                f"the history of {', '.join(map(str, lost))} was dropped before this stream had read all of it; "
                "keep the history for longer than the stream may be stopped; or, to continue without the lost rows, "
                'give option("failOnDataLoss", "false")'
            )
        read = [p for p in pieces if p.day is None or p.day in begun.days or p.day > begun.at.date()]
        return kept_at_all(planner, read)

    def _offset_of(self, written: dict[str, Any], state: DatabaseState) -> Offset:
        try:
            offset = msgspec.convert(written, Offset)
        except msgspec.ValidationError as error:
            raise PipelineError(
                f"the checkpoint's offset is not one of pgqueue's ({error}): {written}"
            ) from None
        whose = (offset.system, offset.database, offset.schema)
        ours = (state.system, state.database, self._options.source.schema)
        if whose != ours:
            raise PipelineError(
                f"the checkpoint is of another database: server {whose[0]}, database {whose[1]}, schema {whose[2]}; "
                f"this is server {ours[0]}, database {ours[1]}, schema {ours[2]}. "
                "Start a new checkpoint, with startingFrom the day from which to continue"
            )
        if offset.horizon > state.next:
            raise PipelineError(
                f"the checkpoint is ahead of the database: it has read up to transaction {offset.horizon}, and the "
                f"server's next one is {state.next}. The database was restored from a backup, or this is a replica that "
                "is behind. Start a new checkpoint, with startingFrom the day from which to continue, or wait for the replica"
            )
        return offset

    def _plain_offset(self, planner: Planner, state: DatabaseState, horizon: int) -> dict[str, Any]:
        offset = Offset(
            horizon=horizon,
            system=state.system,
            database=state.database,
            schema=self._options.source.schema,
            at=state.at,
            days=tuple(self._unread(planner, state, horizon)),
        )
        return cast("dict[str, Any]", msgspec.to_builtins(offset))

    def _unread(self, planner: Planner, state: DatabaseState, horizon: int) -> Iterator[date]:
        """Yield the days that may hold rows from a transaction on; at the start of a query, all days that hold rows."""
        if HISTORY not in self._options.source.table.of:
            return
        first = date.min if horizon == 0 else planner.run(extract.oldest_day(horizon)) or state.at.date()
        for piece in planner.run(extract.pieces(self._options.source.table)):
            if piece.day and first <= piece.day <= state.at.date() and (piece.pages or horizon):
                yield piece.day


def dropped_days(begun: Offset, there: Collection[date]) -> list[date]:
    """The days that were dropped although they may have held rows after an offset.

    Args:
        begun: the offset.
        there: the days for which the history has partitions.
    """
    came_and_went = takewhile(lambda day: day < min(there, default=day), _days_after(begun.at.date()))
    return [*(day for day in begun.days if day not in there), *came_and_went]


def _days_after(day: date) -> Iterator[date]:
    while True:
        day += timedelta(days=1)
        yield day
