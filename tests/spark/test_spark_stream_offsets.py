"""A stream's offsets: nothing lost and nothing twice, in any order of commits; and whose they are.

Spark's part is to keep offsets and to ask for the rows between two of them, which is done here by hand.

``spark.readStream.format("pgqueue")`` in a real session: with writers at work, restarts, and batches that are done twice.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from spark.extracts import (
    DAY,
    NOW,
    Connection,
    add_dead,
    add_history,
    make_days,
    nodes,
    number_of,
    plan_of,
    settle,
    statements,
)

from pgqueue.errors import PipelineError
from pgqueue.spark.options import Options
from pgqueue.spark.reading.columns import schema_of
from pgqueue.spark.reading.options import stream_options
from pgqueue.spark.reading.stream import Offset, StreamReader, dropped_days

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Written = dict[str, Any]
ALL = ReadAllAvailable()


class Query:
    """What Spark does with a stream: it keeps the offsets and the rows of each batch."""

    def __init__(
        self, dsn: str, table: str = "ended", *, start: Written | None = None, **options: str
    ) -> None:
        given = stream_options(Options({"dsn": dsn, "table": table, **options}))
        self.reader = StreamReader(given, schema_of(table, given.source.columns))
        self.offsets = [start or self.reader.initialOffset()]
        self.batches: list[list[int]] = []

    def go_on(self, limit: ReadLimit | None = None) -> bool:
        limit = limit or self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.offsets[-1], limit)
        if end == self.offsets[-1]:
            return False
        self.batches.append(self.between(self.offsets[-1], end))
        self.offsets.append(end)
        return True

    def between(self, start: Written, end: Written) -> list[int]:
        """The ids of the rows between two offsets."""
        planned = self.reader.partitions(start, end)
        return sorted(
            row["id"] for part in planned for batch in self.reader.read(part) for row in batch.to_pylist()
        )

    def go_on_to_the_end(self, connection: Connection) -> list[int]:
        """Read all that has ended; returns the ids of all batches."""
        settle(connection)
        while self.go_on():
            pass
        return self.read

    @property
    def read(self) -> list[int]:
        """The ids of all batches, in order of size."""
        return sorted(found for batch in self.batches for found in batch)


@pytest.fixture
def others(dsn: str) -> Iterator[list[Connection]]:
    """Connections for transactions that overlap."""
    with ExitStack() as opened:
        yield [opened.enter_context(psycopg.connect(dsn)) for _ in range(6)]


@pytest.mark.parametrize("seed", range(2))
def test_every_committed_row_comes_once_in_whatever_order_transactions_commit(
    dsn: str, connection: Connection, others: list[Connection], seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    query = Query(dsn, maxRowsPerBatch="25", rowsPerPartition="10")
    committed: set[int] = set()
    pending: dict[Connection, list[int]] = {one: [] for one in others}
    for number in range(0, 240, 3):
        writer = chance.choice(others)
        new = list(range(number, number + 3))
        at = NOW - timedelta(seconds=chance.randrange(100))  # in no order, either
        (add_history if chance.random() < 0.7 else add_dead)(writer, new, at=at)
        pending[writer] += new
        if chance.random() < 0.4:
            ended = chance.choice([one for one in others if pending[one]])
            if chance.random() < 0.8:
                committed.update(pending[ended])
                ended.commit()
            else:
                ended.rollback()
            pending[ended] = []
        if chance.random() < 0.3:
            query.go_on()
        if chance.random() < 0.1:
            query.reader = Query(dsn, start=query.offsets[-1], maxRowsPerBatch="25").reader  # a restart
    for writer in others:
        committed.update(pending[writer])
        writer.commit()

    assert query.go_on_to_the_end(connection) == sorted(committed)
    again = [query.between(*both) for both in zip(query.offsets, query.offsets[1:], strict=False)]
    assert again == query.batches
    assert query.between(query.offsets[0], query.offsets[-1]) == sorted(committed)


def test_an_open_transaction_delays_what_ended_after_it_and_loses_nothing(
    dsn: str, connection: Connection, others: list[Connection]
) -> None:
    query = Query(dsn, "history")
    add_history(others[0], [1])
    add_history(others[1], [2])
    others[1].commit()

    assert not query.go_on()
    others[0].commit()
    add_history(others[2], [3])

    while query.read != [1, 2]:
        query.go_on()
    others[2].rollback()
    add_history(others[2], [4])
    others[2].commit()
    assert query.go_on_to_the_end(connection) == [1, 2, 4]


def test_a_stream_at_rest_stays_where_it_is_whatever_else_goes_on(dsn: str, connection: Connection) -> None:
    add_history(connection, [1])
    connection.commit()
    query = Query(dsn)
    query.go_on_to_the_end(connection)
    connection.execute("create table public.something ()")
    connection.commit()
    settle(connection)

    assert not query.go_on()


def test_a_batch_holds_no_more_than_was_asked_for_and_a_transaction_stays_whole(
    dsn: str, connection: Connection
) -> None:
    for first, count in ((0, 3), (10, 3), (20, 9), (40, 1), (50, 3)):
        add_history(connection, range(first, first + count))
        connection.commit()
    query = Query(dsn, "history", maxRowsPerBatch="6", rowsPerPartition="2")

    assert query.reader.getDefaultReadLimit() == ReadMaxRows(6)
    query.go_on_to_the_end(connection)
    assert [len(batch) for batch in query.batches] == [6, 9, 4]
    other = Query(dsn, "history", start=query.offsets[0])
    assert other.go_on(ReadAllAvailable())
    assert other.read == query.read
    assert not other.go_on(ReadAllAvailable())


def test_a_large_batch_is_shared_out_even_when_it_all_ended_at_once(dsn: str, connection: Connection) -> None:
    add_history(connection, range(100))
    connection.commit()
    for first in range(100, 130, 10):
        add_dead(connection, range(first, first + 10))
        connection.commit()
    settle(connection)
    query = Query(dsn, rowsPerPartition="20")
    end = query.reader.latestOffset(query.offsets[0], ReadAllAvailable())

    planned = query.reader.partitions(query.offsets[0], end)

    assert len(planned) == 7  # five shares of the hundred, and two of the rest
    assert query.between(query.offsets[0], end) == list(range(130))


def test_a_stream_may_be_of_some_rows_only(dsn: str, connection: Connection) -> None:
    add_history(connection, [1], queue="mail")
    add_history(connection, [2], queue="reports")
    add_history(connection, [3], queue="mail", outcome="cancelled")
    connection.commit()

    assert Query(dsn, queue="mail", outcome="succeeded").go_on_to_the_end(connection) == [1]


def test_a_batch_is_found_by_its_block_ranges(dsn: str, connection: Connection) -> None:
    for first in range(0, 20_000, 2_000):
        add_history(connection, range(first, first + 2_000), args={"text": "x" * 200})
        connection.commit()
    add_history(connection, [20_000])
    connection.commit()
    connection.autocommit = True
    connection.execute("vacuum analyze pgqueue.job_history")
    connection.execute(
        "select brin_summarize_new_values(indexrelid) from pg_index join pg_class on oid = indexrelid "
        "where relname like 'job_history_%ended_in_idx'"
    )
    connection.autocommit = False
    settle(connection)
    query = Query(dsn, "history")
    query.go_on(ReadMaxRows(20_000))
    end = query.reader.latestOffset(query.offsets[-1], ReadAllAvailable())

    (part,) = query.reader.partitions(query.offsets[-1], end)

    plan = plan_of(connection, statements(part)[0])
    used = {node.get("Index Name") for node in nodes(plan)}
    assert f"job_history_{NOW:%Y%m%d}_ended_in_idx" in used
    assert query.between(query.offsets[-1], end) == [20_000]


def test_available_now_goes_no_further_than_when_it_was_asked(dsn: str, connection: Connection) -> None:
    add_history(connection, [1, 2])
    connection.commit()
    settle(connection)
    query = Query(dsn, "history")
    query.reader.prepareForTriggerAvailableNow()
    add_history(connection, [3])
    connection.commit()

    assert query.go_on_to_the_end(connection) == [1, 2]


@pytest.mark.parametrize(
    ("starting", "read"),
    [
        ("earliest", [1, 2, 3, 11, 12, 13]),
        ("latest", [3, 13]),
        (str((NOW - DAY).date()), [2, 3, 12, 13]),
        (str(NOW.date()), [3, 13]),
    ],
)
def test_a_new_query_begins_where_it_is_told(
    dsn: str, connection: Connection, starting: str, read: list[int]
) -> None:
    make_days(connection, NOW - 2 * DAY, NOW)
    for days, id_ in ((2, 1), (1, 2)):
        add_history(connection, [id_], at=NOW - days * DAY)
        add_dead(connection, [id_ + 10], at=NOW - days * DAY)
        connection.commit()
    settle(connection)
    query = Query(dsn, startingFrom=starting)
    add_history(connection, [3])
    add_dead(connection, [13])
    connection.commit()

    assert query.go_on_to_the_end(connection) == read


def test_a_day_to_start_from_includes_what_is_not_committed_yet(
    dsn: str, connection: Connection, others: list[Connection]
) -> None:
    add_history(others[0], [1])
    add_history(others[1], [2])
    others[1].commit()
    query = Query(dsn, startingFrom=str(NOW.date()))
    others[0].commit()

    assert query.go_on_to_the_end(connection) == [1, 2]


def drop(connection: Connection, day: datetime) -> None:
    connection.execute(f"drop table pgqueue.job_history_{day:%Y%m%d}".encode())
    connection.commit()


@pytest.fixture
def two_days(connection: Connection) -> None:
    """A job yesterday, and one today."""
    make_days(connection, NOW - DAY, NOW)
    add_history(connection, [1], at=NOW - DAY)
    connection.commit()
    add_history(connection, [2])
    connection.commit()
    settle(connection)


@pytest.mark.usefixtures("two_days")
def test_a_day_that_was_dropped_unread_ends_the_stream_and_is_named(dsn: str, connection: Connection) -> None:
    query = Query(dsn)
    drop(connection, NOW - DAY)

    with pytest.raises(PipelineError, match=f"history of {(NOW - DAY).date()} was dropped"):
        query.go_on()
    careless = Query(dsn, start=query.offsets[0], failOnDataLoss="false")
    assert careless.go_on_to_the_end(connection) == [2]


@pytest.mark.usefixtures("two_days")
def test_a_day_that_was_read_may_be_dropped(dsn: str, connection: Connection) -> None:
    query = Query(dsn)
    query.go_on_to_the_end(connection)
    drop(connection, NOW - DAY)
    add_history(connection, [3])
    connection.commit()

    assert query.go_on_to_the_end(connection) == [1, 2, 3]


@pytest.mark.usefixtures("two_days")
def test_a_day_that_is_dropped_while_it_is_read_ends_the_stream(dsn: str, connection: Connection) -> None:
    query = Query(dsn)
    end = query.reader.latestOffset(query.offsets[0], ALL)
    planned = query.reader.partitions(query.offsets[0], end)
    drop(connection, NOW - DAY)

    with pytest.raises(PipelineError, match=f"job_history_{NOW - DAY:%Y%m%d} was dropped"):
        [list(query.reader.read(part)) for part in planned]


def test_days_that_came_and_went_while_nobody_read_are_lost_too() -> None:
    begun = Offset(1, "1", 1, "pgqueue", NOW, ((NOW - DAY).date(), NOW.date()))
    days = [(NOW + days * DAY).date() for days in range(-1, 6)]

    assert dropped_days(begun, days) == []
    assert dropped_days(begun, days[1:]) == days[:1]
    assert dropped_days(begun, days[4:]) == days[:4]
    assert dropped_days(begun, []) == days[:2]


def test_a_quiet_stream_moves_on_once_a_day_so_that_old_days_may_go(dsn: str, connection: Connection) -> None:
    make_days(connection, NOW - 2 * DAY, NOW)
    add_history(connection, [1])
    connection.commit()
    query = Query(dsn)
    query.go_on_to_the_end(connection)
    connection.execute("create table public.something ()")
    connection.commit()
    settle(connection)
    old = {**query.offsets[-1], "at": (NOW - 2 * DAY).isoformat()}

    moved = query.reader.latestOffset(old, ALL)

    assert moved["horizon"] > old["horizon"]
    assert query.between(old, moved) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"system": "7"}, "checkpoint is of another database: server 7"),
        ({"database": 7}, "checkpoint is of another database: .*database 7"),
        ({"schema": "other"}, "checkpoint is of another database: .*schema other"),
        ({"horizon": 10**12}, "ahead of the database: .*restored from a backup"),
        ({"horizon": "x"}, "not one of pgqueue's"),
    ],
)
def test_an_offset_that_is_not_this_databases_is_refused(
    dsn: str, changed: dict[str, object], complaint: str
) -> None:
    query = Query(dsn)
    foreign = {**query.offsets[0], **changed}

    with pytest.raises(PipelineError, match=complaint):
        query.reader.latestOffset(foreign, ALL)
    with pytest.raises(PipelineError, match=complaint):
        query.reader.partitions(foreign, foreign)


Batches = dict[int, list[int]]


@pytest.fixture
def writers(dsn: str) -> Iterator[list[Connection]]:
    with ExitStack() as opened:
        yield [opened.enter_context(psycopg.connect(dsn)) for _ in range(3)]


def run(
    spark: "SparkSession",
    dsn: str,
    checkpoint: Path,
    then: Callable[["DataFrame", int], None],
    **options: str,
) -> None:
    """Read what there is as a stream, with a checkpoint."""
    query = (
        spark.readStream.format("pgqueue")
        .options(dsn=dsn, table="ended", columns="id", **options)
        .load()
        .writeStream.foreachBatch(then)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_restarts_and_batches_done_twice_end_in_the_same_set(
    spark: "SparkSession", dsn: str, connection: Connection, writers: list[Connection], tmp_path: Path
) -> None:
    done: Batches = {}
    twice: Batches = {}

    def take(rows: "DataFrame", batch: int) -> None:
        if batch in done:
            twice[batch] = done[batch]
        done[batch] = sorted(row["id"] for row in rows.collect())

    def take_and_break(rows: "DataFrame", batch: int) -> None:
        take(rows, batch)
        raise RuntimeError("after the batch was written, before it was committed")

    add_history(writers[0], range(100))
    add_history(writers[1], range(100, 110))
    writers[1].commit()
    run(spark, dsn, tmp_path, take)
    assert done == {0: []}  # the first transaction is open: what came after it waits

    add_dead(writers[1], range(110, 120))
    add_history(writers[2], range(120, 130))
    writers[2].rollback()
    writers[0].commit()
    settle(connection, until=number_of(writers[1]))
    with pytest.raises(StreamingQueryException, match="before it was committed"):
        run(spark, dsn, tmp_path, take_and_break)
    assert done == {0: [], 1: list(range(110))}
    add_history(writers[2], range(130, 140))
    writers[2].commit()
    writers[1].commit()
    settle(connection)
    run(spark, dsn, tmp_path, take, maxRowsPerBatch="10")

    assert twice == {1: list(range(110))}
    assert done[1] == twice[1]
    assert sorted(found for batch in done.values() for found in batch) == [*range(120), *range(130, 140)]
    assert [len(done[batch]) for batch in sorted(done)] == [0, 110, 10, 10]
