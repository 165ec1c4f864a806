"""What is kept of workers that are gone, and which days of the history it lets go."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.drivers import partitions
from store.samples import LEASE, worker_info

from pgqueue.store.workers import leases, upkeep

DAYS = ("job_history_20200101", "job_history_20200102", "job_history_20200103")
ENDED = """
insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, max_attempts,
                                 outcome, queue, task, args)
select n, day, day, day, 0, 0, 1, 1, 'succeeded', 'default', 'bill', '{}'
from generate_series('2020-01-01 12:00+00'::timestamptz, '2020-01-03 12:00+00', '1 day') with ordinality as days (day, n)
"""
SILENT = """
insert into pgqueue.workers (id, started_at, lease_until, pid, concurrency, host, version)
values (gen_random_uuid(), now() - interval '3 hours', now() - interval '2 hours', 1, 1, 'host', '0')
"""


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection far from UTC, that commits each statement; the history has a job of each of three days long ago."""
    with psycopg.connect(dsn, autocommit=True, options="-c timezone=America/Los_Angeles") as connection:
        connection.execute("select pgqueue.drop_history_days('2100-01-01')")
        connection.execute("select pgqueue.ensure_history_days('2020-01-01', '2020-01-03')")
        connection.execute(ENDED)
        yield connection


def _rows(connection: psycopg.Connection[Any], query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()


@pytest.mark.parametrize(
    "how", ["leave", "leave_without_jobs", "delete from pgqueue.workers", "truncate pgqueue.workers"]
)
def test_whoever_goes_off_the_list_is_remembered_with_what_it_could_run(
    how: str, own: psycopg.Connection[Any]
) -> None:
    crew = [worker_info(queues=["mail", "bulk"]), worker_info()]
    for one in crew:
        ask(own, leases.register(one, LEASE))
    there = _rows(
        own, "select id, started_at, concurrency, host, version, queues from pgqueue.workers order by id"
    )
    with own.transaction():
        if " " in how:
            own.execute(how.encode())
        else:
            for one in crew:
                ask(own, getattr(leases, how)(one.id))
        (now,) = _rows(own, "select now()")

    gone = "select id, started_at, concurrency, host, version, queues from pgqueue.former_workers order by id"
    assert [row[0] for row in there] == sorted(one.id for one in crew)
    assert _rows(own, gone) == there
    assert _rows(own, "select distinct ended_at from pgqueue.former_workers") == [now]


def test_one_that_fell_silent_worked_until_its_lease_ran_out_however_late_it_is_swept_away(
    own: psycopg.Connection[Any],
) -> None:
    own.execute(SILENT)
    (lease,) = _rows(own, "select lease_until from pgqueue.workers")

    with own.transaction():
        ask(own, upkeep.reclaim())

    assert _rows(own, "select ended_at from pgqueue.former_workers") == [lease]


def test_the_list_of_former_workers_names_each_once(own: psycopg.Connection[Any]) -> None:
    again = worker_info()
    for _ in range(2):
        ask(own, leases.register(again, LEASE))
        ask(own, leases.leave(again.id))

    assert _rows(own, "select id from pgqueue.former_workers") == [(again.id,)]


def test_while_a_lake_has_days_only_those_are_dropped(own: psycopg.Connection[Any]) -> None:
    _verify(own, "2020-01-02")

    assert _dropped(own) == 1
    assert _days(own) == {DAYS[0], DAYS[2]}
    assert _dropped(own) == 0
    _verify(own, "2020-01-01")
    assert _dropped(own) == 1
    assert _days(own) == {DAYS[2]}


def test_a_day_with_a_job_that_came_too_late_for_the_lake_is_kept(own: psycopg.Connection[Any]) -> None:
    _verify(own, "2020-01-01")
    own.execute(ENDED)
    _verify(own, "2020-01-02")

    assert _dropped(own) == 1
    assert _days(own) == {DAYS[0], DAYS[2]}


def test_without_a_lake_every_day_before_the_retention_is_dropped(own: psycopg.Connection[Any]) -> None:
    assert _dropped(own) == 2
    assert _days(own) == {DAYS[2]}


def test_former_workers_are_forgotten_with_the_last_day_before_the_retention(
    own: psycopg.Connection[Any],
) -> None:
    for hour in ("2020-01-01 12:00+00", "2020-01-02 23:59+00", "2020-01-03 00:00+00"):
        own.execute(
            "insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version) "
            "values (gen_random_uuid(), '2019-12-31', %s, 1, 'host', '0')",
            [hour],
        )
    left = "select count(*), min(ended_at) = '2020-01-03 00:00+00' from pgqueue.former_workers"
    _verify(own, "2020-01-02")

    _dropped(own)
    assert _rows(own, left) == [(3, False)]
    _verify(own, "2020-01-01")
    _dropped(own)
    assert _rows(own, left) == [(1, True)]


def _verify(connection: psycopg.Connection[Any], day: str) -> None:
    """Say that all is in the lake that has ended by now."""
    connection.execute(
        "insert into pgqueue.lake_days (day, history_rows, dead_rows, checksum, below, lake) "
        "values (%s, 0, 0, 0, txid_current(), '/lake')",
        [day],
    )


def _dropped(connection: psycopg.Connection[Any]) -> int:
    """Keep what ended on the 3rd and after; how many days went."""
    ((count,),) = _rows(connection, "select pgqueue.drop_history_days('2020-01-03')")
    return int(count)


def _days(connection: psycopg.Connection[Any]) -> set[str]:
    return set(partitions(connection)) - {"job_history_default"}
