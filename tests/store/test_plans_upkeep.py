"""Conformance: what keeps the queue in order, on every driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import LiteralString

import psycopg
import pytest
from store.drivers import Ask, every_driver, one_database, partitions
from store.samples import (
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    adding,
    error_of,
    new_job,
    running,
    shown,
    taking,
    worker_info,
)

from pgqueue.store import retention
from pgqueue.store.jobs import control, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Died, Succeeded
from pgqueue.values.retention import Retention

ask, database = every_driver, one_database

DAY = timedelta(days=1)


async def test_jobs_are_promoted_when_they_are_due_and_not_before(ask: Ask) -> None:
    sooner, later = await ask(adding(new_job(delay=MINUTE), new_job(delay=2 * MINUTE)))

    early = await ask(upkeep.poll(now=NOON + MINUTE - SECOND))
    due = await ask(upkeep.poll(now=NOON + MINUTE))

    assert (early.count, early.next_in) == (0, 1.0)
    assert (due.count, due.next_in) == (1, 60.0)
    assert (await ask(shown(sooner))).state is JobState.READY
    assert (await ask(shown(later))).state is JobState.SCHEDULED
    last = await ask(upkeep.poll(now=NOON + 2 * MINUTE))
    assert (last.count, last.next_in) == (1, None)


async def test_a_sequence_tells_whether_anybody_sleeps_and_a_tick_sets_it_right(ask: Ask) -> None:
    one, other = worker_info(), worker_info()
    for info in (one, other):
        await ask(leases.register(info, LEASE, now=NOON))
    assert _sleepers(ask) == 2
    await ask(leases.set_idle(one.id, idle=False))
    assert _sleepers(ask) == 2
    await ask(leases.set_idle(other.id, idle=False))
    assert _sleepers(ask) == 1
    for wrong in (2, 1):  # as two workers that turn over at the same moment may leave it
        await ask(leases.set_idle(one.id, idle=wrong == 1))
        _say_of_sleepers(ask, wrong)
        await ask(upkeep.poll(now=NOON))
        assert _sleepers(ask) == 3 - wrong
    await ask(leases.leave(one.id))
    assert _sleepers(ask) == 1


async def test_history_has_a_partition_for_today_and_the_coming_days(ask: Ask) -> None:
    assert await ask(retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD + 1
    assert await ask(retention.ensure_history_days(now=NOON)) == 0

    days = [NOON.date() + number * DAY for number in range(retention.DAYS_AHEAD + 1)]
    assert {f"job_history_{day:%Y%m%d}" for day in days} <= _partitions(ask)


@contextmanager
def _stranger(ask: Ask, make: LiteralString, drop: LiteralString) -> Iterator[None]:
    """A relation for the length of a block: the other tests of this file use the same database."""
    with psycopg.connect(ask.dsn, autocommit=True) as connection:
        connection.execute(make)
        try:
            yield
        finally:
            connection.execute(drop)


@pytest.mark.parametrize(
    ("make", "drop"),
    [
        ("create table pgqueue.job_history_20310505 (id integer)", "drop table pgqueue.job_history_20310505"),
        (
            "create view pgqueue.job_history_20310505 as select 1 as id",
            "drop view pgqueue.job_history_20310505",
        ),
        (
            (
                "create table pgqueue.job_history_20310505 partition of pgqueue.job_history for values"
                " from ('2031-05-05 00:00+00') to ('2031-05-06 00:00+00');"
                "alter table pgqueue.job_history detach partition pgqueue.job_history_20310505"
            ),
            "drop table pgqueue.job_history_20310505",
        ),
    ],
    ids=["table", "view", "detached"],
)
async def test_a_relation_with_the_name_of_a_days_partition_is_found_and_its_jobs_go_to_the_default_one(
    ask: Ask, make: LiteralString, drop: LiteralString
) -> None:
    """The day was passed over, and no one was told."""
    with _stranger(ask, make, drop):
        await ask(retention.ensure_history_days(now=NOON))
        assert await ask(retention.find_taken_history_days(now=NOON)) == ["pgqueue.job_history_20310505"]

        await ask(_ended_at(NOON))
        await ask(_ended_at(NOON + DAY))
        assert list(_homes(ask).values()) == ["job_history_20310504", "job_history_default"]


async def test_when_the_relation_has_another_name_its_day_gets_its_partition(ask: Ask) -> None:
    with _stranger(
        ask, "create table pgqueue.job_history_20310505 (id integer)", "drop table pgqueue.renamed"
    ):
        assert await ask(retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD
        with psycopg.connect(ask.dsn) as connection:
            connection.execute("alter table pgqueue.job_history_20310505 rename to renamed")

        assert await ask(retention.ensure_history_days(now=NOON)) == 1
        assert await ask(retention.find_taken_history_days(now=NOON)) == []
        await ask(_ended_at(NOON + DAY))
        assert list(_homes(ask).values()) == ["job_history_20310505"]


async def test_records_that_no_day_covered_stay_and_the_other_days_are_made(ask: Ask) -> None:
    """To move them would hold up every job that ends meanwhile."""
    for when in (NOON, NOON + 400 * DAY):
        await ask(_ended_at(when))
    assert set(_homes(ask).values()) == {"job_history_default"}

    assert await ask(retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD
    await ask(_ended_at(NOON))
    await ask(_ended_at(NOON + DAY))

    assert list(_homes(ask).values()) == [*["job_history_default"] * 3, "job_history_20310505"]
    assert await ask(retention.ensure_history_days(now=NOON)) == 0


async def test_records_of_past_days_that_no_day_covered_are_dropped_by_the_retention(ask: Ask) -> None:
    kept = await ask(_ended_at(NOON))
    gone = await ask(_ended_at(NOON - 8 * DAY))

    assert await ask(retention.drop_strays(now=NOON)) == 1

    assert await ask(control.show(gone)) is None
    assert (await ask(shown(kept))).ended_at == NOON
    assert await ask(retention.drop_strays(now=NOON)) == 0


async def test_dead_jobs_are_kept_for_ever_unless_a_retention_is_stored(ask: Ask) -> None:
    dead = []
    for when in (NOON - 3 * DAY, NOON - DAY):
        taken = await ask(running())
        await ask(
            finish.finish(taken.worker_id, [Died(taken, 0.0, "asked", error_of(taken))], keep=True, now=when)
        )
        dead.append(taken.id)
    assert await ask(retention.drop_dead(now=NOON + 3650 * DAY)) == 0
    await ask(retention.keep_for(None, timedelta.max, said_by="test"))
    assert await ask(retention.drop_dead(now=NOON + 3650 * DAY)) == 0

    await ask(retention.keep_for(None, 2 * DAY, said_by="test"))

    assert await ask(retention.drop_dead(now=NOON)) == 1
    assert await ask(control.show(dead[0])) is None
    assert (await ask(shown(dead[1]))).state is JobState.DEAD


async def test_a_retention_is_stored_and_a_program_that_says_nothing_leaves_it_alone(ask: Ask) -> None:
    assert await ask(retention.keep_for(None, None, said_by="one")) == Retention(
        7 * DAY, None, 8_000, changed=False
    )
    assert (await ask(retention.keep_for(365 * DAY, None, said_by="one"))).changed
    kept = await ask(retention.keep_for(None, 30 * DAY, said_by="other"))
    assert kept == Retention(365 * DAY, 30 * DAY, 8_000, changed=True)
    kept = await ask(retention.keep_for(None, None, history_args=0, said_by="other"))
    assert kept == Retention(365 * DAY, 30 * DAY, 0, changed=True)
    assert not (await ask(retention.keep_for(None, None, history_args=0, said_by="one"))).changed
    assert not (await ask(retention.keep_for(365 * DAY, None, said_by="one"))).changed
    await ask(retention.ensure_history_days(now=NOON))
    days = {name for name in _partitions(ask) if "2031" in name}

    await ask(retention.drop_history(now=NOON + 300 * DAY))
    assert days <= _partitions(ask)
    await ask(retention.drop_history(now=NOON + 366 * DAY))
    assert len(days & _partitions(ask)) == len(days) - 1


async def test_a_retention_without_an_end_drops_nothing(ask: Ask) -> None:
    await ask(retention.keep_for(timedelta.max, None, said_by="test"))
    await ask(_ended_at(NOON - 400 * DAY))

    assert await ask(retention.drop_history(now=NOON + 3650 * DAY)) == 0
    assert await ask(retention.drop_strays(now=NOON + 3650 * DAY)) == 0


async def test_a_days_partition_begins_and_ends_at_midnight_utc(ask: Ask) -> None:
    midnight = datetime.combine(NOON.date(), datetime.min.time(), NOON.tzinfo)
    instants = (midnight - SECOND, midnight, midnight + DAY - SECOND, midnight + DAY)
    await ask(retention.ensure_history_days(now=midnight))
    for when in instants:
        await ask(adding(new_job()))
        (taken,) = await ask(taking())
        await ask(finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True, now=when))

    today = f"job_history_{midnight:%Y%m%d}"
    assert list(_homes(ask).values()) == ["job_history_default", today, today, "job_history_20310505"]


async def test_days_wholly_before_the_retention_are_dropped(ask: Ask) -> None:
    await ask(retention.ensure_history_days(now=NOON))
    before = _partitions(ask)
    later = NOON + 3 * DAY

    await ask(retention.keep_for(2 * DAY, None, said_by="test"))

    dropped = await ask(retention.drop_history(now=later))

    gone = before - _partitions(ask)
    assert dropped == len(gone)
    assert {_day(name) for name in gone if "2031" in name} == {date(2031, 5, 4)}
    assert await ask(retention.drop_history(now=later)) == 0


async def test_dropping_history_gives_way_to_who_reads_it(ask: Ask) -> None:
    await ask(retention.ensure_history_days(now=NOON))
    with psycopg.connect(ask.dsn) as reader:
        reader.execute("select from pgqueue.job_history limit 1")
        assert await ask(retention.drop_history(now=NOON + 15 * DAY)) == 0

    assert await ask(retention.drop_history(now=NOON + 15 * DAY)) > 0


@plan
def _ended_at(when: datetime) -> Steps[int]:
    taken = yield from running()
    yield from finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True, now=when)
    return taken.id


def _day(partition: str) -> date:
    return datetime.strptime(f"{partition} +0000", "job_history_%Y%m%d %z").date()


def _sleepers(ask: Ask) -> int:
    with psycopg.connect(ask.dsn) as connection:
        row = connection.execute("select pg_sequence_last_value('pgqueue.idle_workers')").fetchone()
    assert row is not None
    return int(row[0])


def _say_of_sleepers(ask: Ask, value: int) -> None:
    with psycopg.connect(ask.dsn) as connection:
        connection.execute("select setval('pgqueue.idle_workers', %s)", [value])


def _partitions(ask: Ask) -> set[str]:
    with psycopg.connect(ask.dsn) as connection:
        return set(partitions(connection))


def _homes(ask: Ask) -> dict[int, str]:
    """In which partition each job's record lies, by id."""
    with psycopg.connect(ask.dsn) as connection:
        rows = connection.execute("select id, tableoid::regclass::text from pgqueue.job_history order by id")
        return {job_id: name.removeprefix("pgqueue.") for job_id, name in rows}
