"""Which ticks one look at a schedule fires: in time, late, missed, after a pause, with the clock set back."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.schedules.due_ticks import TickDecision, due, past
from pgqueue.values.schedules.rule import Tick
from pgqueue.values.schedules.schedule import Missed, NewSchedule, Timing

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def minutes(*numbers: int) -> tuple[datetime, ...]:
    return tuple(NOON + number * MINUTE for number in numbers)


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("skip", ()), ("latest", (-15,)), ("all", (-45, -30, -15))],
)
def test_missed_ticks_follow_the_rule_when_none_is_in_time(missed: Missed, fired: tuple[int, ...]) -> None:
    timing = Timing(cron="*/15 * * * *", missed=missed)
    now = NOON - 5 * MINUTE
    assert due(timing, NOON - 46 * MINUTE, now) == TickDecision(minutes(*fired), now, NOON)


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("skip", (-1, 0)), ("latest", (-1, 0)), ("all", (-4, -3, -2, -1, 0))],
)
def test_ticks_within_the_grace_all_fire(missed: Missed, fired: tuple[int, ...]) -> None:
    timing = Timing(cron="* * * * *", missed=missed, grace=MINUTE)
    assert due(timing, NOON - 4.5 * MINUTE, NOON).fire == minutes(*fired)


def test_all_fires_the_latest_of_too_many() -> None:
    timing = Timing(cron="* * * * *", missed="all", missed_limit=3, grace=timedelta(0))
    assert due(timing, NOON - timedelta(days=400), NOON).fire == minutes(-3, -2, -1, 0)


def test_a_long_outage_is_worked_off_look_by_look_in_order() -> None:
    timing = Timing(every=timedelta(seconds=1), missed="all", missed_limit=900)
    settled, now, fired = NOON - timedelta(days=300), NOON, list[datetime]()
    while (found := due(timing, settled, now)).fire:
        fired += found.fire
        settled = found.settled
        assert found.next is not None
    assert len(fired) == 900 + 61
    assert fired == [NOON - timedelta(seconds=number) for number in reversed(range(961))]
    assert found == TickDecision((), NOON, NOON + timedelta(seconds=1))


def test_a_clock_that_is_set_back_fires_nothing_and_keeps_the_place() -> None:
    timing = Timing(cron="* * * * *")
    assert due(timing, NOON, NOON - 3 * MINUTE) == TickDecision((), NOON, NOON + MINUTE)


@settings(max_examples=200)
@given(
    steps=st.lists(st.integers(-300, 4000), min_size=1, max_size=30),
    every=st.integers(1, 400),
    missed=st.sampled_from(get_args(Missed)),
    at_once=st.integers(1, 5),
)
def test_looks_at_any_instants_fire_no_tick_twice_and_in_order(
    steps: list[int], every: int, missed: Missed, at_once: int
) -> None:
    timing = Timing(every=timedelta(seconds=every), missed=missed, grace=MINUTE)
    settled, now, fired = NOON, NOON, list[datetime]()
    for step in steps:
        now += timedelta(seconds=step)
        found = due(timing, settled, now, at_once=at_once)
        assert found.settled >= settled
        assert all(settled < at <= now for at in found.fire)
        settled = found.settled
        fired += found.fire
    assert fired == sorted(set(fired))


@settings(max_examples=100)
@given(steps=st.lists(st.integers(0, 59), min_size=1, max_size=60), every=st.integers(1, 100))
def test_looks_that_are_never_late_fire_every_tick(steps: list[int], every: int) -> None:
    timing = Timing(every=timedelta(seconds=every), missed="skip")
    settled, now, fired = NOON, NOON, list[datetime]()
    for step in steps:
        now += timedelta(seconds=step)
        found = due(timing, settled, now)
        settled = found.settled
        fired += found.fire
    assert fired == list(timing.between(NOON + timedelta(microseconds=1), now))


def test_start_and_end_bound_the_ticks() -> None:
    timing = Timing(cron="* * * * *", start=NOON, end=NOON + 2 * MINUTE)
    assert tuple(timing.between(NOON - timedelta(days=1), NOON + timedelta(days=1))) == minutes(0, 1, 2)
    assert [tick.at for tick in timing.before(NOON + timedelta(days=1))] == [*minutes(2, 1, 0)]
    assert timing.next(NOON + 2 * MINUTE) is None


def test_jitter_is_the_same_for_every_worker_and_differs_between_schedules() -> None:
    timing = Timing(cron="* * * * *", jitter=MINUTE)
    delays = {timing.delay(f"report {number}", NOON) for number in range(100)}
    assert len(delays) == 100
    assert all(timedelta(0) <= delay <= MINUTE for delay in delays)
    assert timing.delay("report 7", NOON) in delays


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give exactly one of the three"),
        ({"cron": "* * * * *", "every": 5}, "give exactly one of the three"),
        ({"every": 0.5}, "from 1 second to 10 years"),
        ({"every": float("nan")}, "every="),
        ({"every": timedelta(days=4000)}, "from 1 second to 10 years"),
        ({"at": datetime(2026, 1, 1)}, "at=.* has no time zone"),  # noqa: DTZ001 - refused
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "there is no such time zone"),
        ({"every": 60, "timezone": "Mars/Base"}, "there is no such time zone"),
        ({"cron": "* * * * *", "start": NOON, "end": NOON - MINUTE}, "there would be no tick"),
        ({"cron": "* * * * *", "anchor": NOON}, "only every=... has an anchor"),
        ({"every": 60, "gap": "skip"}, "wall times of cron"),
        ({"cron": "* * * * *", "gap": "jump"}, "gap='jump': use one of 'skip', 'shift'"),
        ({"cron": "* * * * *", "missed": "some"}, "missed='some': use one of 'skip', 'latest', 'all'"),
        ({"cron": "* * * * *", "overlap": None}, "overlap=None: use one of"),
        ({"cron": "* * * * *", "missed_limit": 0}, "missed_limit=0: use a whole number"),
        ({"cron": "* * * * *", "jitter": -1}, "jitter=.*use a length of time"),
        ({"cron": "* * * * *", "grace": 7200}, "grace=.*use a length of time"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Timing(**options)


@pytest.mark.parametrize("name", ["", " x", "x" * 201, "a\0b", "\ud800", 7])
def test_names_that_no_schedule_can_have_are_refused(name: Any) -> None:
    with pytest.raises(InvalidOption, match="name="):
        NewSchedule(name=name, job=NewJob("t", b"{}", "default", 0, 1), timing=Timing(every=MINUTE))


@pytest.mark.parametrize(
    "job",
    [
        NewJob("t", b"{}", "default", 0, 1, delay=MINUTE),
        NewJob("t", b"{}", "default", 0, 1, run_at=NOON),
        NewJob("t", b"{}", "default", 0, 1, unique_key="k", unique=Unique("replace")),
        NewJob("t", b"{}", "default", 0, 1, unique_key="k", unique=Unique(period=60)),
    ],
)
def test_what_a_job_of_a_schedule_cannot_have_is_refused(job: NewJob) -> None:
    with pytest.raises(InvalidOption, match="schedule 'nightly'"):
        NewSchedule(name="nightly", job=job, timing=Timing(every=MINUTE))


@pytest.mark.parametrize("missed", get_args(Missed))
def test_a_look_computes_few_more_ticks_than_it_fires(missed: Missed) -> None:
    """Each second for an hour of grace: the worker's event loop does nothing else meanwhile."""
    computed = 0

    class Counted(Timing):
        def after(self, instant: datetime) -> Iterator[Tick]:
            nonlocal computed
            for tick in Timing.after(self, instant):
                computed += 1
                yield tick

    timing = Counted(cron="* * * * * *", grace=timedelta(hours=1), missed=missed)
    found = due(timing, NOON - timedelta(hours=1), NOON, at_once=100)
    assert (len(found.fire), found.settled < NOON) == (100, True)
    assert computed <= 102


def test_a_stretch_of_the_past_may_begin_before_any_tick() -> None:
    yearly = Timing(cron="@yearly", timezone="Pacific/Apia")
    assert len(past("one", yearly, datetime.min.replace(tzinfo=UTC), NOON, NOON)) == NOON.year - 1900 + (
        NOON.month > 1
    )


def test_a_look_in_the_hour_in_which_clocks_go_back_fires_as_any_other() -> None:
    """02:59 in summer time is before 02:00:10 in winter time; in Python it is not, if both are in this zone."""
    berlin, change = ZoneInfo("Europe/Berlin"), datetime(2026, 10, 25, 1, tzinfo=UTC)
    settled, now = (change - MINUTE).astimezone(berlin), (change + MINUTE / 6).astimezone(berlin)
    found = TickDecision((change,), now.astimezone(UTC), change + MINUTE)
    assert due(Timing(every=MINUTE), settled, now) == found
