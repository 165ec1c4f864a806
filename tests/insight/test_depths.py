"""How deep queues are is noted once a minute, by one worker, and told by minutes and hours."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from store.samples import MINUTE, NOON, adding, new_job, running, taking

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import series
from pgqueue.store.queues import queues
from pgqueue.values.insight.series import Depth, Depths, deepest
from pgqueue.values.queues.standing import QueueStanding

HOUR = timedelta(hours=1)
STEP = timedelta(seconds=1)


def told(queue: PgQueue, *, name: str | None = None, step: timedelta = MINUTE, hours: int = 2) -> Depths:
    """From noon on."""
    until = NOON + hours * HOUR
    return queue.database.run(series.depths(NOON, until, step, queue=name, now=until))


def rows(connection: psycopg.Connection[Any], table: str = "series_depths") -> list[Any]:
    connection.rollback()
    return connection.execute(f"select at, queue, ready from pgqueue.{table} order by at, queue").fetchall()


def empty(connection: psycopg.Connection[Any]) -> None:
    connection.execute("delete from pgqueue.jobs")
    connection.commit()


def test_a_minute_has_the_jobs_of_all_queues_and_of_each(queue: PgQueue) -> None:
    run = queue.database.run
    run(running())
    run(adding(new_job(), new_job(), now=NOON - 90 * STEP))
    run(adding(new_job(queue="mail"), now=NOON - 30 * STEP))

    assert run(series.note(now=NOON + 30 * STEP))

    def first(name: str | None) -> Depth | None:
        return told(queue, name=name).points[0].depth

    assert first("default") == Depth(0, 0, 2, 1, 0, oldest_ready=120.0)
    assert first("mail") == Depth(0, 0, 1, 0, 0, oldest_ready=60.0)
    assert first(None) == Depth(0, 0, 3, 1, 0, oldest_ready=120.0)
    assert first("none such") == Depth(0, 0, 0, 0, 0), "a worker looked, and it had no jobs"
    assert told(queue).points[1].depth is None, "no worker looked"
    assert len(told(queue).points) == 120


def test_a_minute_is_noted_once(queue: PgQueue, connection: psycopg.Connection[Any]) -> None:
    run = queue.database.run
    run(adding(new_job()))
    assert run(series.note(now=NOON))
    run(adding(new_job()))

    assert not run(series.note(now=NOON + 59 * STEP))
    assert run(series.note(now=NOON + 60 * STEP))

    assert [ready for _, _, ready in rows(connection)] == [1, 1, 2, 2]


def test_of_workers_that_note_a_minute_at_once_one_does(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have asked whether the minute is due before one has noted it."""
    run = queue.database.run
    run(adding(new_job()))
    asked = queues.queue_standings
    minutes = [NOON + place * MINUTE for place in range(20)]

    def noted_meanwhile(*, now: datetime | None = None) -> Any:
        found = yield from asked(now=now)
        with monkeypatch.context() as patched:
            patched.setattr(series, "queue_standings", asked)
            run(series.note(now=now))
        return found

    monkeypatch.setattr(series, "queue_standings", noted_meanwhile)
    assert run(series.note(now=NOON - MINUTE))
    monkeypatch.setattr(series, "queue_standings", asked)
    with ThreadPoolExecutor(8) as threads:
        tried = [*threads.map(lambda _: [run(series.note(now=minute)) for minute in minutes], range(8))]

    assert sum(map(sum, tried)) >= len(minutes)
    assert [(at, name) for at, name, _ in rows(connection)] == [
        (minute, name) for minute in [NOON - MINUTE, *minutes] for name in ("default", None)
    ]


def test_hours_have_the_highest_numbers_and_are_made_once(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    run = queue.database.run
    for minute, count in ((0, 1), (20, 5), (59, 0), (60, 2), (90, 3)):
        empty(connection)
        run(adding(*[new_job()] * count))
        run(series.note(now=NOON + minute * MINUTE))
    assert rows(connection, "series_depth_hours") == [(NOON, "default", 5), (NOON, None, 5)]

    for name in ("default", None):
        by_hour = [one.depth and one.depth.ready for one in told(queue, name=name, step=HOUR).points]
        assert by_hour == [5, 3], "the hour that runs is told by its minutes"
    assert [one.depth and one.depth.ready for one in told(queue, step=20 * MINUTE).points] == [
        1,
        5,
        0,
        2,
        3,
        None,
    ]
    connection.execute("delete from pgqueue.series_depths where at < %s", [NOON + HOUR])
    connection.commit()
    run(series.note(now=NOON + 2 * HOUR))
    assert [one.depth and one.depth.ready for one in told(queue, step=HOUR).points] == [5, 3], (
        "from the hours"
    )
    assert len(rows(connection, "series_depth_hours")) == 4


def test_hours_in_which_no_worker_ran_are_left_out_and_the_hour_before_them_is_made(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    queue.database.run(series.note(now=NOON))
    queue.database.run(series.note(now=NOON + 30 * HOUR))
    assert rows(connection, "series_depth_hours") == [(NOON, None, 0)]
    found = told(queue, step=HOUR, hours=32).points
    assert [number for number, one in enumerate(found) if one.depth] == [0, 30]


def test_a_clock_that_was_ahead_once_stops_no_hour(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    run = queue.database.run
    for days in (3000, 3001, 0):
        run(series.note(now=NOON + timedelta(days=days)))
    run(adding(new_job()))
    run(series.note(now=NOON + 5 * MINUTE))
    run(series.note(now=NOON + HOUR))

    assert rows(connection, "series_depth_hours")[:2] == [(NOON, "default", 1), (NOON, None, 1)]
    empty(connection)
    run(series.note(now=NOON + HOUR + MINUTE))
    found = [one.depth and one.depth.ready for one in told(queue, step=HOUR, hours=2).points]
    assert found == [1, 1]


def test_of_many_queues_those_with_the_most_jobs_are_told_apart(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "QUEUES", 2)
    run = queue.database.run
    for minute, names in enumerate(["zzzxxy", "aaa", "bbb", "ccc"]):
        empty(connection)
        run(adding(*[new_job(queue=name) for name in names]))
        run(series.note(now=NOON + minute * MINUTE))
    first = [(name, ready) for at, name, ready in rows(connection) if at == NOON]
    assert first == [("x", 2), ("z", 3), (None, 6)]

    connection.execute("delete from pgqueue.series_depths where at = %s", [NOON])
    connection.commit()
    run(series.note(now=NOON + HOUR))

    hours = [(name, ready) for _, name, ready in rows(connection, "series_depth_hours")]
    assert hours == [("a", 3), ("b", 3), (None, 3)], "all together, which had no more than each"


def test_old_minutes_and_hours_are_dropped(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "DELETED_AT_ONCE", 3)
    run = queue.database.run
    for minute in (*range(10), 61):
        run(series.note(now=NOON + minute * MINUTE))
    assert run(series.drop(now=NOON + 48 * HOUR)) == 0
    assert run(series.drop(now=NOON + 48 * HOUR + 5 * MINUTE)) == 5
    assert run(series.drop(now=NOON + timedelta(days=400))) == 6
    assert run(series.drop(now=NOON + timedelta(days=400, hours=1))) == 1
    assert rows(connection) == rows(connection, "series_depth_hours") == []


def test_a_hostile_name_of_a_queue_is_a_name(queue: PgQueue) -> None:
    name = "a'b\"c\\d\n{null} é"
    queue.database.run(adding(new_job(queue=name)))
    queue.database.run(series.note(now=NOON))
    found = told(queue, name=name).points[0].depth
    assert found is not None
    assert found.ready == 1


def test_of_a_large_table_the_numbers_are_marked_as_estimates() -> None:
    standing = QueueStanding(
        queue="mail",
        blocked=0,
        scheduled=0,
        ready=9,
        running=0,
        dead=0,
        oldest_ready=None,
        rate=0.0,
        estimated=("ready",),
    )
    whole, mail = deepest([standing], 9)
    assert whole["estimated"] is mail["estimated"] is True
    assert (whole["queue"], mail["queue"]) == (None, "mail")


def test_a_step_or_a_window_that_makes_no_sense_is_refused(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="is not before until"):
        queue.insight.depths(NOON, NOON)
    with pytest.raises(InvalidOption, match="use whole minutes"):
        queue.insight.depths(step=90)
    with pytest.raises(InvalidOption, match="1,500"):
        queue.insight.depths(timedelta(days=30), step=60)
    with pytest.raises(InvalidOption, match="time zone"):
        queue.insight.depths(datetime(2031, 5, 4))  # noqa: DTZ001 - what is refused


async def test_it_is_asked_by_the_queue_in_both_ways(queue: PgQueue) -> None:
    queue.database.run(taking())
    queue.database.run(series.note())
    plain = queue.insight.depths(step=timedelta(minutes=1))
    awaited = await queue.insight.adepths(plain.since, plain.until, step=timedelta(minutes=1))
    assert [one.depth for one in awaited.points if one.depth] == [
        one.depth for one in plain.points if one.depth
    ]
    assert sum(one.depth is not None for one in plain.points) == 1
