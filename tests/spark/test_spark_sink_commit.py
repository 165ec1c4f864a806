"""The sink's protocol, driven by hand: attempts, commits, and all that may go wrong between them.

Unique keys of the rows of a DataFrame: who is rejected, where it is counted, and what other policies do.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from looking import ask
from spark.sinking import attempts, batch, orders, staged, staged_rows, writing, written
from store.crowd import until_statements_wait

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, PipelineError, QueueClosed
from pgqueue.spark.writing.log import rejected_rows, writes
from pgqueue.spark.writing.writer import stage_partition
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.pipeline import sink
from pgqueue.store.pipeline.sink_stage import Part, StagedJob, stage
from pgqueue.store.plan import Row, Step, run

AGES_AGO: LiteralString = "update pgqueue.sink_attempts set staged_at = now() - interval '25 hours'"
REFUSE_ONE: LiteralString = """
    create function refuse() returns trigger language plpgsql as $$
    begin raise exception 'order 2 is not wanted'; end $$;
    create trigger refuse before insert on pgqueue.jobs for each row
    when ((new.args->>'order_id') = '2') execute function refuse()
"""


def test_only_the_attempts_whose_messages_arrived_are_enqueued(dsn: str) -> None:
    made = writing(dsn, "order_id")
    given_up = staged(made, 0, batch(order_id=[1, 2]))
    counted = staged(made, 0, batch(order_id=[1, 2]))
    other = staged(made, 1, batch(order_id=[3]))
    assert given_up.part.attempt != counted.part.attempt
    assert staged_rows(dsn) == 5

    made.commit([counted, other])

    assert orders(dsn) == [1, 2, 3]
    assert staged_rows(dsn) == attempts(dsn) == 0


def test_an_attempt_that_goes_on_after_the_commit_enqueues_nothing_and_is_swept_away(dsn: str) -> None:
    made = writing(dsn, "order_id")
    given_up = (batch(order_id=[number]) for number in (1, 2))
    counted = staged(made, 0, batch(order_id=[1]), batch(order_id=[2]))

    def slow() -> Iterator[pa.RecordBatch]:
        yield next(given_up)
        made.commit([counted])
        yield next(given_up)

    stage_partition(made.target, made.new.id, 0, slow())

    assert orders(dsn) == [1, 2]
    assert staged_rows(dsn) == attempts(dsn) == 1
    ask(dsn, AGES_AGO)
    writing(dsn, "order_id")
    assert staged_rows(dsn) == attempts(dsn) == 0
    assert orders(dsn) == [1, 2]


def test_a_commit_waits_for_no_attempt_that_hangs(dsn: str, queue: PgQueue) -> None:
    made = writing(dsn, "order_id")
    counted, hanging = (staged(made, 0, batch(order_id=[1])) for _ in range(2))
    with queue.database.connect() as connection:
        steps = StepRunner(connection, queue.database.catalogue)
        with steps.transaction():
            run(stage(made.new.id, hanging.part, [StagedJob(2, "default", 0, 25, b"{}")]), steps)
            made.commit([counted])

    assert orders(dsn) == [1]
    assert (attempts(dsn), staged_rows(dsn)) == (1, 2)  # those of the one that hung, for a sweep to find


def test_what_a_killed_driver_left_is_swept_by_a_later_write_when_it_has_rested_for_a_day(dsn: str) -> None:
    staged(writing(dsn, "order_id"), 0, batch(order_id=[1]))

    writing(dsn, "order_id")
    assert staged_rows(dsn) == 1
    ask(dsn, AGES_AGO)
    living = writing(dsn, "order_id")

    assert staged_rows(dsn) == attempts(dsn) == 0
    living.commit([staged(living, 0, batch(order_id=[2]))])
    assert orders(dsn) == [2]


def test_a_write_with_one_partition_at_work_is_not_swept_however_old_the_others_are(dsn: str) -> None:
    made = writing(dsn, "order_id")
    first = staged(made, 0, batch(order_id=[1]))
    ask(dsn, AGES_AGO)
    second = staged(made, 1, batch(order_id=[2]))

    writing(dsn, "order_id")
    made.commit([first, second])

    assert orders(dsn) == [1, 2]


def test_rows_that_are_gone_at_the_commit_are_missed_and_nothing_is_enqueued(dsn: str) -> None:
    made = writing(dsn, "order_id", "unique_key", run="monday")
    messages = [
        staged(made, 0, batch(order_id=[1, 2], unique_key=[None, "a"])),
        staged(made, 1, batch(order_id=[3, 4], unique_key=[None, "b"])),
    ]
    ask(dsn, "delete from pgqueue.sink_rows where place = 2")

    with pytest.raises(PipelineError, match=r"2 of 4 staged rows are gone.*write it again"):
        made.commit(messages)

    assert orders(dsn) == []
    assert writes(dsn) == []


def test_a_commit_that_fails_leaves_nothing_and_its_name_is_free(dsn: str) -> None:
    ask(dsn, REFUSE_ONE)
    made = writing(dsn, "order_id", "unique_key", run="monday")
    message = staged(made, 0, batch(order_id=[1, 2], unique_key=[None, "a"]))

    with pytest.raises(psycopg.errors.RaiseException, match="order 2 is not wanted"):
        made.commit([message])
    made.abort([message])

    assert (orders(dsn), writes(dsn), staged_rows(dsn), attempts(dsn)) == ([], [], 0, 0)
    ask(dsn, "drop trigger refuse on pgqueue.jobs")
    assert written(dsn, batch(order_id=[1, 2]), run="monday").enqueued == 2


def test_an_abort_deletes_the_rows_of_its_own_write_only(dsn: str) -> None:
    failed, other = writing(dsn, "order_id"), writing(dsn, "order_id")
    staged(failed, 0, batch(order_id=[1]))
    message = staged(other, 0, batch(order_id=[2]))

    failed.abort([None])

    assert staged_rows(dsn) == 1
    other.commit([message])
    assert orders(dsn) == [2]


def test_a_commit_without_one_of_its_messages_enqueues_nothing(dsn: str) -> None:
    made = writing(dsn, "order_id")

    with pytest.raises(PipelineError, match="1 partitions were not staged"):
        made.commit([staged(made, 0, batch(order_id=[1])), None])
    assert orders(dsn) == []


def test_a_rerun_of_a_named_write_enqueues_nothing_and_says_which_write_did(dsn: str) -> None:
    first = written(dsn, batch(order_id=[1, 2]), run="monday")
    again = writing(dsn, "order_id", run="monday")

    def never() -> Iterator[pa.RecordBatch]:
        yield pytest.fail("nothing is to be computed")

    again.commit([again.write(never())])

    assert orders(dsn) == [1, 2]
    repeat, recorded = writes(dsn, run="monday")
    assert recorded == first
    assert (first.enqueued, first.repeats) == (2, None)
    assert (repeat.enqueued, repeat.repeats, repeat.id) == (0, first.id, again.new.id)


def test_of_two_writes_of_one_name_at_once_the_second_waits_and_enqueues_nothing(dsn: str) -> None:
    made = [writing(dsn, "order_id", run="monday") for _ in range(2)]
    messages = [staged(one, 0, batch(order_id=[1])) for one in made]
    with psycopg.connect(dsn) as holding, ThreadPoolExecutor(1) as pool:
        holding.execute("select")
        database = made[0].target.database
        run(sink.commit(made[0].new, [messages[0].part]), StepRunner(holding, database.catalogue))
        second = pool.submit(made[1].commit, [messages[1]])
        until_statements_wait(dsn)
        holding.commit()
        second.result()

    assert orders(dsn) == [1]
    assert [one.repeats for one in writes(dsn)] == [made[0].new.id, None]
    assert staged_rows(dsn) == 0


def test_the_name_of_a_write_of_another_task_is_refused_before_rows_are_looked_at(dsn: str) -> None:
    written(dsn, batch(order_id=[1]), run="monday")

    with pytest.raises(InvalidOption, match=r"run='monday' names a write of the task 'bill'.* another name"):
        writing(dsn, "order_id", run="monday", task="remind")


def test_writes_without_a_name_are_each_their_own(dsn: str) -> None:
    written(dsn, batch(order_id=[1]))
    written(dsn, batch(order_id=[1]))

    assert orders(dsn) == [1, 1]
    assert [(one.run, one.enqueued, one.repeats) for one in writes(dsn)] == [(None, 1, None)] * 2


def test_jobs_stand_in_line_as_the_rows_did_with_and_without_keys(dsn: str) -> None:
    plain = written(dsn, batch(order_id=[5, 3]), batch(order_id=[9, 1]))
    assert (orders(dsn), plain.rows) == ([5, 3, 9, 1], 4)
    ask(dsn, "delete from pgqueue.jobs")

    written(
        dsn,
        batch(order_id=[5, 3], unique_key=["z", "y"]),
        batch(order_id=[9, 1, 0], unique_key=["a", None, "x"]),
    )
    assert orders(dsn) == [5, 3, 9, 1, 0]


@pytest.mark.parametrize("keys", [[None] * 3, ["a", None, "b"]], ids=["without keys", "with some"])
def test_jobs_wait_for_their_time_and_all_others_are_ready(dsn: str, keys: list[str | None]) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    times = [later, None, datetime(2020, 1, 1, tzinfo=UTC)]

    written(dsn, batch(order_id=[1, 2, 3], run_at=times, unique_key=keys))

    found = ask(dsn, "select args->>'order_id', status, run_at = %s from pgqueue.jobs order by 1", later)
    assert found == [("1", "scheduled", True), ("2", "ready", False), ("3", "ready", False)]


def test_who_sleeps_is_woken_once(dsn: str) -> None:
    ask(
        dsn,
        "insert into pgqueue.workers (id, lease_until, pid, concurrency, idle, host, version) "
        "values (gen_random_uuid(), now() + interval '1 hour', 1, 1, true, 'host', '0')",
    )
    with psycopg.connect(dsn, autocommit=True) as sleeper:
        sleeper.execute('listen "pgqueue.wake"')
        written(dsn, *(batch(order_id=[number], unique_key=[key]) for number, key in enumerate(("a", None))))

        assert len(list(sleeper.notifies(timeout=0.5))) == 1


def test_a_name_is_kept_for_ever_and_what_nobody_can_repeat_for_a_month(dsn: str) -> None:
    written(dsn, batch(order_id=[1], unique_key=["a"]), run="monday")
    repeat = written(dsn, batch(order_id=[2], unique_key=["a"]))
    assert len(rejected_rows(repeat.id, dsn)) == 1
    ask(
        dsn,
        "insert into pgqueue.sink_writes (id, run, query, batch, rows, enqueued, rejected, changed, task) "
        "select gen_random_uuid(), 'query', 'query', n, 1, 1, 0, 0, 'bill' from generate_series(1, 3) as n",
    )
    ask(dsn, "update pgqueue.sink_writes set written_at = now() - interval '31 days'")

    writing(dsn, "order_id")

    assert sorted((one.run, one.batch) for one in writes(dsn)) == [("monday", None), ("query", 3)]
    assert ask(dsn, "select count(*) from pgqueue.sink_rejected") == [(0,)]


@pytest.mark.parametrize("keys", [[None] * 3, ["a", "b", "c"]], ids=["plain", "keyed"])
@pytest.mark.parametrize("options", [{}, {"unique_collision": "replace"}], ids=["at once", "one at a time"])
def test_rows_have_what_their_queue_says_at_the_commit(
    dsn: str, queue: PgQueue, keys: list[str | None], options: dict[str, str]
) -> None:
    made = writing(dsn, "order_id", "queue", "priority", "max_attempts", "unique_key", **options)
    rows = batch(
        order_id=[1, 2, 3],
        queue=["mail", "mail", "other"],
        priority=[None, 0, None],
        max_attempts=[None, 9, None],
        unique_key=keys,
    )
    message = staged(made, 0, rows)
    queue.control.declare("mail", priority=7, max_attempts=3)
    made.commit([message])
    said = ask(dsn, "select queue, priority, max_attempts from pgqueue.jobs order by args->>'order_id'")
    assert said == [("mail", 7, 3), ("mail", 0, 9), ("other", 0, 25)]


@pytest.mark.parametrize("keys", [[None] * 2, ["a", "b"]], ids=["plain", "keyed"])
def test_a_write_into_a_closed_queue_is_refused_and_enqueues_nothing(
    dsn: str, queue: PgQueue, keys: list[str | None]
) -> None:
    queue.control.close("mail", by="ann")
    rows = batch(order_id=[1, 2], queue=["other", "mail"], unique_key=keys)
    with pytest.raises(QueueClosed, match="queue 'mail' is closed"):
        written(dsn, rows, run="receipts")
    assert orders(dsn) == []
    queue.control.resume("mail")
    assert written(dsn, rows, run="receipts").enqueued == 2


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
        "pipeline/sink_closed": [[]],
        "pipeline/sink_add_unique": [[(0, None, None)], [(1, None, "{[7,8)}")]],
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
