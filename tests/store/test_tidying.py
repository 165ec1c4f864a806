"""Tidying waits for no reader and no lock, and nothing waits for tidying."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest
from store.crowd import ask, until_statements_wait
from store.drivers import partitions
from store.samples import NOON, adding, new_job, worker_info

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

        making = threads.submit(ask, own, upkeep.ensure_history_days(now=NOON))
        until_statements_wait(dsn, unless=making.done)
        with psycopg.connect(dsn, options="-c lock_timeout=3s") as other:
            other.execute("select from pgqueue.job_history limit 1")

        assert making.result() == 0

    assert ask(own, upkeep.ensure_history_days(now=NOON)) == upkeep.DAYS_AHEAD + 1


def test_a_look_for_missing_days_locks_nothing_where_none_is_missing(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    ask(own, upkeep.ensure_history_days(now=NOON))
    with psycopg.connect(dsn) as alone:
        alone.execute("lock table pgqueue.job_history, pgqueue.job_history_default in access exclusive mode")

        assert ask(own, upkeep.ensure_history_days(now=NOON)) == 0


def test_an_advisory_lock_that_any_role_may_hold_stops_nothing(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    with psycopg.connect(dsn) as holder:
        holder.execute("select pg_advisory_lock(hashtext('pgqueue.job_history'))")

        assert ask(own, upkeep.ensure_history_days(now=NOON)) == upkeep.DAYS_AHEAD + 1


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
            while made < upkeep.DAYS_AHEAD:
                made += ask(own, upkeep.ensure_history_days(now=NOON))
        finally:
            stop.set()
        written = sum(writer.result() for writer in writers)

    days = {name for name in partitions(own) if "2031" in name}
    assert days == {
        f"job_history_{NOON.date() + number * DAY:%Y%m%d}" for number in range(1, upkeep.DAYS_AHEAD + 1)
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
            dropped += ask(first, upkeep.drop_history())
        second = threads.submit(ask, own, upkeep.drop_history())
        until_statements_wait(dsn, unless=second.done)
        first.commit()
        assert second.result() in (0, 3)
    assert ask(own, upkeep.drop_history()) == 0


@pytest.mark.parametrize("style", ["German, YMD", "SQL, DMY", "Postgres, MDY"])
def test_days_begin_at_midnight_utc_in_every_date_style(own: psycopg.Connection[Any], style: str) -> None:
    own.execute(
        "select set_config('datestyle', %s, false), set_config('timezone', 'America/Los_Angeles', false)",
        [style],
    )

    assert ask(own, upkeep.ensure_history_days(now=NOON)) == upkeep.DAYS_AHEAD + 1

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
