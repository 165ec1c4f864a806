"""Jobs that wait gain priority where their queue says so."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import ask
from neighbours.places import a_clock, a_database, each_database, one_database
from promises.processes import listed, run_on

from pgqueue import PgQueue, Task
from pgqueue.errors import InvalidOption, JobError
from pgqueue.store.jobs import claim
from pgqueue.store.queues import queues
from pgqueue.testing import Clock, drain
from pgqueue.values.jobs.job import JobState

every, clock, emptied, database = each_database, a_clock, a_database, one_database

MINUTE = timedelta(minutes=1)


@pytest.fixture
def note(every: PgQueue) -> Task[[int], None]:
    @every.task(name="note")
    def note(number: int) -> None: ...

    return note


def run_one(queue: PgQueue) -> None:
    """Run the next job, and leave the others."""
    with pytest.raises(JobError, match="gave up"):
        drain(queue, limit=1)


@pytest.mark.parametrize(("ageing", "starts"), [(MINUTE, 5), (None, None)], ids=["ageing", "none"])
def test_an_old_job_runs_within_its_bound_although_others_come_without_end(
    every: PgQueue, clock: Clock, note: Task[[int], None], ageing: timedelta | None, starts: int | None
) -> None:
    """Worth one priority a minute: after 5 minutes it stands before all later jobs of priority 5."""
    if ageing is not None:
        every.control.set("default", ageing=ageing, ageing_to=5)
    old = note.using(priority=-10).enqueue(0)
    clock.travel(timedelta(seconds=1))
    started = None
    for minute in range(12):
        for number in range(2):
            note.using(priority=5).enqueue(2 * minute + number + 1)
        run_one(every)
        if old.status() is JobState.SUCCEEDED:
            started = minute
            break
        clock.travel(MINUTE)
    assert started == starts


@pytest.mark.parametrize(
    ("times", "then"),
    [
        ((0, 0), 0), ((0, 1), 1), ((0, 3), 3), ((0, 30), 10), ((2, 2), 2), ((2, 3), 3), ((-50, 0), -50), ((-50, 1), 1),
        ((15, 30), 15),
    ],
    ids=str,
)  # fmt: skip
def test_a_job_that_has_waited_for_k_minutes_has_at_least_priority_k(
    every: PgQueue, clock: Clock, note: Task[[int], None], times: tuple[int, int], then: int
) -> None:
    priority, minutes = times
    every.control.set("default", ageing=MINUTE, ageing_to=10)
    waiting = note.using(priority=priority).enqueue(1)
    clock.travel(timedelta(seconds=59))
    note.using(priority=50).enqueue(2)
    clock.travel(minutes * MINUTE - timedelta(seconds=59) if minutes else timedelta(0))
    run_one(every)
    assert every.job(waiting.id).priority == then


def test_nothing_is_raised_without_a_job_of_higher_priority_or_in_another_queue(
    every: PgQueue, clock: Clock, note: Task[[int], None]
) -> None:
    every.control.set("default", ageing=MINUTE)
    alike = [note.enqueue(number) for number in range(3)]
    elsewhere = [note.using(queue="other", priority=priority).enqueue(1) for priority in (1, 2)]
    clock.travel(MINUTE * 30)
    run_one(every)
    assert {every.job(one.id).priority for one in alike} == {0}
    assert [every.job(one.id).priority for one in elsewhere] == [1, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ageing": 0}, "ageing"), ({"ageing": -1}, "ageing"), ({"ageing": 0.5}, "ageing"), ({"ageing": "often"}, "ageing"),
        ({"ageing": float("nan")}, "ageing"), ({"ageing": timedelta(days=400)}, "ageing"), ({"ageing_to": 0}, "ageing_to"),
        ({"ageing_to": 101}, "ageing_to"), ({"ageing_to": True}, "ageing_to"), ({"ageing_to": 1.5}, "ageing_to"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_are_refused_and_change_nothing(
    every: PgQueue, given: dict[str, Any], said: str
) -> None:
    every.control.set("default", ageing=60, ageing_to=7)
    with pytest.raises(InvalidOption, match=said):
        every.control.set("default", **given)
    (known,) = every.database.run(queues.known())
    assert (known.settings.ageing, known.settings.ageing_to) == (MINUTE, 7)


def test_a_highest_priority_without_ageing_is_refused(every: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="has no ageing"):
        every.control.set("default", ageing_to=5)
    every.control.set("default", ageing=60, ageing_to=5)
    with pytest.raises(InvalidOption, match="unset both"):
        every.control.set("default", unset=["ageing"])
    assert every.control.set("default", unset=["ageing", "ageing_to"]).ageing is None


def test_a_long_line_is_raised_from_its_head_in_small_pieces(queue: PgQueue) -> None:
    queue.control.set("default", ageing=60)
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task, args, status, run_at, priority) select 'default', 'note', '{}', 'ready', "
        "now() - number * interval '1 second', number % 2 from generate_series(1, 20000) as number",
    )
    assert queue.database.run(queues.age()) == queues.AGED_AT_ONCE
    raised = ask(
        queue,
        "select min(now() - run_at) > interval '5 hours', count(*) from pgqueue.jobs where priority > 1",
    )
    assert raised == [(True, queues.AGED_AT_ONCE)]


def test_rows_that_another_program_wrote_stop_no_ageing(queue: PgQueue) -> None:
    queue.control.set("default", ageing=60)
    for run_at in ("-infinity", "0001-01-01 00:00+00 BC", "now"):
        ask(
            queue,
            "insert into pgqueue.jobs (queue, task, args, status, run_at, priority) values "
            "('default', 'note', '{}', 'ready', %s::timestamptz, 0), ('default', 'note', '{}', 'ready', now(), 90)",
            run_at,
        )
    assert queue.database.run(queues.age()) == 2


def test_a_row_that_another_transaction_has_locked_is_left_to_a_later_look(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    queue.control.set("default", ageing=60)
    insert = (
        "insert into pgqueue.jobs (queue, task, args, status, run_at, priority) "
        "values ('default', 'note', '{}', 'ready', now() - interval '1 hour', %s) returning id"
    )
    ((old,),) = ask(queue, insert, 0)
    ask(queue, insert, 90)
    with connection.transaction():
        connection.execute("select from pgqueue.jobs where id = %s for update", [old])
        assert queue.database.run(queues.age()) == 0
    assert queue.database.run(queues.age()) == 1
    worker = listed(queue)
    (first, second) = run_on(connection, claim.claim(worker, {"default": 2}))
    assert (first.priority, second.id, second.priority) == (90, old, 60)
