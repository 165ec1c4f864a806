"""Ticks over real clock changes, compared with every minute of those days asked one by one.

Which ticks one look at a schedule fires: in time, late, missed, after a pause, with the clock set back.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, NamedTuple, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.schedules.due_ticks import TickDecision, due, past
from pgqueue.values.schedules.rule import ClockChange, Cron, Every, Gap, Once, Repeat, Rule, Tick
from pgqueue.values.schedules.schedule import Missed, NewSchedule, Timing
from pgqueue.values.schedules.zone import segment_at

MINUTE = timedelta(minutes=1)
CHANGES = (
    ("Europe/London", "2026-03-29 01:00"),
    ("Europe/London", "2026-10-25 01:00"),
    ("America/New_York", "2026-03-08 07:00"),
    ("America/New_York", "2026-11-01 06:00"),
    ("Australia/Lord_Howe", "2026-04-04 15:00"),  # back by half an hour
    ("Australia/Lord_Howe", "2026-10-03 15:30"),  # forward by half an hour
    ("America/St_Johns", "2026-03-08 05:30"),
    ("Africa/Casablanca", "2026-02-15 02:00"),  # for Ramadan
    ("America/Havana", "2026-03-08 05:00"),  # midnight does not exist
    ("Pacific/Apia", "2011-12-30 10:00"),  # a day does not exist
    ("Asia/Kathmandu", "2026-06-01 00:00"),  # none
)


class Fields(NamedTuple):
    """Minutes and hours of an expression, and how it writes them."""

    minutes: list[int]
    hours: list[int]

    @property
    def expression(self) -> str:
        return f"{','.join(map(str, self.minutes))} {','.join(map(str, self.hours))} * * *"

    def match(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def asked_one_by_one(
    fields: Fields, zone: ZoneInfo, start: datetime, end: datetime, *, gap: Gap, repeat: Repeat
) -> list[datetime]:
    """The ticks from ``start`` to ``end``, found by looking at the clock each minute."""
    found, at = [], start
    while at <= end:
        wall, former = at.astimezone(zone), (at - MINUTE).astimezone(zone)
        expected = former.replace(tzinfo=None) + MINUTE  # what the clock shows if it does not change
        gone = (wall.replace(tzinfo=None) - expected) // MINUTE
        shifted = gap == "shift" and any(fields.match(expected + n * MINUTE) for n in range(gone))
        matches = fields.match(wall) and not (repeat == "once" and wall.fold)
        if matches or shifted:
            found.append(at)
        at += MINUTE
    return found


def runs(rule: Rule, start: datetime, end: datetime) -> list[datetime]:
    ticks = takewhile(lambda tick: tick.at <= end, rule.after(start - MINUTE / 2))
    return [tick.at for tick in ticks if tick.runs]


@settings(max_examples=150)
@given(
    change=st.sampled_from(CHANGES),
    fields=st.builds(
        Fields,
        st.lists(st.integers(0, 59), min_size=1, max_size=4, unique=True),
        st.lists(st.integers(0, 23), min_size=1, max_size=24, unique=True),
    ),
    gap=st.sampled_from(["skip", "shift"]),
    repeat=st.sampled_from(["once", "twice"]),
    hours=st.integers(1, 30),
)
def test_ticks_around_a_clock_change_are_those_that_the_clock_shows(
    change: tuple[str, str], fields: Fields, gap: Gap, repeat: Repeat, hours: int
) -> None:
    zone, at = change
    start, end = instant(at) - timedelta(hours=hours), instant(at) + timedelta(hours=hours)
    rule = Cron(fields.expression, zone, gap, repeat)
    assert runs(rule, start, end) == asked_one_by_one(
        fields, ZoneInfo(zone), start, end, gap=gap, repeat=repeat
    )


@settings(max_examples=150)
@given(
    change=st.sampled_from(CHANGES),
    expression=st.sampled_from(
        ["*/7 * * * *", "30 1 * * *", "0 0 29 2 *", "15,45 0-3 * * *", "*/20 30 2 * * *", "0 12 * * MON"]
    ),
    gap=st.sampled_from(["skip", "shift"]),
    repeat=st.sampled_from(["once", "twice"]),
    minutes=st.integers(-3000, 3000),
)
def test_backwards_are_the_same_ticks_as_forwards(
    change: tuple[str, str], expression: str, gap: Gap, repeat: Repeat, minutes: int
) -> None:
    rule = Cron(expression, change[0], gap, repeat)
    start = instant(change[1]) + minutes * MINUTE
    some = list(islice(rule.after(start), 30))
    last = some[-1].at  # the next tick may be at the same instant, where a clock change drops one
    forwards = [tick for tick in some if tick.at < last]
    backwards = list(takewhile(lambda tick: tick.at > start, rule.before(last)))
    assert {tick.at for tick in backwards if tick.runs} == {tick.at for tick in forwards if tick.runs}
    assert forwards == sorted(forwards, key=lambda tick: tick.at)
    assert backwards == sorted(backwards, key=lambda tick: tick.at, reverse=True)


@pytest.mark.parametrize(
    ("expression", "zone", "at", "noted"),
    [
        ("30 1 * * *", "Europe/London", "2026-03-29 00:00", ("2026-03-29 01:00", ClockChange.SHIFTED)),
        ("30 1 * * *", "Europe/London", "2026-10-25 00:00", ("2026-10-25 00:30", ClockChange.ONCE)),
        ("*/30 1 * * *", "Europe/London", "2026-10-25 00:10", ("2026-10-25 00:30", ClockChange.FIRST)),
        ("*/30 1 * * *", "Europe/London", "2026-10-25 00:40", ("2026-10-25 01:00", ClockChange.SECOND)),
        ("*/30 * * * *", "Europe/London", "2026-03-29 00:40", ("2026-03-29 01:00", ClockChange.SKIPPED)),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 15:00", ("2026-10-03 15:30", ClockChange.SHIFTED)),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 14:00", ("2026-04-04 14:45", ClockChange.ONCE)),
    ],
)
def test_by_default_named_hours_shift_and_stars_follow_elapsed_time(
    expression: str, zone: str, at: str, noted: tuple[str, ClockChange]
) -> None:
    tick = next(Cron(expression, zone).after(instant(at)))
    assert (tick.at, tick.note) == (instant(noted[0]), noted[1])


def test_all_times_of_a_gap_shift_to_one_tick() -> None:
    rule = Cron("*/10 * * * *", "Europe/London", gap="shift")
    assert runs(rule, instant("2026-03-29 00:50"), instant("2026-03-29 01:10")) == [
        instant("2026-03-29 00:50"),
        instant("2026-03-29 01:00"),
        instant("2026-03-29 01:10"),
    ]


@pytest.mark.parametrize(
    ("alias", "after", "expected"),
    [
        ("@hourly", "2026-01-01 00:00", "2026-01-01 01:00"),
        ("@daily", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("@weekly", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("@monthly", "2026-01-01 00:00", "2026-02-01 00:00"),
        ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),
        ("30 0 0 1 1 *", "2026-01-01 00:00", "2026-01-01 00:00:30"),
        ("0 0 L * *", "2026-02-01 00:00", "2026-02-28 00:00"),
    ],
)
def test_expressions_of_every_form(alias: str, after: str, expected: str) -> None:
    assert next(Cron(alias).after(instant(after))).at == instant(expected)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("0 0 31 2 *", "no month of '2' has a day '31'; correct the day or the month"),
        ("* * * *", "it has 4 fields; use 5"),
        ("31 February", "it has 2 fields"),
        ("0 0 30,31 2 *", "no month of '2' has a day '30,31'"),
        ("0 0 32 * *", "the day of the month is '32'; use 1 to 31"),
        ("0 0 32 2 *", "the day of the month is '32'; use 1 to 31"),
        ("0 25 * * *", "the hour is '25'; use 0 to 23"),
        ("61 * * * * *", "the second is '61'; use 0 to 59"),
        ("0 0 * 13 *", "the month is '13'; use 1 to 12, or JAN to DEC"),
        ("0 0 * * MOON", "the day of the week is 'MOON'; use 0 to 7, or SUN to SAT"),
        ("0 5-1 * * *", "the hour is '5-1'"),
        ("@dayly", "use one of @yearly"),
        ("61 * * * *", "the minute is '61'; use 0 to 59"),
        ("* * * * * " + "*," * 200, "use a text of 1 to 200 characters"),
        ("", "use a text of 1 to 200 characters"),
        ("*/0 * * * *", "the minute is '*/0'; use 0 to 59"),
        ("0 0 * * \N{ARABIC-INDIC DIGIT ONE}", "the day of the week is"),
    ],
)
def test_impossible_expressions_are_refused_by_name(expression: str, says: str) -> None:
    with pytest.raises(InvalidOption, match="cron=") as raised:
        Cron(expression)
    assert says in str(raised.value)


@pytest.mark.parametrize("zone", ["Europe/Lodnon", "", "../../etc/passwd", "EST5EDT4", "\0"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidOption, match="there is no such time zone"):
        Cron("* * * * *", zone)


def test_the_nearest_zone_is_suggested() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'Europe/London'"):
        Cron("* * * * *", "Europe/Lodnon")


@settings(max_examples=100)
@given(
    seconds=st.integers(1, 10**7),
    anchor=st.datetimes(min_value=datetime(1950, 1, 1), max_value=datetime(2100, 1, 1)),  # noqa: DTZ001 - see below
    at=st.datetimes(min_value=datetime(1950, 1, 1), max_value=datetime(2100, 1, 1)),  # noqa: DTZ001 - see below
)
def test_intervals_do_not_drift_from_their_anchor(seconds: int, anchor: datetime, at: datetime) -> None:
    rule = Every(timedelta(seconds=seconds), anchor.replace(tzinfo=UTC))
    at = at.replace(tzinfo=UTC)
    following, former = next(rule.after(at)).at, next(rule.before(at)).at
    assert (following - rule.anchor) % rule.interval == (former - rule.anchor) % rule.interval == timedelta(0)
    assert former < at < following or rule.anchor + (at - rule.anchor) // rule.interval * rule.interval == at
    assert following - former in (rule.interval, 2 * rule.interval)


def test_one_instant_has_one_tick() -> None:
    at = instant("2026-05-01 00:00")
    assert [tick.at for tick in Once(at).after(at - MINUTE)] == [at]
    assert [tick.at for tick in Once(at).before(at + MINUTE)] == [at]
    assert not list(Once(at).after(at))
    assert not list(Once(at).before(at))


@pytest.mark.parametrize(
    ("zone", "year"),
    [
        ("Africa/Freetown", 1939),
        ("America/Boa_Vista", 2000),
        ("Asia/Gaza", 2040),
        ("Africa/Casablanca", 2026),
    ],
)
def test_the_nearest_two_changes_of_a_zone_are_both_found(zone: str, year: int) -> None:
    """Looked at each hour of the year; the zone's changes are searched with far fewer looks."""
    hours = [datetime(year, 1, 1, tzinfo=UTC) + n * timedelta(hours=1) for n in range(366 * 24)]
    offsets = [at.astimezone(ZoneInfo(zone)).utcoffset() for at in hours]
    wanted = [later for later, one, two in zip(hours[1:], offsets, offsets[1:], strict=False) if one != two]
    found = {segment_at(zone, at).start for at in hours[::24]} - {datetime(year - 1, 1, 1, tzinfo=UTC)}
    assert len(wanted) >= 2
    for at in wanted:
        assert any(at - timedelta(hours=1) < start <= at for start in found)


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/Los_Angeles"])
def test_an_instant_may_be_given_in_any_zone(zone: str) -> None:
    rule, at = Cron("*/20 * * * *", "Europe/London"), instant("2026-06-01 12:00")
    there = at.astimezone(ZoneInfo(zone))
    assert [*islice(rule.after(there), 5)] == [*islice(rule.after(at), 5)]
    assert [*islice(rule.before(there), 5)] == [*islice(rule.before(at), 5)]


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def minutes(*numbers: int) -> tuple[datetime, ...]:
    return tuple(NOON + number * MINUTE for number in numbers)


@pytest.mark.parametrize(("missed", "fired"), [("skip", ()), ("latest", (-15,)), ("all", (-45, -30, -15))])
def test_missed_ticks_follow_the_rule_when_none_is_in_time(missed: Missed, fired: tuple[int, ...]) -> None:
    timing = Timing(cron="*/15 * * * *", missed=missed)
    now = NOON - 5 * MINUTE
    assert due(timing, NOON - 46 * MINUTE, now) == TickDecision(minutes(*fired), now, NOON)


@pytest.mark.parametrize(
    ("missed", "fired"), [("skip", (-1, 0)), ("latest", (-1, 0)), ("all", (-4, -3, -2, -1, 0))]
)
def test_ticks_within_the_grace_all_fire(missed: Missed, fired: tuple[int, ...]) -> None:
    timing = Timing(cron="* * * * *", missed=missed, tolerance=MINUTE)
    assert due(timing, NOON - 4.5 * MINUTE, NOON).fire == minutes(*fired)


def test_all_fires_the_latest_of_too_many() -> None:
    timing = Timing(cron="* * * * *", missed="all", missed_limit=3, tolerance=timedelta(0))
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
    timing = Timing(every=timedelta(seconds=every), missed=missed, tolerance=MINUTE)
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
        ({"cron": "* * * * *", "tolerance": 7200}, "tolerance=.*use a length of time"),
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
    """Each second for an hour of tolerance: the worker's event loop does nothing else meanwhile."""
    computed = 0

    class Counted(Timing):
        def after(self, instant: datetime) -> Iterator[Tick]:
            nonlocal computed
            for tick in Timing.after(self, instant):
                computed += 1
                yield tick

    timing = Counted(cron="* * * * * *", tolerance=timedelta(hours=1), missed=missed)
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
