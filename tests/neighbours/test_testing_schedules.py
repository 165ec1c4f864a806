"""Schedules as an app uses them: the same in memory, on PostgreSQL, and in a test's own transaction."""

from datetime import datetime
from typing import Any

import psycopg
import pytest
from neighbours.places import HOUR, MINUTE, NOON, SECOND, a_clock, a_database, every_place, one_database

from pgqueue import Context, JobState, PgQueue, Task
from pgqueue.errors import InvalidOption, PayloadNotEncodable, UnknownQueue, UnknownSchedule
from pgqueue.testing import Clock, assert_ticks, drain, in_memory
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.payloads.codec import Codec, JobPart
from pgqueue.values.schedules.rule import ClockChange
from pgqueue.values.schedules.schedule import Applied, ScheduleChange

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


@pytest.fixture
def seen() -> list[tuple[str, datetime | None]]:
    """What tasks were called with, and for which tick."""
    return []


@pytest.fixture
def report(queue: PgQueue, seen: list[tuple[str, datetime | None]]) -> Task[[str], None]:
    """A task that notes its argument and its tick."""

    @queue.task(name="report", queue="reports", priority=2)
    def report(ctx: Context, customer: str) -> None:
        seen.append((customer, ctx.scheduled_for))

    return report


def test_a_schedule_made_at_run_time_runs_its_task_with_its_arguments(
    queue: PgQueue, report: Task[[str], None], seen: list[Any]
) -> None:
    queue.schedules.add("of ann", report.call("ann"), "*/5 * * * *", timezone="Europe/London")
    queue.schedules.add("of bob", report.using(priority=9).call("bob"), every=2 * MINUTE, start=NOON + MINUTE)
    assert drain(queue) == []
    drain(queue, now=NOON + 5 * MINUTE)
    assert seen == [("bob", NOON + 5 * MINUTE), ("ann", NOON + 5 * MINUTE)]
    assert drain(queue, now=NOON + 5 * MINUTE) == []
    report.enqueue("carl")
    drain(queue)
    assert seen[-1] == ("carl", None)


def test_what_code_declares_is_applied(queue: PgQueue) -> None:
    @queue.schedule("0 3 * * *", name="nightly for eu", arguments={"region": "eu"})
    @queue.schedule("0 3 * * *", name="nightly for us", arguments={"region": "us"})
    @queue.task(name="nightly")
    def nightly(region: str) -> None: ...

    @queue.schedule(every=10 * SECOND)
    async def often() -> None: ...

    assert isinstance(often, Task)
    names = ("nightly for eu", "nightly for us", often.name)
    assert queue.schedules.apply() == Applied(added=tuple(sorted(names)))
    assert queue.schedules.apply() == Applied()
    found = queue.schedules.get("nightly for us")
    assert (found.task, found.args, found.module, found.next) == (
        "nightly",
        {"region": "us"},
        __name__,
        NOON + 15 * HOUR,
    )
    assert [one.name for one in queue.schedules.find(task="nightly")] == ["nightly for eu", "nightly for us"]
    assert [one.name for one in queue.schedules.find(after="nightly for eu", limit=1)] == ["nightly for us"]


def test_what_code_no_longer_declares_is_removed_and_what_others_own_stays(
    queue: PgQueue, report: Task[[str], None]
) -> None:
    queue.schedules.add("of ann", report.call("ann"), "@daily")
    queue.schedule("@daily", name="gone", arguments={"customer": "x"})(report)
    assert queue.schedules.apply().added == ("gone",)
    del queue._declared["gone"]  # noqa: SLF001 - as the next release declares it no more
    assert queue.schedules.apply() == Applied(removed=("gone",))
    assert [one.name for one in queue.schedules.find()] == ["of ann"]


def test_names_that_are_taken_are_said(queue: PgQueue, report: Task[[str], None]) -> None:
    queue.schedules.add("of ann", report.call("ann"), "@daily")
    with pytest.raises(InvalidOption, match="exists already"):
        queue.schedules.add("of ann", report.call("ann"), "@daily")
    queue.schedule("@daily", name="of ann", arguments={"customer": "x"})(report)
    assert queue.schedules.apply() == Applied(taken=("of ann",))
    with pytest.raises(InvalidOption, match="declared twice"):
        queue.schedule("@daily", name="of ann")(report)


def test_put_changes_and_keeps_the_place(
    queue: PgQueue, clock: Clock, report: Task[[str], None], seen: list[Any]
) -> None:
    assert queue.schedules.put("of ann", report.call("ann"), "* * * * *") is ScheduleChange.ADDED
    with clock.at(NOON + MINUTE):
        assert queue.schedules.put("of ann", report.call("anna"), "* * * * *") is ScheduleChange.CHANGED
        assert queue.schedules.put("of ann", report.call("anna"), "* * * * *") is ScheduleChange.UNCHANGED
        drain(queue)
        assert seen == [("anna", NOON + MINUTE)]
        assert queue.schedules.put("of ann", report.call("anna"), "*/30 * * * *") is ScheduleChange.CHANGED
    assert queue.schedules.get("of ann").next == NOON + 30 * MINUTE


def test_pausing_says_who_and_when(queue: PgQueue, report: Task[[str], None], seen: list[Any]) -> None:
    queue.schedules.add("of ann", report.call("ann"), "*/10 * * * *", missed="skip")
    assert queue.schedules.pause("of ann", by="bob")
    assert not queue.schedules.pause("of ann")
    found = queue.schedules.get("of ann")
    assert (found.state, found.paused_at, found.paused_by, found.next) == ("paused", NOON, "bob", None)
    assert drain(queue, now=NOON + 25 * MINUTE) == []
    assert queue.schedules.resume("of ann")
    assert not queue.schedules.resume("of ann")
    assert drain(queue, now=NOON + 25 * MINUTE) == []
    drain(queue, now=NOON + 30 * MINUTE)
    assert seen == [("ann", NOON + 30 * MINUTE)]


def test_firing_now_and_backfilling_are_listed(
    queue: PgQueue, report: Task[[str], None], seen: list[Any]
) -> None:
    queue.schedules.add("of ann", report.call("ann"), "0 * * * *")
    handle = queue.schedules.fire("of ann")
    assert handle is not None
    assert handle.status() is JobState.READY
    filled = queue.schedules.backfill("of ann", NOON - 2 * HOUR, NOON)
    assert [run.at for run in filled] == [NOON - 2 * HOUR, NOON - HOUR, NOON]
    assert queue.schedules.backfill("of ann", NOON - 2 * HOUR, NOON) == []
    drain(queue)
    assert [at for _, at in seen[1:]] == [NOON - 2 * HOUR, NOON - HOUR, NOON]
    runs = queue.schedules.runs("of ann")
    assert [(run.kind, run.state) for run in runs][-1] == ("backfill", "fired")
    assert sorted(run.kind for run in runs) == ["backfill"] * 3 + ["manual"]
    assert {run.job_state for run in runs} == {"succeeded"}
    assert len(queue.schedules.runs("of ann", before=NOON, limit=1)) == 1
    assert queue.schedules.get("of ann").next == NOON + HOUR


def test_a_taken_unique_key_skips_the_tick(queue: PgQueue, report: Task[[str], None]) -> None:
    call = report.using(unique=Unique(by=("customer",))).call("ann")
    queue.schedules.add("of ann", call, "* * * * *")
    assert queue.schedules.fire("of ann") is not None
    assert queue.schedules.fire("of ann") is None


def test_the_next_ticks_are_shown_with_what_a_clock_change_does(
    queue: PgQueue, clock: Clock, report: Task[[str], None]
) -> None:
    queue.schedules.add("of ann", report.call("ann"), "30 1 * * *", timezone="Europe/London")
    with clock.at(datetime.fromisoformat("2032-03-27T00:00+00:00")):
        found = queue.schedules.next("of ann", count=3)
    assert [tick.note for tick in found] == [None, ClockChange.SHIFTED, None]
    assert found[1].at == datetime.fromisoformat("2032-03-28T01:00+00:00")


def test_a_tick_that_a_clock_change_drops_is_shown_and_not_counted(
    queue: PgQueue, clock: Clock, report: Task[[str], None]
) -> None:
    queue.schedules.add("of ann", report.call("ann"), "30 1 * * *", timezone="Europe/London")
    with clock.at(datetime.fromisoformat("2032-10-30T12:00+00:00")):
        found = queue.schedules.next("of ann", count=3)
    assert [tick.runs for tick in found] == [True, False, True, True]


async def test_awaited_they_do_the_same() -> None:
    queue = PgQueue("")

    @queue.schedule("@daily", name="declared")
    @queue.task(name="nothing")
    def nothing() -> None: ...

    with in_memory(queue, clock=Clock(NOON)):
        stored = queue.schedules
        assert (await stored.aapply()).added == ("declared",)
        await stored.aadd("a", nothing.call(), "@hourly")
        assert await stored.aput("a", nothing.call(), "@daily") is ScheduleChange.CHANGED
        assert (await stored.aget("a")).name == "a"
        assert len(await stored.afind()) == 2
        assert len(await stored.anext("a", count=3)) == 3
        assert await stored.apause("a")
        assert await stored.aresume("a")
        assert await stored.afire("a") is not None
        assert len(await stored.abackfill("a", NOON - 24 * HOUR, NOON)) == 1
        assert len(await stored.aruns("a")) == 2
        assert await stored.aremove("a")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"every": 0}, "every="),
        ({"timezon": "UTC", "every": 5}, "unknown option timezon= of a schedule: did you mean 'timezone'"),
        ({}, "give exactly one of the three"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        PgQueue("").schedule(**options)


def test_what_cannot_be_a_job_of_a_schedule_is_refused() -> None:
    queue = PgQueue("", queues=["default"])

    @queue.task(name="bill")
    def bill(order_id: int) -> None: ...

    queue.schedule("@daily")(bill)
    with pytest.raises(PayloadNotEncodable, match="order_id"):
        queue.schedules.declared()
    wrong: Any = bill
    with pytest.raises(InvalidOption, match="is no call of a task"):
        queue.schedules.add("x", wrong, "@daily")
    with pytest.raises(UnknownQueue):
        queue.schedules.add("x", bill.using(queue="other").call(1), "@daily")
    with in_memory(queue, clock=Clock(NOON)):
        for ask in (queue.schedules.get, queue.schedules.fire, queue.schedules.pause, queue.schedules.resume):
            with pytest.raises(UnknownSchedule, match="'x'"):
                ask("x")
        with pytest.raises(InvalidOption, match="time zone"):
            queue.schedules.backfill("x", datetime(2026, 1, 1), NOON)  # noqa: DTZ001 - refused
        with pytest.raises(InvalidOption, match="limit=0"):
            queue.schedules.find(limit=0)


def test_a_schedule_is_added_in_the_callers_transaction(dsn: str) -> None:
    queue = PgQueue(dsn)

    @queue.task(name="nothing")
    def nothing() -> None: ...

    with psycopg.connect(dsn) as connection:
        queue.schedules.add("kept", nothing.call(), "@daily", connection=connection)
        connection.commit()
        queue.schedules.add("rolled back", nothing.call(), "@daily", connection=connection)
        connection.rollback()
    assert [one.name for one in queue.schedules.find()] == ["kept"]
    queue.close()


def test_ticks_of_declared_schedules_are_asserted_and_shown_with_the_clock_change() -> None:
    queue = PgQueue("")

    @queue.schedule("30 1 * * *", timezone="Europe/London")
    @queue.task(name="nightly")
    def nightly() -> None: ...

    after = datetime.fromisoformat("2026-03-28T12:00+00:00")
    assert_ticks(queue, "nightly", after=after, expected=["2026-03-29T02:00+01:00", "2026-03-30T01:30+01:00"])
    with pytest.raises(AssertionError, match=r"2026-03-29 01:00.*shifted: this time does not exist"):
        assert_ticks(queue, "nightly", after=after, expected=["2026-03-29T01:30+00:00"])
    with pytest.raises(UnknownSchedule, match="did you mean 'nightly'"):
        assert_ticks(queue, "nightl", after=after, expected=[])


class Reversed(Codec):
    def encode(self, data: bytes, part: JobPart) -> str:  # noqa: ARG002 - as Codec
        return data.decode()[::-1]

    def decode(self, text: str, part: JobPart) -> bytes:  # noqa: ARG002 - as Codec
        return text[::-1].encode()


def test_arguments_of_a_schedule_are_encoded_as_those_of_its_jobs_are(dsn: str) -> None:
    queue, seen = PgQueue(dsn, codec=Reversed()), list[str]()

    @queue.task(name="report")
    def report(customer: str) -> None:
        seen.append(customer)

    queue.schedule("@daily", name="declared", arguments={"customer": "bob"})(report)
    assert queue.schedules.apply().added == ("declared",)
    assert queue.schedules.apply() == Applied()
    queue.schedules.add("of ann", report.call("ann"), "@daily")
    with psycopg.connect(dsn) as connection:
        stored = connection.execute("select args::text from pgqueue.schedules").fetchall()
    assert not [args for (args,) in stored if "customer" in args]
    assert queue.schedules.get("of ann").args == {"customer": "ann"}
    assert {one.args["customer"] for one in queue.schedules.find()} == {"ann", "bob"}
    assert queue.schedules.fire("of ann")
    drain(queue, allow_real=True)
    assert seen == ["ann"]
    queue.close()
