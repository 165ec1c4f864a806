"""Unique keys of the rows of a DataFrame: who is rejected, where it is counted, and what other policies do."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import LiteralString
from uuid import UUID

import psycopg
import pytest
from looking import ask
from spark.sinking import batch, orders, staged, staged_rows, writing, written
from store.crowd import until_statements_wait

from pgqueue import PgQueue
from pgqueue.spark.writing.log import rejected_rows, writes
from pgqueue.store.pipeline import sink
from pgqueue.store.pipeline.sink_stage import Part
from pgqueue.store.plan import Row, Step, run

HOLDERS: LiteralString = "select unique_key, args->>'order_id', collisions from pgqueue.jobs where unique_key is not null order by id"
NOBODY = UUID(int=0)


@pytest.fixture
def holder(queue: PgQueue) -> int:
    """The id of a live job with the key a."""
    task = queue.task(name="other")(lambda order_id: order_id)
    return task.using(unique_key="a").enqueue(0).id


def test_rows_whose_key_is_taken_are_rejected_counted_on_the_job_and_listed(dsn: str, holder: int) -> None:
    done = written(
        dsn,
        batch(order_id=[1, 2, 3], unique_key=["b", None, "a"]),
        batch(order_id=[4, 5, 6], unique_key=["a", "b", None]),
    )

    assert (done.rows, done.enqueued, done.rejected, done.changed) == (6, 3, 3, 0)
    assert ask(dsn, HOLDERS) == [("a", "0", 2), ("b", "1", 1)]
    ((own,),) = ask(dsn, "select id from pgqueue.jobs where unique_key = 'b'")
    listed = [(one.partition, one.place, one.unique_key, one.job_id) for one in rejected_rows(done.id, dsn)]
    assert listed == [(0, 3, "a", holder), (1, 1, "a", holder), (1, 2, "b", own)]
    assert staged_rows(dsn) == 0


def test_a_commit_waits_for_an_enqueue_of_the_same_key_and_is_then_rejected(dsn: str) -> None:
    made = writing(dsn, "order_id", "unique_key")
    message = staged(made, 0, batch(order_id=[1], unique_key=["a"]))
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("select pgqueue.enqueue('bill', '{\"order_id\": 7}', unique_key => 'a')")
        commit = pool.submit(made.commit, [message])
        until_statements_wait(dsn)
        other.commit()
        commit.result()

    assert orders(dsn) == [7]
    assert [one.rejected for one in writes(dsn)] == [1]


def test_a_holder_that_ends_between_the_statements_makes_for_another_try() -> None:
    answers: dict[str, list[list[Row]]] = {
        "pipeline/sink_record": [[(NOBODY,)]],
        "pipeline/sink_drained": [[]],
        "pipeline/sink_add_unique": [[(0,)], [(1,)]],
        "pipeline/sink_reject": [[(0,)], [(0,)]],
        "pipeline/sink_settle": [[(NOBODY, None, None, "bill", 1, 1, 0, 0, None, None)]],
        "pipeline/sink_leave": [[]],
    }
    asked: list[str] = []

    class Answers:
        def execute(self, step: Step, /) -> list[Row]:
            asked.append(step.name)
            return answers[step.name].pop(0)

        def transaction(self) -> nullcontext[None]:
            return nullcontext()

    done = run(sink.commit(sink.NewWrite(NOBODY, "bill"), [Part(0, NOBODY, 1, 1)]), Answers())

    assert done.enqueued == 1
    assert asked.count("pipeline/sink_add_unique") == 2


def test_a_key_that_is_held_until_its_job_started_is_so_for_rows_too(dsn: str) -> None:
    written(dsn, batch(order_id=[1], unique_key=["a"]), unique_until="started")

    assert ask(dsn, "select unique_until_started from pgqueue.jobs") == [(True,)]


def test_a_key_with_a_period_stays_taken_when_its_job_has_ended(dsn: str) -> None:
    row = batch(order_id=[1, 2], unique_key=["a", "a"])
    first = written(dsn, row, unique_period="3600")
    assert (first.enqueued, first.rejected) == (1, 1)
    assert ask(dsn, HOLDERS) == [("a", "1", 1)]
    ask(dsn, "delete from pgqueue.jobs")

    second = written(dsn, row, unique_period="3600")
    assert (second.enqueued, second.rejected) == (0, 2)
    ((held,),) = ask(dsn, "select extract(epoch from held_until - now()) from pgqueue.unique_holds")
    assert 3500 < held <= 3600
    ask(dsn, "update pgqueue.unique_holds set held_until = now()")

    assert written(dsn, row, unique_period="3600").enqueued == 1
    assert staged_rows(dsn) == 0


def test_rows_may_replace_the_waiting_job_of_their_key_and_the_last_of_them_stays(
    dsn: str, holder: int
) -> None:
    done = written(
        dsn,
        batch(order_id=[1, 2], unique_key=["b", "a"]),
        batch(order_id=[3], unique_key=["a"]),
        unique_collision="replace",
    )

    assert (done.enqueued, done.rejected, done.changed) == (1, 0, 2)
    assert ask(dsn, HOLDERS) == [("a", "3", 2), ("b", "1", 0)]
    assert ask(dsn, "select args->>'order_id' from pgqueue.jobs where id = %s", holder) == [("3",)]


def test_many_rows_of_a_policy_of_their_own_are_taken_block_by_block(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "TAKEN_AT_ONCE", 2)

    done = written(dsn, batch(order_id=range(5), unique_key=["a", "b", None, "a", "c"]), unique_period="60")

    assert (done.enqueued, done.rejected) == (4, 1)
    assert [(one.place, one.unique_key) for one in rejected_rows(done.id, dsn)] == [(4, "a")]


def test_keys_are_taken_in_the_order_of_enqueue_many_so_that_nobody_waits_in_a_circle(dsn: str) -> None:
    made = writing(dsn, "order_id", "unique_key")
    message = staged(made, 0, batch(order_id=[1, 2], unique_key=["a", "B"]))  # B comes first, by its code
    enqueue: LiteralString = "select pgqueue.enqueue('bill', '{\"order_id\": 7}', unique_key => %s)"
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute(enqueue, ["B"])
        commit = pool.submit(made.commit, [message])
        until_statements_wait(dsn)
        other.execute(enqueue, ["a"])
        other.commit()
        commit.result()

    assert [one.rejected for one in writes(dsn)] == [2]
