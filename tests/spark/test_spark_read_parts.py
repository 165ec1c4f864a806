"""The parts of a read: together each row once, also after changes between planning and reading; and no more than is asked."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from spark.extracts import (
    DAY,
    NOW,
    Connection,
    add_dead,
    add_history,
    ids,
    make_days,
    nodes,
    parts,
    plan_of,
    reader,
    rows,
    scans,
    statements,
    tables_of,
)

from pgqueue import PgQueue
from pgqueue.errors import DatabaseError, PipelineError, SchemaMissing
from pgqueue.spark.reading.columns import schema_of
from pgqueue.spark.reading.page_ranges import shares_of
from pgqueue.spark.reading.reader import snapshot
from pgqueue.store.pipeline.extract import Piece
from pgqueue.store.pipeline.extract_where import TABLES

PARTITION = f"pgqueue.job_history_{NOW:%Y%m%d}"
LONG = {"text": "x" * 500}


def send(text: str) -> None:
    """A task, to have jobs of."""


@pytest.fixture(autouse=True)
def days_of_the_jobs(connection: Connection) -> None:
    """The days of these jobs, also where midnight has passed since the tests began."""
    make_days(connection, NOW, NOW + DAY)
    connection.commit()


def test_every_table_gives_the_columns_and_types_that_it_declares(
    dsn: str, connection: Connection, queue: PgQueue
) -> None:
    queue.task(name="send")(send).enqueue("x")
    add_history(connection, [1])
    add_dead(connection, [2])
    connection.execute(
        "insert into pgqueue.workers (id, lease_until, pid, concurrency, host, version, queues) "
        "values (gen_random_uuid(), now(), 1, 2, 'host', '1', '{mail,default}')"
    )
    connection.commit()

    for table in TABLES:
        made = reader(dsn, table, columns="all")
        batches = [batch for part in parts(made) for batch in made.read(part)]
        assert sum(batch.num_rows for batch in batches) == (2 if table == "ended" else 1)
        for batch in batches:
            assert batch.schema == to_arrow_schema(schema_of(table, TABLES[table].columns), timezone="UTC")


def test_a_row_arrives_as_it_was_written(dsn: str, connection: Connection) -> None:
    add_history(connection, [7], args={"order": [1, "é"]}, outcome="cancelled", priority=-3)
    connection.commit()

    (row,) = rows(reader(dsn, "ended", columns="all"))

    assert row["id"] == 7
    assert (row["queue"], row["task"], row["outcome"], row["reason"]) == ("mail", "send", "cancelled", None)
    assert (row["ended_at"], row["day"], row["priority"]) == (NOW, NOW.date(), -3)
    assert (row["args"], row["errors"], row["result"]) == ('{"order": [1, "é"]}', None, "1")


def test_parts_read_each_row_once_and_nothing_that_ended_after_the_plan(
    dsn: str, connection: Connection
) -> None:
    add_history(connection, range(2_000), args=LONG)
    add_history(connection, range(2_000, 3_000), args=LONG, at=NOW + DAY)
    connection.commit()
    with psycopg.connect(dsn) as late:
        add_history(late, [9_001], args=LONG)
        made = reader(dsn, "history", partitions="5", columns="id")
        planned = parts(made)
        late.commit()
        add_history(connection, range(9_002, 9_500), args=LONG)
        connection.commit()

        assert len(planned) == 5
        assert ids(made, planned) == list(range(3_000))
        assert ids(reader(dsn, "history", columns="id")) == [*range(3_000), *range(9_001, 9_500)]


def test_a_transaction_in_progress_hides_only_itself_and_does_so_to_every_part(
    dsn: str, connection: Connection
) -> None:
    add_history(connection, range(1_000), args=LONG)
    with psycopg.connect(dsn) as later:
        add_history(later, range(1_000, 2_000), args=LONG)
        later.commit()
        made = reader(dsn, "history", columns="id", pagesPerPartition="20")
        planned = parts(made)
        connection.commit()

    assert ids(made, planned) == list(range(1_000, 2_000))
    assert ids(reader(dsn, "history", columns="id")) == list(range(2_000))


def test_pages_are_dealt_out_in_shares_without_gap_or_overlap() -> None:
    pieces = [
        Piece(oid, f"p{oid}", "job_history", oid, pages, None) for oid, pages in ((1, 5), (2, 1), (3, 4))
    ]

    dealt = shares_of(pieces, 4)

    assert [[(one.piece.oid, one.first, one.before) for one in share] for share in dealt] == [
        [(1, 0, 4)],
        [(1, 4, None), (2, 0, None), (3, 0, 2)],
        [(3, 2, None)],
    ]
    assert len(shares_of(pieces, 100)) == 1
    assert shares_of([], 4) == []


def test_a_part_reads_its_pages_of_its_day_and_only_the_columns_asked_for(
    dsn: str, connection: Connection
) -> None:
    make_days(connection, NOW - 3 * DAY, NOW)
    for days in range(4):
        add_history(connection, range(days * 1_000, days * 1_000 + 1_000), args=LONG, at=NOW - days * DAY)
    connection.commit()
    connection.execute("analyze pgqueue.job_history")

    planned = parts(reader(dsn, "history", columns="id,queue", pagesPerPartition="20"))

    assert len(planned) > 4
    for statement in statements(planned[1]):
        plan = plan_of(connection, statement)
        assert [node for node, _ in scans(plan)] == ["Tid Range Scan"]
        said = " ".join(str(node.get("Output")) for node in nodes(plan))
        assert "args" not in said
        assert "result" not in said
        assert "run_at" not in said


@pytest.fixture
def four_days(connection: Connection) -> date:
    """Ten jobs on each of four days, five dead ones on the last; returns the third."""
    make_days(connection, NOW - 3 * DAY, NOW)
    for days in range(4):
        add_history(
            connection, range(days * 10, days * 10 + 10), at=NOW - days * DAY, queue=f"queue {days % 2}"
        )
    add_dead(connection, range(100, 105))
    connection.commit()
    return (NOW - DAY).date()


def on(day: date) -> dict[str, Any]:
    """The options for a day."""
    return {"from": str(day), "to": str(day)}


def test_filters_reach_postgresql_and_other_days_are_not_even_planned(
    dsn: str, connection: Connection, four_days: date
) -> None:
    (part,) = parts(reader(dsn, "history", queue="queue 1", **on(four_days)))

    assert tables_of(connection, part) == {f"job_history_{four_days:%Y%m%d}"}
    plan = plan_of(connection, statements(part)[0])
    assert "queue 1" in str([node.get("Filter") for node in nodes(plan)])


def test_each_source_of_the_ended_jobs_is_read_as_if_alone(
    dsn: str, connection: Connection, four_days: date
) -> None:
    history, dead = parts(reader(dsn, "ended", **on(four_days)))

    assert tables_of(connection, history) == {f"job_history_{four_days:%Y%m%d}"}
    assert tables_of(connection, dead) == {"dead_jobs"}
    assert ids(reader(dsn, "ended")) == [*range(40), *range(100, 105)]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (f"day = '{NOW:%Y-%m-%d}'", range(10)),
        (f"finished_at >= '{NOW}'", range(10)),
        ("queue = 'queue 1' and id % 10 = 3 -- a comment", [13, 33]),
        ("(args::json ->> 'n')::int > 7 or false", []),
        ("reason = '%s {} '' é' or true", range(40)),
        ("unique_key = 'x'", []),  # null for each
        ("id = 1) or (id < 30", range(30)),  # a row is in one part, whatever the expression is
    ],
)
@pytest.mark.usefixtures("four_days")
def test_rows_can_be_chosen_by_an_expression(dsn: str, where: str, left: Iterable[int]) -> None:
    where = where.replace("reason", "task")
    assert ids(reader(dsn, "history", where=where, columns="id", pagesPerPartition="1")) == list(left)
    between: dict[str, Any] = {"to": f"{NOW - DAY:%Y-%m-%d}"}
    older = [number for number in left if number >= 10]
    assert ids(reader(dsn, "history", where=where, columns="id", **between)) == older


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("quue = 'mail'", 'column "quue" does not exist'),
        ("id", "must be type boolean"),
        ("", "syntax error"),
        ("true); delete from pgqueue.job_history; select (true", "multiple commands|syntax error"),
    ],
)
@pytest.mark.usefixtures("four_days")
def test_an_expression_that_is_none_is_refused_before_a_task_starts(
    dsn: str, where: str, complaint: str
) -> None:
    with pytest.raises(DatabaseError, match=complaint):
        parts(reader(dsn, "history", where=where))
    assert len(ids(reader(dsn, "history"))) == 40


@pytest.mark.usefixtures("four_days")
def test_days_can_be_given_as_options(dsn: str) -> None:
    first, last = (NOW - 2 * DAY).date(), (NOW - DAY).date()

    between: dict[str, Any] = {"from": str(first), "to": str(last)}
    assert ids(reader(dsn, "ended", **between)) == list(range(10, 30))
    before: dict[str, Any] = {"to": "1999-12-31"}
    assert parts(reader(dsn, "history", **before)) == []


@pytest.mark.usefixtures("four_days")
def test_queues_tasks_and_outcomes_can_be_given_as_options(dsn: str) -> None:
    assert ids(reader(dsn, "ended", queue="queue 1")) == [*range(10, 20), *range(30, 40)]
    assert ids(reader(dsn, "ended", queue="queue 1, mail", outcome="dead")) == list(range(100, 105))
    assert ids(reader(dsn, "history", task="other")) == []


def test_days_without_a_partition_are_read_too_wherever_they_have_gone(
    dsn: str, connection: Connection
) -> None:
    stray = NOW + timedelta(days=300)
    add_history(connection, [1], at=stray)
    add_history(connection, [2])
    connection.commit()
    made = reader(dsn, "history")
    planned = parts(made)

    make_days(connection, stray, stray)  # moves the stray row into a partition that was not there
    connection.commit()

    assert ids(made, planned) == [1, 2]
    assert ids(reader(dsn, "history")) == [1, 2]


@pytest.mark.parametrize("change", ["drop table {}", "truncate {}", "vacuum full {}"])
def test_a_day_that_goes_or_is_rewritten_between_plan_and_read_is_an_error(
    dsn: str, connection: Connection, change: str
) -> None:
    add_history(connection, range(10))
    connection.commit()
    made = reader(dsn, "history")
    planned = parts(made)

    connection.autocommit = True
    connection.execute(change.format(PARTITION).encode())

    with pytest.raises(
        PipelineError, match=f"job_history_{NOW:%Y%m%d} was dropped or rewritten.*load.. it again"
    ):
        ids(made, planned)


def test_jobs_that_came_with_a_dump_are_not_passed_over_in_silence(dsn: str, connection: Connection) -> None:
    add_history(connection, [1])
    connection.execute("update pgqueue.job_history set ended_in = 1000000000000")
    connection.commit()

    with pytest.raises(PipelineError, match="came with a dump from another server"):
        parts(reader(dsn, "history"))


def test_many_hands_read_changing_tables_in_one_snapshot(
    dsn: str, connection: Connection, queue: PgQueue
) -> None:
    task = queue.task(name="send")(send)
    queue.enqueue_many(task.call("x" * 200) for _ in range(500))
    add_dead(connection, range(10_000, 10_500))
    connection.commit()
    with snapshot(dsn) as name:
        jobs = reader(dsn, "jobs", snapshot=name, partitions="4")
        planned = parts(jobs)
        connection.execute("delete from pgqueue.jobs where id % 3 = 0")
        connection.execute("update pgqueue.jobs set priority = 5 where id % 3 = 1")
        connection.execute("delete from pgqueue.dead_jobs")
        add_history(connection, [1])
        connection.commit()

        assert len(planned) == 4
        assert [row["priority"] for row in rows(jobs, planned)] == [0] * 500
        assert ids(reader(dsn, "ended", snapshot=name)) == list(range(10_000, 10_500))
        late = reader(dsn, "jobs", snapshot=name)
        plans = parts(late)

    with pytest.raises(PipelineError, match="snapshot is not held"):
        ids(late, plans)
    with pytest.raises(PipelineError, match="snapshot is not held"):
        parts(late)
    assert len(parts(reader(dsn, "jobs"))) == 1


@pytest.mark.parametrize(
    ("at", "column"), [("infinity", "run_at"), ("-infinity", "created_at"), ("12000-01-01", "finished_at")]
)
def test_an_instant_that_spark_cannot_hold_is_named(
    dsn: str, connection: Connection, at: str, column: str
) -> None:
    add_history(connection, [1, 2, 3])
    connection.execute(f"update pgqueue.job_history set {column} = '{at}' where id = 2".encode())
    connection.commit()

    with pytest.raises(PipelineError, match=f"table 'history', id 2: '{column}' is infinity"):
        list(rows(reader(dsn, "history", columns=column)))


def test_the_last_and_the_first_instant_that_spark_holds_arrive(dsn: str, connection: Connection) -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    add_history(connection, [1], at=last)
    connection.execute("update pgqueue.job_history set run_at = %s", [first])
    connection.commit()

    (row,) = rows(reader(dsn, "history", columns="finished_at,run_at"))

    assert row == {"finished_at": last, "run_at": first}


def test_a_database_without_the_schema_is_named_before_a_part_is_planned(empty_dsn: str) -> None:
    with pytest.raises(SchemaMissing, match="pgqueue migrate"):
        parts(reader(empty_dsn, "history"))


def test_a_statement_that_the_server_ends_says_why(dsn: str, connection: Connection) -> None:
    add_history(connection, range(10))
    connection.commit()
    made = reader(f"{dsn}&options=-cstatement_timeout%3D1000", "history")
    planned = parts(made)
    connection.execute(f"lock table {PARTITION}".encode())

    with pytest.raises(DatabaseError, match="statement timeout"):
        ids(made, planned)
