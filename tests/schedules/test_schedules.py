"""Schedules in the database: each tick once, also when jobs, rows and the clock change; on every driver."""

import threading
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, UniqueViolation
from store.crowd import ask as ask_one
from store.drivers import Ask, every_driver, one_database
from store.samples import MINUTE, NOON, SECOND, new_job, shown

from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import control
from pgqueue.store.schedules import schedules, ticks
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import JobState, NewJob
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.schedules.schedule import Applied, NewSchedule, Schedule, ScheduleChange, Timing

ask, database = every_driver, one_database


def every_minute(
    name: str = "bills", *, module: str | None = None, job: NewJob | None = None, **timing: Any
) -> NewSchedule:
    options: dict[str, Any] = {"cron": "* * * * *"} | timing
    return NewSchedule(name=name, job=job or new_job(), timing=Timing(**options), module=module)


async def get(ask: Ask, name: str = "bills") -> Schedule:
    (found,) = await ask(schedules.listed(name=name))
    return found


async def add(ask: Ask, *added: NewSchedule, now: datetime = NOON) -> None:
    for one in added:
        assert await ask(schedules.put(one, replace=False, now=now)) is ScheduleChange.ADDED


async def test_a_tick_adds_a_job_once_and_the_next_one_follows(ask: Ask) -> None:
    job = new_job(args=b'{"order": 7}', queue="mail", priority=3, max_attempts=4, meta=b'{"tag": "x"}')
    await add(ask, every_minute(job=job))

    assert (await ask(ticks.fire_due(now=NOON + 59 * SECOND))).jobs == []
    (job_id,) = (await ask(ticks.fire_due(now=NOON + 61 * SECOND))).jobs
    assert (await ask(ticks.fire_due(now=NOON + 62 * SECOND))).jobs == []
    (second,) = (await ask(ticks.fire_due(now=NOON + 120 * SECOND))).jobs

    fired = await ask(shown(job_id))
    assert (fired.task, fired.args, fired.queue, fired.priority, fired.max_attempts) == (
        "bill",
        {"order": 7},
        "mail",
        3,
        4,
    )
    assert (fired.state, fired.run_at) == (JobState.READY, NOON + 61 * SECOND)
    assert fired.meta is not None
    assert fired.meta["tag"] == "x"
    assert fired.meta["pgqueue_schedule"] == "bills"
    assert datetime.fromisoformat(fired.meta["pgqueue_scheduled_for"]) == NOON + MINUTE
    runs = await ask(ticks.runs("bills"))
    assert [(run.at, run.job_id, run.job_state, run.kind) for run in runs] == [
        (NOON + 2 * MINUTE, second, "ready", "tick"),
        (NOON + MINUTE, job_id, "ready", "tick"),
    ]
    found = await get(ask)
    assert (found.last, found.next, found.state) == (NOON + 2 * MINUTE, NOON + 3 * MINUTE, "active")


async def test_a_poll_tells_when_the_next_schedule_is_due(ask: Ask) -> None:
    assert (await ask(upkeep.poll(now=NOON))).schedule_in is None
    await add(ask, every_minute(), every_minute("later", cron="@daily"))
    assert (await ask(upkeep.poll(now=NOON + 20 * SECOND))).schedule_in == 40.0
    await ask(schedules.pause("bills", "ann"))
    later = (await ask(upkeep.poll(now=NOON))).schedule_in
    assert later == 12 * 3600


async def test_jitter_makes_the_job_wait_and_not_the_tick(ask: Ask) -> None:
    await add(ask, every_minute(jitter=timedelta(minutes=30)))
    (job_id,) = (await ask(ticks.fire_due(now=NOON + MINUTE))).jobs
    job = await ask(shown(job_id))
    assert job.state is JobState.SCHEDULED
    assert job.run_at == NOON + MINUTE + every_minute(jitter=timedelta(minutes=30)).timing.delay(
        "bills", NOON + MINUTE
    )
    assert (await get(ask)).next == NOON + 2 * MINUTE


async def test_a_tick_that_is_noted_does_not_fire_again_though_its_job_and_its_schedule_are_gone(
    ask: Ask,
) -> None:
    """The clock is set back, the schedule is removed and added again, its job is deleted: the tick is the row."""
    await add(ask, every_minute())
    (job_id,) = (await ask(ticks.fire_due(now=NOON + MINUTE))).jobs
    await ask(control.cancel(job_id))
    assert await ask(schedules.remove("bills"))
    await add(ask, every_minute())

    assert (await ask(ticks.fire_due(now=NOON + MINUTE))).jobs == []
    assert len((await ask(ticks.fire_due(now=NOON + 2 * MINUTE))).jobs) == 1


async def test_a_clock_that_is_set_back_fires_nothing_again(ask: Ask) -> None:
    await add(ask, every_minute())
    assert len((await ask(ticks.fire_due(now=NOON + 2 * MINUTE))).jobs) == 1 + 1
    for moment in range(-600, 121, 30):
        assert (await ask(ticks.fire_due(now=NOON + moment * SECOND))).jobs == []
    assert len((await ask(ticks.fire_due(now=NOON + 3 * MINUTE))).jobs) == 1


async def test_another_rule_invents_no_ticks_of_the_past(ask: Ask) -> None:
    await add(ask, every_minute(cron="@daily", missed="all"))
    later = NOON + timedelta(hours=3) + SECOND
    changed = every_minute(cron="*/10 * * * *", missed="all")
    assert await ask(schedules.put(changed, replace=True, now=later)) is ScheduleChange.CHANGED
    assert await ask(schedules.put(changed, replace=True, now=later)) is ScheduleChange.UNCHANGED
    assert (await ask(ticks.fire_due(now=later))).jobs == []
    assert (await get(ask)).next == NOON + timedelta(hours=3, minutes=10)


async def test_what_a_module_declares_is_applied_and_what_others_own_stays(ask: Ask) -> None:
    await add(ask, every_minute("of a customer"))
    theirs = every_minute("theirs", module="other")
    assert await ask(schedules.apply([theirs], ["other"], now=NOON)) == Applied(added=("theirs",))
    mine, gone = every_minute("mine", module="shop"), every_minute("gone", module="shop")
    assert await ask(schedules.apply([mine, gone], ["shop", "lib"], now=NOON)) == Applied(
        added=("gone", "mine")
    )
    changed = every_minute("mine", module="shop", overlap="skip")
    assert await ask(schedules.apply([changed], ["shop"], now=NOON)) == Applied(
        changed=("mine",), removed=("gone",)
    )
    assert await ask(schedules.apply([changed], ["shop"], now=NOON)) == Applied()
    assert [one.name for one in await ask(schedules.listed())] == ["mine", "of a customer", "theirs"]


async def test_a_one_off_declared_in_code_does_not_fire_again_when_it_is_applied_later(ask: Ask) -> None:
    once = every_minute("once", module="shop", cron=None, at=NOON + MINUTE)
    await ask(schedules.apply([once], ["shop"], now=NOON))
    assert len((await ask(ticks.fire_due(now=NOON + MINUTE))).jobs) == 1
    await ask(schedules.apply([once], ["shop"], now=NOON + 5 * MINUTE))
    assert (await ask(ticks.fire_due(now=NOON + 5 * MINUTE))).jobs == []
    assert (await get(ask, "once")).state == "ended"


@pytest.mark.parametrize(("missed", "count"), [("skip", 2), ("latest", 2), ("all", 31)])
async def test_after_a_pause_missed_ticks_follow_the_rule(ask: Ask, missed: str, count: int) -> None:
    await add(ask, every_minute(missed=missed))
    assert await ask(schedules.pause("bills", "ann", now=NOON))
    assert not await ask(schedules.pause("bills", "bob", now=NOON + SECOND))
    found = await get(ask)
    assert (found.state, found.paused_by, found.paused_at, found.next) == ("paused", "ann", NOON, None)
    later = NOON + 31 * MINUTE
    assert (await ask(ticks.fire_due(now=later))).jobs == []
    assert await ask(schedules.resume("bills", now=later))
    assert not await ask(schedules.resume("bills", now=later))
    assert len((await ask(ticks.fire_due(now=later))).jobs) == count


async def test_a_manual_run_at_the_instant_of_a_tick_does_not_take_its_place(ask: Ask) -> None:
    await add(ask, every_minute())
    await ask(ticks.fire("bills", now=NOON + MINUTE))
    assert len((await ask(ticks.fire_due(now=NOON + MINUTE))).jobs) == 1


async def test_backfill_fires_what_has_not_fired_in_order(ask: Ask) -> None:
    await add(ask, every_minute(), now=NOON - 2 * MINUTE)
    assert len((await ask(ticks.fire_due(now=NOON - MINUTE))).jobs) == 1
    filled = await ask(ticks.backfill("bills", NOON - 4 * MINUTE, NOON, now=NOON))
    assert [run.at - NOON for run in filled] == [-4 * MINUTE, -3 * MINUTE, -2 * MINUTE, 0 * MINUTE]
    assert sorted(run.job_id or 0 for run in filled) == [run.job_id for run in filled]
    assert await ask(ticks.backfill("bills", NOON - 4 * MINUTE, NOON, now=NOON)) == []
    assert (await ask(ticks.fire_due(now=NOON))).jobs == []


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        (NOON, NOON - MINUTE, "use a stretch that ends by now"),
        (NOON, NOON + MINUTE, "use a stretch that ends by now"),
        (NOON - timedelta(days=8), NOON, "more than 10,000 ticks"),
    ],
)
async def test_a_backfill_that_makes_no_sense_is_refused(
    ask: Ask, start: datetime, end: datetime, says: str
) -> None:
    await add(ask, every_minute())
    with pytest.raises(InvalidOption, match=says):
        await ask(ticks.backfill("bills", start, end, now=NOON))


async def test_overlap_skip_fires_no_tick_while_a_job_lives(ask: Ask) -> None:
    await add(ask, every_minute(overlap="skip"))
    (job_id,) = (await ask(ticks.fire_due(now=NOON + MINUTE))).jobs
    assert (await ask(ticks.fire_due(now=NOON + 2 * MINUTE))).jobs == []
    await ask(control.cancel(job_id))
    assert len((await ask(ticks.fire_due(now=NOON + 3 * MINUTE))).jobs) == 1
    states = [run.state for run in await ask(ticks.runs("bills"))]
    assert states == ["fired", "skipped", "fired"]
    assert (
        len(await ask(ticks.backfill("bills", NOON + 2 * MINUTE, NOON + 2 * MINUTE, now=NOON + 4 * MINUTE)))
        == 1
    )


async def test_overlap_queue_fires_ticks_one_after_the_other(ask: Ask) -> None:
    await add(ask, every_minute(overlap="queue", missed="all"))
    (first,) = (await ask(ticks.fire_due(now=NOON + 3 * MINUTE))).jobs
    assert (await ask(ticks.fire_due(now=NOON + 3 * MINUTE + SECOND))).jobs == []
    assert [run.state for run in await ask(ticks.runs("bills"))] == ["waiting", "waiting", "fired"]
    await ask(control.cancel(first))
    assert (await ask(upkeep.poll(now=NOON + 3 * MINUTE + SECOND))).schedule_in == 1.0
    (second,) = (await ask(ticks.fire_due(now=NOON + 3 * MINUTE + 2 * SECOND))).jobs
    await ask(control.cancel(second))
    (third,) = (await ask(ticks.fire_due(now=NOON + 3 * MINUTE + 3 * SECOND))).jobs
    assert [(await ask(shown(job_id))).meta["pgqueue_scheduled_for"][14:16] for job_id in (first, second, third)] == [  # type: ignore[index]
        "01", "02", "03"
    ]  # fmt: skip
    await ask(control.cancel(third))
    assert (await ask(ticks.fire_due(now=NOON + 3 * MINUTE + 4 * SECOND))).jobs == []
    assert (await get(ask)).next == NOON + 4 * MINUTE


async def test_the_queue_of_ticks_is_bounded(ask: Ask) -> None:
    await add(ask, every_minute(cron=None, every=SECOND, overlap="queue", missed="all", missed_limit=1000))
    for _ in range(3):  # a look decides on 100 ticks of a schedule
        await ask(ticks.fire_due(now=NOON + 300 * SECOND))
    states = [run.state for run in await ask(ticks.runs("bills", limit=1000))]
    assert {state: states.count(state) for state in set(states)} == {
        "fired": 1,
        "waiting": 100,
        "skipped": 199,
    }


async def test_a_look_decides_on_a_bounded_number_of_ticks_and_says_that_there_are_more(ask: Ask) -> None:
    every_second: dict[str, Any] = {"cron": None, "every": SECOND, "missed": "all", "missed_limit": 1000}
    await add(ask, *(every_minute(f"schedule {number}", **every_second) for number in range(12)))
    first = await ask(ticks.fire_due(now=NOON + 101 * SECOND))
    assert (len(first.jobs), first.more) == (1000, True)
    total, fired = 1000, first
    while fired.jobs:
        fired = await ask(ticks.fire_due(now=NOON + 101 * SECOND))
        total += len(fired.jobs)
    assert (total, fired.more) == (12 * 101, False)


async def test_removing_a_schedule_forgets_what_waits(ask: Ask) -> None:
    await add(ask, every_minute(overlap="queue"))
    await ask(ticks.fire_due(now=NOON + MINUTE))
    await ask(ticks.fire_due(now=NOON + 2 * MINUTE))
    assert await ask(schedules.remove("bills"))
    assert not await ask(schedules.remove("bills"))
    assert [run.state for run in await ask(ticks.runs("bills"))] == ["skipped", "fired"]


async def test_a_taken_unique_key_skips_the_tick(ask: Ask) -> None:
    job = new_job(unique_key="one", unique=Unique())
    await add(ask, every_minute(job=job))
    (first,) = (await ask(ticks.fire_due(now=NOON + MINUTE))).jobs
    assert (await ask(ticks.fire_due(now=NOON + 2 * MINUTE))).jobs == []
    assert await ask(ticks.fire("bills", now=NOON + 2 * MINUTE + SECOND)) is None
    await ask(control.cancel(first))
    assert len((await ask(ticks.fire_due(now=NOON + 3 * MINUTE))).jobs) == 1


async def test_a_schedule_without_a_tick_to_come_is_refused(ask: Ask) -> None:
    with pytest.raises(InvalidOption, match="has no tick after"):
        await ask(schedules.put(every_minute(cron=None, at=NOON), replace=False, now=NOON))


async def test_ticks_are_dropped_after_30_days_and_those_that_wait_stay(ask: Ask) -> None:
    await add(ask, every_minute(overlap="queue"))
    await ask(ticks.fire_due(now=NOON + MINUTE))
    await ask(ticks.fire_due(now=NOON + 2 * MINUTE))
    assert await ask(upkeep.drop_ticks(now=NOON + timedelta(days=29))) == 0
    assert await ask(upkeep.drop_ticks(now=NOON + timedelta(days=31))) == 1
    assert [run.state for run in await ask(ticks.runs("bills"))] == ["waiting"]


HOSTILE = {
    "an expression that does not parse": "cron = 'every day'",
    "an expression without a tick": "cron = '0 0 31 2 *'",
    "no such zone": "timezone = 'Mars/Base'",
    "a zone that is a path": "timezone = '../../etc/passwd'",
    "no such overlap": "overlap = 'perhaps'",
    "no such rule for missed ticks": "missed = 'some'",
    "an end before the start": "start_at = now(), end_at = now() - interval '1 day'",
    "a limit out of range": "missed_limit = -1",
    "months": "cron = null, every = interval '1 month 0.0000001 seconds', gap = 'skip'",
}


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE)
def test_a_row_that_makes_no_sense_is_set_aside_and_the_others_fire(
    connection: psycopg.Connection[Any], harm: str
) -> None:
    names = [f"schedule {number}" for number in range(5)]
    for name in names:
        ask_one(connection, schedules.put(every_minute(name), replace=False, now=NOON))
    connection.execute(f"update pgqueue.schedules set {harm} where name = 'schedule 2'".encode())
    connection.execute("update pgqueue.schedules set settled = %s, next_at = %s", [NOON, NOON + MINUTE])

    fired = ask_one(connection, ticks.fire_due(now=NOON + MINUTE))

    assert len(fired.jobs) == 4
    assert [name for name, _ in fired.set_aside] == ["schedule 2"]
    (found,) = ask_one(connection, schedules.listed(name="schedule 2"))
    assert (found.state, found.failed_at) == ("set aside", NOON + MINUTE)
    assert found.error
    again = ask_one(connection, ticks.fire_due(now=NOON + 2 * MINUTE))
    assert (len(again.jobs), again.set_aside) == (4, [])

    connection.execute("update pgqueue.schedules set cron = '* * * * *', every = null, timezone = 'UTC', overlap = 'allow', gap = null, "
                 "missed = 'latest', start_at = null, end_at = null, missed_limit = 1 where name = 'schedule 2'")  # fmt: skip
    assert ask_one(connection, schedules.listed(name="schedule 2"))[0].error is None


def test_jobs_that_the_database_refuses_set_their_schedule_aside_and_the_others_fire(
    connection: psycopg.Connection[Any],
) -> None:
    for number in range(3):
        job = new_job(f"task{number}")
        ask_one(
            connection, schedules.put(every_minute(f"schedule {number}", job=job), replace=False, now=NOON)
        )
    connection.execute(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin if new.task = 'task1' then raise 'not this one'; end if; return new; end $$;"
        "create trigger refuse before insert on pgqueue.jobs for each row execute function refuse()"
    )
    fired = ask_one(connection, ticks.fire_due(now=NOON + MINUTE))
    assert len(fired.jobs) == 2
    assert fired.set_aside == [("schedule 1", "not this one")]
    assert ask_one(connection, ticks.runs("schedule 1")) == []
    with pytest.raises(InvalidOption, match="not this one"):
        ask_one(connection, ticks.fire("schedule 1", now=NOON + MINUTE))

    connection.execute("drop trigger refuse on pgqueue.jobs")
    assert ask_one(connection, schedules.resume("schedule 1", now=NOON + MINUTE))
    assert len(ask_one(connection, ticks.fire_due(now=NOON + MINUTE)).jobs) == 1


@pytest.mark.parametrize(
    "harm",
    [
        "next_at = 'infinity'",
        "settled = '-infinity'",
        "jitter = '100 years'",
        "every = '0 seconds', cron = null",
        "start_at = '20000-01-01'",
        "cron = null",
        "priority = 101",
    ],
)
def test_what_python_cannot_read_is_refused_by_the_table(
    connection: psycopg.Connection[Any], harm: str
) -> None:
    ask_one(connection, schedules.put(every_minute(), replace=False, now=NOON))
    with pytest.raises(CheckViolation):
        connection.execute(f"update pgqueue.schedules set {harm}".encode())


def test_workers_that_look_at_once_fire_each_tick_once(dsn: str, connection: psycopg.Connection[Any]) -> None:
    for number in range(60):
        ask_one(connection, schedules.put(every_minute(f"schedule {number}"), replace=False, now=NOON))
    start, fired = threading.Barrier(6), list[int]()

    def look() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            start.wait()
            for _ in range(6):
                fired.extend(ask_one(own, ticks.fire_due(limit=7, now=NOON + MINUTE)).jobs)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fired.extend(ask_one(connection, ticks.fire_due(now=NOON + MINUTE)).jobs)
    assert len(fired) == len(set(fired)) == 60
    assert connection.execute("select count(*) from pgqueue.jobs").fetchone() == (60,)


def test_sql_adds_and_changes_a_schedule(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "select pgqueue.schedule('nightly', 'report', '{\"n\": 1}', cron => '0 3 * * *', timezone => 'Europe/London')"
    )
    connection.execute("select pgqueue.schedule('nightly', 'report', cron => '0 4 * * *', overlap => 'skip')")
    connection.execute("select pgqueue.schedule('often', 'report', every => '10 seconds')")
    (found,) = ask_one(connection, schedules.listed(name="nightly"))
    assert (found.rule, found.args, found.state) == ("0 4 * * * UTC", {}, "active")
    assert ask_one(connection, ticks.fire_due()).jobs == []  # no tick of the past
    assert ask_one(connection, ticks.fire_due(now=ask_one(connection, control.clock()) + 11 * SECOND)).jobs


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("'n', 't'", "exactly one of cron, every and at"),
        ("'n', 't', cron => 'nonsense'", "cron => 'nonsense'"),
        ("'n', 't', cron => '@daily', every => '1 minute'", "exactly one of"),
        ("'n', 't', cron => '@daily', timezone => 'Mars/Base'", "Mars/Base"),
        ("'n', 't', cron => '@daily', missed => 'some'", "missed => 'some'"),
        ("'n', 't', cron => '@daily', overlap => 'no'", "overlap => 'no'"),
        ("'n', 't', at => '2001-01-01'", "has passed"),
        ("'n', 'a b', cron => '@daily'", "white space"),
        ("'', 't', cron => '@daily'", "check"),
        ("'n', 't', every => '0.1 seconds'", "check"),
    ],
)
def test_sql_is_told_what_it_got_wrong(connection: psycopg.Connection[Any], call: str, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says):
        connection.execute(f"select pgqueue.schedule({call})".encode())


def test_sql_does_not_change_what_code_declares(connection: psycopg.Connection[Any]) -> None:
    ask_one(connection, schedules.apply([every_minute("nightly", module="shop.jobs")], ["shop.jobs"]))
    with pytest.raises(UniqueViolation, match=r"shop\.jobs"):
        connection.execute("select pgqueue.schedule('nightly', 't', cron => '@daily')")


def test_another_rule_by_sql_invents_no_ticks_of_the_past(connection: psycopg.Connection[Any]) -> None:
    now = ask_one(connection, control.clock())
    ask_one(
        connection,
        schedules.put(
            every_minute(cron="@yearly", missed="all"), replace=False, now=now - timedelta(hours=2)
        ),
    )
    connection.execute("update pgqueue.schedules set cron = '* * * * *'")
    assert ask_one(connection, ticks.fire_due()).jobs == []
