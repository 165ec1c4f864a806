"""Tidying waits for no reader and no lock, and nothing waits for tidying.

What is kept of workers that are gone, and which days of the history it lets go.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest
from store.crowd import ask, until_statements_wait
from store.drivers import partitions
from store.samples import LEASE, NOON, adding, new_job, worker_info

from pgqueue.store import retention
from pgqueue.store.jobs import claim, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.verdict import Succeeded

DAY = timedelta(days=1)
BOUNDED = "-c statement_timeout=5s"
"""A test that hangs fails instead."""


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True, options=BOUNDED) as connection:
        yield connection


def test_while_a_reader_has_the_history_open_no_day_is_made_and_other_readers_go_on(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    """As pg_dump does, over midnight."""
    with psycopg.connect(dsn) as reader, ThreadPoolExecutor(1) as threads:
        reader.execute("select from pgqueue.job_history limit 1")

        making = threads.submit(ask, own, retention.ensure_history_days(now=NOON))
        until_statements_wait(dsn, unless=making.done)
        with psycopg.connect(dsn, options="-c lock_timeout=3s") as other:
            other.execute("select from pgqueue.job_history limit 1")

        assert making.result() == 0

    assert ask(own, retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD + 1


def test_a_look_for_missing_days_locks_nothing_where_none_is_missing(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    ask(own, retention.ensure_history_days(now=NOON))
    with psycopg.connect(dsn) as alone:
        alone.execute("lock table pgqueue.job_history, pgqueue.job_history_default in access exclusive mode")

        assert ask(own, retention.ensure_history_days(now=NOON)) == 0


def test_an_advisory_lock_that_any_role_may_hold_stops_nothing(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    with psycopg.connect(dsn) as holder:
        holder.execute("select pg_advisory_lock(hashtext('pgqueue.job_history'))")

        assert ask(own, retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD + 1


def test_an_expired_key_that_a_transaction_has_locked_stays_and_the_others_go(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    own.execute(
        "insert into pgqueue.unique_holds values ('one', 1, '2031-01-01'), ('other', 2, '2031-01-01')"
    )
    with psycopg.connect(dsn) as taker:
        taker.execute("update pgqueue.unique_holds set held_until = '2032-01-01' where unique_key = 'one'")

        assert ask(own, upkeep.release_holds(now=NOON)) == 1
        taker.rollback()

    assert ask(own, upkeep.release_holds(now=NOON)) == 1


def test_days_are_made_beside_two_writers_for_whose_day_there_is_no_partition(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    """After a week without a worker, completions go to the default partition."""
    ask(own, _completing(2))
    stop = threading.Event()

    def write(number: int) -> int:
        count = 0
        with psycopg.connect(dsn, autocommit=True, options=BOUNDED) as writer:
            while not stop.is_set():
                count += ask(writer, _completing(1, queue=f"line {number}"))
        return count

    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write, number) for number in range(2)]
        try:
            made = 0
            while made < retention.DAYS_AHEAD:
                made += ask(own, retention.ensure_history_days(now=NOON))
        finally:
            stop.set()
        written = sum(writer.result() for writer in writers)

    days = {name for name in partitions(own) if "2031" in name}
    assert days == {
        f"job_history_{NOON.date() + number * DAY:%Y%m%d}" for number in range(1, retention.DAYS_AHEAD + 1)
    }
    found = own.execute("select count(*), count(distinct tableoid) from pgqueue.job_history").fetchone()
    assert found == (written + 2, 1)


@plan
def _completing(count: int, *, queue: str = "default") -> Steps[int]:
    yield from adding(*(new_job(queue=queue) for _ in range(count)))
    info = worker_info()
    yield from leases.register(info, DAY, now=NOON)
    taken = yield from claim.claim(info.id, {queue: count}, now=NOON)
    done = yield from finish.finish(info.id, [Succeeded(one, 0.0) for one in taken], keep=True, now=NOON)
    yield from leases.leave_without_jobs(info.id)
    return len(done)


def test_two_sweepers_that_drop_the_same_days_disturb_each_other_in_nothing(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    own.execute("select pgqueue.ensure_history_days('2020-01-01', '2020-01-03')")
    with psycopg.connect(dsn, options=BOUNDED) as first, ThreadPoolExecutor(1) as threads:
        dropped = 0
        while dropped < 3:  # what autovacuum has open is left to the next try
            dropped += ask(first, retention.drop_history())
        second = threads.submit(ask, own, retention.drop_history())
        until_statements_wait(dsn, unless=second.done)
        first.commit()
        assert second.result() in (0, 3)
    assert ask(own, retention.drop_history()) == 0


@pytest.mark.parametrize("style", ["German, YMD", "SQL, DMY", "Postgres, MDY"])
def test_days_begin_at_midnight_utc_in_every_date_style(own: psycopg.Connection[Any], style: str) -> None:
    own.execute(
        "select set_config('datestyle', %s, false), set_config('timezone', 'America/Los_Angeles', false)",
        [style],
    )

    assert ask(own, retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD + 1

    own.execute("set datestyle = 'ISO'; set timezone = 'UTC'")
    bounds = own.execute(
        "select pg_get_expr(relpartbound, oid) from pg_class where relname = 'job_history_20310504'"
    ).fetchone()
    assert bounds == ("FOR VALUES FROM ('2031-05-04 00:00:00+00') TO ('2031-05-05 00:00:00+00')",)


def test_rows_of_a_past_day_get_a_partition_for_the_lake(own: psycopg.Connection[Any]) -> None:
    own.execute(
        "insert into pgqueue.job_history (id, run_at, created_at, finished_at, collisions, priority, attempts, "
        "max_attempts, outcome, queue, task, args) "
        "values (1, now(), now(), '2020-01-01 12:00+00', 0, 0, 1, 1, 'succeeded', 'default', 't', '{}')"
    )

    assert own.execute("select pgqueue.gather_history_day('2020-01-01')").fetchone() == (True,)

    home = own.execute("select tableoid::regclass::text from pgqueue.job_history").fetchone()
    assert home == (f"pgqueue.job_history_{date(2020, 1, 1):%Y%m%d}",)


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
def per_plan(dsn: str) -> Iterator[psycopg.Connection[Any]]:
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
    how: str, per_plan: psycopg.Connection[Any]
) -> None:
    crew = [worker_info(queues=["mail", "bulk"]), worker_info()]
    for one in crew:
        ask(per_plan, leases.register(one, LEASE))
    there = _rows(
        per_plan, "select id, started_at, concurrency, host, version, queues from pgqueue.workers order by id"
    )
    with per_plan.transaction():
        if " " in how:
            per_plan.execute(how.encode())
        else:
            for one in crew:
                ask(per_plan, getattr(leases, how)(one.id))
        (now,) = _rows(per_plan, "select now()")

    gone = "select id, started_at, concurrency, host, version, queues from pgqueue.former_workers order by id"
    assert [row[0] for row in there] == sorted(one.id for one in crew)
    assert _rows(per_plan, gone) == there
    assert _rows(per_plan, "select distinct ended_at from pgqueue.former_workers") == [now]


def test_one_that_fell_silent_worked_until_its_lease_ran_out_however_late_it_is_swept_away(
    per_plan: psycopg.Connection[Any],
) -> None:
    per_plan.execute(SILENT)
    (lease,) = _rows(per_plan, "select lease_until from pgqueue.workers")

    with per_plan.transaction():
        ask(per_plan, upkeep.reclaim())

    assert _rows(per_plan, "select ended_at from pgqueue.former_workers") == [lease]


def test_the_list_of_former_workers_names_each_once(per_plan: psycopg.Connection[Any]) -> None:
    again = worker_info()
    for _ in range(2):
        ask(per_plan, leases.register(again, LEASE))
        ask(per_plan, leases.leave(again.id))

    assert _rows(per_plan, "select id from pgqueue.former_workers") == [(again.id,)]


def test_while_a_lake_has_days_only_those_are_dropped(per_plan: psycopg.Connection[Any]) -> None:
    _verify(per_plan, "2020-01-02")

    assert _dropped(per_plan) == 1
    assert _days(per_plan) == {DAYS[0], DAYS[2]}
    assert _dropped(per_plan) == 0
    _verify(per_plan, "2020-01-01")
    assert _dropped(per_plan) == 1
    assert _days(per_plan) == {DAYS[2]}


def test_a_day_with_a_job_that_came_too_late_for_the_lake_is_kept(per_plan: psycopg.Connection[Any]) -> None:
    _verify(per_plan, "2020-01-01")
    per_plan.execute(ENDED)
    _verify(per_plan, "2020-01-02")

    assert _dropped(per_plan) == 1
    assert _days(per_plan) == {DAYS[0], DAYS[2]}


def test_without_a_lake_every_day_before_the_retention_is_dropped(per_plan: psycopg.Connection[Any]) -> None:
    assert _dropped(per_plan) == 2
    assert _days(per_plan) == {DAYS[2]}


def test_former_workers_are_forgotten_with_the_last_day_before_the_retention(
    per_plan: psycopg.Connection[Any],
) -> None:
    for hour in ("2020-01-01 12:00+00", "2020-01-02 23:59+00", "2020-01-03 00:00+00"):
        per_plan.execute(
            "insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version) "
            "values (gen_random_uuid(), '2019-12-31', %s, 1, 'host', '0')",
            [hour],
        )
    left = "select count(*), min(ended_at) = '2020-01-03 00:00+00' from pgqueue.former_workers"
    _verify(per_plan, "2020-01-02")

    _dropped(per_plan)
    assert _rows(per_plan, left) == [(3, False)]
    _verify(per_plan, "2020-01-01")
    _dropped(per_plan)
    assert _rows(per_plan, left) == [(1, True)]


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
