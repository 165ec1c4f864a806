"""A write's record knows its jobs, however they were added, and whatever happens to them; jobs are chosen by the run."""

import json
import time

import pyarrow as pa
import pytest
from looking import ask
from pyspark.sql import types
from pyspark.sql.types import StructType
from spark.sinking import batch, orders, staged, stream_batch, written

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, RowsRefused
from pgqueue.spark.writing.log import refused_rows, rejected_rows, writes
from pgqueue.spark.writing.writer import writer


def ids_of(dsn: str, run: str) -> list[int]:
    return [
        row[0]
        for row in ask(
            dsn,
            "select generate_series(lower(part), upper(part) - 1) from unnest(pgqueue.jobs_of_run(%(run)s)) as part",
            run=run,
        )
    ]


def live(dsn: str) -> list[int]:
    return [row[0] for row in ask(dsn, "select id from pgqueue.jobs order by id")]


def test_a_run_has_the_jobs_of_its_write_and_no_others(queue: PgQueue, dsn: str) -> None:
    before = queue.enqueue_named("bill", {}).id
    written(dsn, batch(order_id=[1, 2]), batch(order_id=[3]), run="r1")
    after = queue.enqueue_named("bill", {}).id

    assert ids_of(dsn, "r1") == [one for one in live(dsn) if one not in {before, after}]
    assert len(ids_of(dsn, "r1")) == 3
    assert ids_of(dsn, "another") == []


def test_jobs_that_others_enqueue_meanwhile_are_not_of_the_run(dsn: str) -> None:
    ask(
        dsn,
        "create function pgqueue.meanwhile() returns trigger language plpgsql as "
        "$$begin perform nextval('pgqueue.jobs_id_seq'); return new; end$$; "
        "create trigger meanwhile before insert on pgqueue.jobs for each row execute function pgqueue.meanwhile()",
    )
    written(dsn, batch(order_id=[*range(100)]), run="r1")

    assert ids_of(dsn, "r1") == live(dsn)
    assert len(live(dsn)) == 100


def test_the_jobs_of_rows_with_keys_are_of_the_run_and_rejected_rows_are_none(dsn: str) -> None:
    written(dsn, batch(order_id=[1], unique_key=["a"]))
    (held,) = live(dsn)
    write = written(dsn, batch(order_id=[1, 2, 3], unique_key=["a", "b", "b"]), run="r1", key="order_id")

    assert (write.enqueued, write.rejected) == (1, 2)
    assert ids_of(dsn, "r1") == [one for one in live(dsn) if one != held]
    assert sorted(row.unique_key for row in rejected_rows(write.id, dsn)) == ["a", "b"]
    kept = ask(dsn, "select key from pgqueue.sink_rejected order by place")
    assert [row[0] for row in kept] == [{"order_id": 1}, {"order_id": 3}]


@pytest.mark.parametrize(
    "policy", [{"unique_period": "60"}, {"unique_collision": "replace"}], ids=["period", "replace"]
)
def test_jobs_that_are_enqueued_one_at_a_time_are_of_the_run(dsn: str, policy: dict[str, str]) -> None:
    write = written(
        dsn,
        batch(order_id=[1, 2, 3, 4], unique_key=["a", "b", "b", None]),
        run="r1",
        key="order_id",
        **policy,
    )

    assert ids_of(dsn, "r1") == live(dsn)
    assert len(live(dsn)) == write.enqueued == 3
    metas = ask(dsn, "select meta from pgqueue.jobs order by id")
    assert all(row[0].keys() == {"key"} for row in metas)


def test_a_write_that_repeats_a_name_adds_nothing_to_the_run(dsn: str) -> None:
    written(dsn, batch(order_id=[1]), run="r1")
    first = ids_of(dsn, "r1")
    written(dsn, batch(order_id=[2]), run="r1")

    assert ids_of(dsn, "r1") == first


def test_a_dead_job_that_is_retried_stays_in_its_run_and_its_copy_is_not_in_it(
    queue: PgQueue, dsn: str
) -> None:
    written(dsn, batch(order_id=[1]), run="r1")
    (job_id,) = ids_of(dsn, "r1")
    ask(
        dsn,
        "with gone as (delete from pgqueue.jobs returning *) insert into pgqueue.dead_jobs "
        "(id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason, queue, task, args) "
        "select id, run_at, created_at, now(), 0, 0, 1, 1, 'exhausted', queue, task, args from gone",
    )
    assert queue.insight.run("r1").dead == 1
    queue.retry(job_id)
    copy = queue.enqueue_copy(job_id).id

    assert queue.insight.run("r1").ready == 1
    assert ids_of(dsn, "r1") == [job_id] != [copy]


def test_columns_that_name_a_row_are_kept_in_the_jobs_meta_and_need_not_be_arguments(dsn: str) -> None:
    columns = StructType().add("row", types.StringType()).add("body", types.StringType())
    made = writer({"task": "bill", "dsn": dsn, "key": "row", "args": "body"}, columns, overwrite=False)
    hostile = 'a\\"\t\n☃{}'
    rows = pa.RecordBatch.from_pydict(
        {"row": [hostile, None], "body": ['{"order_id": 1}', '{"order_id": 2}']}
    )
    made.commit([staged(made, 0, rows)])

    found = ask(dsn, "select args::text, meta from pgqueue.jobs order by id")
    assert [(json.loads(args), meta) for args, meta in found] == [
        ({"order_id": 1}, {"key": {"row": hostile}}),
        ({"order_id": 2}, {"key": {"row": None}}),
    ]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("ordr_id", r"there is no such column; did you mean 'order_id'"),
        ("order_id,order_id", r"write names of columns"),
    ],
)
def test_a_key_that_is_no_column_is_refused_before_a_row_is_read(dsn: str, key: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        written(dsn, batch(order_id=[1]), key=key)


def test_a_key_of_a_type_that_cannot_be_joined_is_refused(dsn: str) -> None:
    columns = StructType().add("row", types.MapType(types.StringType(), types.LongType()))
    with pytest.raises(RowsRefused, match="which no key column can be"):
        writer({"task": "bill", "dsn": dsn, "key": "row"}, columns, overwrite=False)


def test_a_key_that_is_too_long_is_a_bad_row(dsn: str) -> None:
    with pytest.raises(RowsRefused, match="the key columns take"):
        written(dsn, batch(order_id=[1], queue=["q"], body=["ж" * 2_100]), key="body")


def test_the_batches_of_a_stream_are_one_run_and_each_is_enqueued_once(queue: PgQueue, dsn: str) -> None:
    stream_batch(dsn, "q", 0, 1, 2, run="r1")
    stream_batch(dsn, "q", 1, 3, run="r1")
    stream_batch(dsn, "q", 1, 3, run="r1")  # after a crash
    stream_batch(
        dsn, "another", 0, 4, run="r1"
    )  # a second query, whose checkpoint is new, is not the first one's batch
    stream_batch(dsn, "third", 0, 5)

    assert orders(dsn) == [1, 2, 3, 4, 5]
    assert len(ids_of(dsn, "r1")) == 4
    assert len(ids_of(dsn, "third")) == 1
    run = queue.insight.run("r1")
    assert (run.writes, run.rows, run.jobs) == (3, 4, 4)


def test_a_run_keeps_the_jobs_of_batches_whose_records_are_swept_away(dsn: str) -> None:
    for number in range(4):
        stream_batch(dsn, "q", number, number, run="r1")
    jobs = ids_of(dsn, "r1")
    ask(dsn, "update pgqueue.sink_writes set written_at = now() - interval '31 days' where batch < 2")
    stream_batch(dsn, "other", 0, 9)
    assert sorted(one.batch or 0 for one in writes(dsn, run="r1")) == [2, 3]
    assert ids_of(dsn, "r1") == jobs
    ask(dsn, "update pgqueue.sink_writes set written_at = now() - interval '31 days'")
    stream_batch(dsn, "other", 1, 9)

    assert [one.batch for one in writes(dsn, run="r1")] == [3]
    assert ids_of(dsn, "r1") == jobs


def test_bad_rows_are_diverted_and_the_good_ones_are_enqueued(dsn: str) -> None:
    columns = StructType().add("order_id", types.LongType()).add("total", types.DoubleType())
    columns.add("api_token", types.StringType())
    options = {"task": "bill", "dsn": dsn, "key": "order_id", "onBadRow": "divert", "run": "r1"}
    made = writer({name.lower(): value for name, value in options.items()}, columns, overwrite=False)
    parts = []
    for number in range(2):
        rows = pa.RecordBatch.from_pydict(
            {
                "order_id": [number * 10 + place for place in range(4)],
                "total": [1.0, float("nan"), 2.0, float("inf")],
                "api_token": ["s3cret-value"] * 4,
            }
        )
        parts.append(staged(made, number, rows))
    made.commit(parts)

    (write,) = writes(dsn)
    assert (write.rows, write.enqueued, write.refused) == (8, 4, 4)
    assert orders(dsn) == [0, 2, 10, 12]
    refused = refused_rows(write.id, dsn)
    assert [(one.partition, one.place) for one in refused] == [(0, 2), (0, 4), (1, 2), (1, 4)]
    assert all("column 'total'" in one.reason for one in refused)
    assert "s3cret" not in str(refused)
    keys = ask(dsn, "select key from pgqueue.sink_refused order by partition, place")
    assert [row[0] for row in keys] == [{"order_id": one} for one in (1, 3, 11, 13)]
    assert ask(dsn, "select count(*) from pgqueue.sink_rows")[0][0] == 0


def test_without_it_a_bad_row_refuses_the_write(dsn: str) -> None:
    with pytest.raises(InvalidOption, match="fail or divert"):
        written(dsn, batch(order_id=[1]), onbadrow="skip")
    with pytest.raises(RowsRefused, match="1 of 2 rows"):
        written(dsn, batch(order_id=[1, 2], unique_key=["a", ""]))
    assert written(dsn, batch(order_id=[1, 2], unique_key=["a", ""]), onbadrow="divert").refused == 1


def test_refused_rows_are_swept_away_after_a_month(dsn: str) -> None:
    write = written(dsn, batch(order_id=[1], unique_key=[""]), onbadrow="divert", run="r1")
    assert len(refused_rows(write.id, dsn)) == 1
    ask(dsn, "update pgqueue.sink_writes set written_at = now() - interval '31 days'")
    written(dsn, batch(order_id=[2]))
    assert refused_rows(write.id, dsn) == []


def test_operations_choose_jobs_by_their_run(queue: PgQueue, dsn: str) -> None:
    other = queue.enqueue_named("bill", {}).id
    written(dsn, batch(order_id=[*range(20)]), run="r1")
    ids = ids_of(dsn, "r1")

    assert [job.id for job in queue.insight.search(run="r1").jobs] == ids[::-1]
    assert queue.insight.search(run="none").jobs == ()
    assert queue.control.jobs(run="r1").preview("cancel").count == 20
    assert queue.control.jobs(run="none").cancel().done == 0
    result = queue.control.jobs(run="r1").cancel(by="ada")
    assert result.done == 20
    assert live(dsn) == [other]
    (entry,) = queue.insight.audit(action="cancel", by="ada")[:1]
    assert entry.details is not None
    assert entry.details["filter"] == {"run": "r1"}


def test_a_run_is_counted_by_state_and_what_has_no_record_any_more_is_said(queue: PgQueue, dsn: str) -> None:
    written(dsn, batch(order_id=[*range(6)]), run="r1")
    ids = ids_of(dsn, "r1")
    queue.control.jobs(ids=ids[:2]).cancel()
    ask(dsn, "delete from pgqueue.job_history where id = %(id)s", id=ids[0])

    run = queue.insight.run("r1")
    assert (run.jobs, run.ready, run.ended, run.cancelled, run.succeeded, run.gone) == (6, 4, 2, 1, 0, 1)
    assert run.ended_at is not None
    (listed,) = queue.insight.runs()
    assert (listed.jobs, listed.ready, listed.ended, listed.gone) == (6, 4, 2, None)
    with pytest.raises(InvalidOption, match="there is no run 'none'"):
        queue.insight.run("none")


def test_a_run_of_many_batches_is_counted_in_a_moment(queue: PgQueue, dsn: str) -> None:
    """The ids of its jobs are read once, and not for each job that ended between them."""
    stream_batch(dsn, "q", 0, 1, run="r1")
    ask(
        dsn,
        """update pgqueue.sink_writes set jobs = (select range_agg(int8range(id, id + 1)) from generate_series(1000, 40000, 10) as id);
           insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                            max_attempts, outcome, queue, task, args)
           select id, now(), now(), now(), now(), 0, 0, 1, 5, 'succeeded', 'mail', 'send', '{}' from generate_series(1000, 40000) as id""",
    )
    began = time.monotonic()
    found = queue.insight.run("r1")
    assert (found.jobs, found.succeeded) == (3_901, 3_901)
    assert time.monotonic() - began < 5
