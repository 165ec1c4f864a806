"""Schedules under attack: triggers that raise anything, keys that others hold, clocks in another year, two of everything."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from store.crowd import ask, asking, at_once
from store.samples import MINUTE, NOON, SECOND, adding, new_job, shown

from pgqueue.app.schedules.schedules import next_ticks
from pgqueue.errors import InvalidOption, UnknownSchedule
from pgqueue.store.schedules import schedules, ticks
from pgqueue.values.schedules.schedule import Applied, NewSchedule, Schedule, ScheduleChange, Timing

HOSTILE = [
    "it's",
    '"; drop table jobs; --',
    "%s %(name)s {x}",
    "\\",
    "\x1b[31m",
    "a\nb",
    "\u202e\U0001f4a9",
    "-- x",
    "$1",
    "x" * 200,
]


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def every_minute(name: str, *, module: str | None = None, job: Any = None, **timing: Any) -> NewSchedule:
    options: dict[str, Any] = {"cron": "* * * * *"} | timing
    return NewSchedule(name=name, job=job or new_job(), timing=Timing(**options), module=module)


def add(own: psycopg.Connection[Any], *added: NewSchedule) -> None:
    for one in added:
        ask(own, schedules.put(one, replace=False, now=NOON))


def get(own: psycopg.Connection[Any], name: str) -> Schedule:
    (found,) = ask(own, schedules.listed(name=name))
    return found


@pytest.mark.parametrize(
    "harm",
    [
        "raise 'no' using errcode = 'APP01'",
        "perform no_such_function()",
        "perform 1 / 0",
        "raise 'x' using errcode = 'P0004'",
    ],
)
def test_whatever_a_trigger_raises_is_the_error_of_its_schedule_and_the_others_fire(
    own: psycopg.Connection[Any], harm: str
) -> None:
    add(own, *(every_minute(f"schedule {n}", job=new_job(f"task{n}")) for n in range(3)))
    own.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin if new.task = 'task1' then "
        f"{harm}; end if; return new; end $$; "
        "create trigger refuse before insert on pgqueue.jobs for each row execute function refuse()".encode()
    )
    fired = ask(own, ticks.fire_due(now=NOON + MINUTE))
    assert len(fired.jobs) == 2
    assert [name for name, _ in fired.set_aside] == ["schedule 1"]


@pytest.mark.parametrize("errcode", ["40001", "53100", "57P03"])
def test_what_is_wrong_with_the_server_sets_no_schedule_aside(
    own: psycopg.Connection[Any], errcode: str
) -> None:
    add(own, every_minute("one"))
    own.execute(
        f"create function refuse() returns trigger language plpgsql as $$ begin raise 'x' using errcode = '{errcode}'; end $$; "
        "create trigger refuse before insert on pgqueue.jobs for each row execute function refuse()".encode()
    )
    with pytest.raises(psycopg.OperationalError):
        ask(own, ticks.fire_due(now=NOON + MINUTE))
    assert get(own, "one").state == "active"
    own.execute("drop trigger refuse on pgqueue.jobs")
    assert len(ask(own, ticks.fire_due(now=NOON + MINUTE)).jobs) == 1


def test_a_key_that_an_open_transaction_holds_keeps_no_other_schedule_back_and_loses_no_tick(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    add(own, every_minute("keyed", job=new_job(unique_key="key")), every_minute("other"))
    with psycopg.connect(dsn) as holder:
        ask(holder, adding(new_job(unique_key="key")))
        fired = ask(own, ticks.fire_due(now=NOON + MINUTE))
        assert (len(fired.jobs), fired.set_aside) == (1, [])
        assert [run.state for run in ask(own, ticks.runs("other"))] == ["fired"]
        assert ask(own, ticks.runs("keyed")) == []
        assert get(own, "keyed").state == "active"
        assert (
            ask(own, ticks.fire_due(now=NOON + MINUTE + SECOND)).jobs == []
        )  # it is not asked again at once
        holder.rollback()
    (job,) = ask(own, ticks.fire_due(now=NOON + MINUTE + 5 * SECOND)).jobs
    assert ask(own, shown(job)).unique_key == "key"
    assert [run.at for run in ask(own, ticks.runs("keyed"))] == [NOON + MINUTE]


def test_a_hundred_keys_that_one_transaction_holds_are_waited_for_as_a_few(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    """The wait for each of them would end the statement at its timeout; for four of them it takes 0.5 s."""
    keys = [f"key {number:03}" for number in range(99)]
    add(own, *(every_minute(key, job=new_job(unique_key=key)) for key in keys), every_minute("zz"))
    with psycopg.connect(dsn) as holder:
        for key in keys:
            ask(holder, adding(new_job(unique_key=key)))
        own.execute("set statement_timeout = '4s'")
        (job,) = ask(own, ticks.fire_due(now=NOON + MINUTE)).jobs
        own.execute("reset statement_timeout")
        holder.rollback()
    assert ask(own, shown(job)).unique_key is None
    assert len(ask(own, ticks.fire_due(now=NOON + MINUTE + 5 * SECOND)).jobs) == 99


def test_a_clock_that_was_years_ahead_for_a_moment_stops_a_schedule_only_until_it_is_resumed(
    own: psycopg.Connection[Any],
) -> None:
    add(own, every_minute("one"))
    ahead = NOON + timedelta(days=5000)
    assert ask(own, ticks.fire_due(now=ahead)).jobs
    back = NOON + 10 * MINUTE
    assert ask(own, ticks.fire_due(now=back)).jobs == []
    ask(own, schedules.resume("one", now=back))
    assert ask(own, ticks.fire_due(now=back)).jobs == []
    assert len(ask(own, ticks.fire_due(now=back + MINUTE)).jobs) == 1
    late = ask(own, ticks.fire_due(now=ahead + SECOND)).jobs  # the tick that fired then does not fire again
    assert len(late) == 0


def test_versions_of_an_app_that_start_at_once_never_deadlock(dsn: str) -> None:
    """Each removes what the other declares and adds its own: rows would be locked in opposite orders."""
    versions = [
        [every_minute(f"{place}{n}", module="shop") for place in places for n in range(15)]
        for places in ("az", "zb", "ma", "bm")
    ]
    for _ in range(5):
        answers = at_once(dsn, *(asking(schedules.apply(one, ["shop"], now=NOON)) for one in versions))
        assert all(isinstance(answer, Applied) for answer in answers)
        with psycopg.connect(dsn) as connection:
            names = {row[0] for row in connection.execute("select name from pgqueue.schedules")}
        assert names in [{one.name for one in version} for version in versions]


def test_firing_pausing_changing_and_removing_at_once_leave_each_tick_at_most_one_job(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    stop = threading.Event()
    failures: list[Exception] = []

    def repeat(*makers: Any) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            number = 0
            while not stop.is_set() and number < 400:
                number += 1
                for make in makers:
                    try:
                        ask(connection, make(number))
                    except UnknownSchedule:
                        pass
                    except Exception as error:  # noqa: BLE001 - shown by the test
                        failures.append(error)
                        return

    def second(number: int) -> Any:
        return NOON + number * SECOND

    def often(number: int) -> NewSchedule:
        return every_minute("busy", cron=None, every=SECOND, overlap=["allow", "skip", "queue"][number % 3])

    add(own, often(0))
    crowd = [
        (lambda n: ticks.fire_due(now=second(n)),),
        (lambda n: ticks.fire_due(now=second(n)),),
        (lambda n: schedules.pause("busy", "ann", now=second(n)), lambda _: schedules.resume("busy", now=NOON)),
        (lambda n: ticks.fire("busy", now=second(n)), lambda n: ticks.backfill("busy", NOON, second(n), now=second(n))),
        (lambda n: schedules.put(often(n), replace=True, now=second(n)), lambda _: schedules.remove("busy")),
    ]  # fmt: skip
    threads = [threading.Thread(target=repeat, args=makers) for makers in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    stop.set()
    assert failures == []
    doubled = own.execute(
        "select meta ->> 'pgqueue_scheduled_for', count(*) from pgqueue.jobs group by 1 having count(*) > 1"
    ).fetchall()
    assert doubled == []
    strays = own.execute(
        "select (select count(*) from pgqueue.jobs) - (select count(*) from pgqueue.schedule_ticks where state = 'fired')"
    ).fetchone()
    assert strays == (0,)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_stored_found_fired_and_removed(own: psycopg.Connection[Any], name: str) -> None:
    args = '{"quote\'s": "\\"%s\\"", "deep": ' + "[" * 100 + "]" * 100 + "}"
    add(own, every_minute(name, job=new_job(args=args.encode())))
    (job,) = ask(own, ticks.fire_due(now=NOON + MINUTE)).jobs
    found = ask(own, shown(job))
    assert found.args["quote's"] == '"%s"'
    assert (found.meta or {})["pgqueue_schedule"] == name
    assert len(ask(own, ticks.runs(name))) == 1
    assert ask(own, schedules.pause(name, name))
    assert ask(own, schedules.remove(name))


@pytest.mark.parametrize("name", [" x", "x ", "\t", "a\nb "])
def test_a_name_that_only_sql_could_give_is_steered_like_any_other(
    own: psycopg.Connection[Any], name: str
) -> None:
    own.execute("select pgqueue.schedule(%s, 'bill', every => '1 minute')", [name])
    assert get(own, name).name == name
    assert ask(own, ticks.fire(name)) is not None
    assert len(ask(own, ticks.runs(name))) == 1
    assert ask(own, schedules.pause(name, None))
    assert ask(own, schedules.resume(name))
    assert ask(own, schedules.remove(name))


@pytest.mark.parametrize(
    "harm",
    [
        "meta = '[1]'", "meta = '7'", "meta = '\"x\"'", "queue = 'two words'", "task = ''", "task = 'a b'", "live_jobs = '{null,-1}'",
        "unique_key = repeat('k', 8000)", "args = ('{\"a\": \"' || repeat('x', 3000000) || '\"}')::json", "settled = '8999-12-31'",
        "module = 'nonsense'", "every = '1 month', cron = null", "missed_limit = 2000000000", "gap = ''", "timezone = ''",
        "error = ''", "cron = repeat('* ', 100)", "cron = ''", "cron = E'\\x01 * * * *'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("overlap", ["allow", "skip", "queue"])
def test_nonsense_by_hand_delays_no_other_schedule(
    own: psycopg.Connection[Any], harm: str, overlap: str
) -> None:
    add(own, *(every_minute(f"schedule {n}", overlap=overlap) for n in range(3)))
    own.execute(f"update pgqueue.schedules set {harm} where name = 'schedule 1'".encode())
    own.execute(
        "update pgqueue.schedules set settled = %s, next_at = %s where name <> 'schedule 1'",
        [NOON, NOON + MINUTE],
    )
    own.execute("update pgqueue.schedules set next_at = %s where name = 'schedule 1'", [NOON + MINUTE])
    for moment in (MINUTE, MINUTE + SECOND, 2 * MINUTE):
        ask(own, ticks.fire_due(now=NOON + moment))
    for name in ("schedule 0", "schedule 2"):
        assert NOON + MINUTE in [run.at for run in ask(own, ticks.runs(name)) if run.state == "fired"]
    assert len(ask(own, schedules.listed())) == 3


def test_a_year_of_every_second_is_worked_off_in_bounded_looks(own: psycopg.Connection[Any]) -> None:
    add(own, every_minute("busy", cron=None, every=SECOND, missed="all", missed_limit=1000, tolerance=3600))
    now = NOON + timedelta(days=365)
    sizes: list[int] = []
    while fired := ask(own, ticks.fire_due(now=now)).jobs:
        sizes.append(len(fired))
    assert sum(sizes) == 1000 + 3600 + 1  # the tolerance counts from the instant itself
    assert max(sizes) == 100


def test_ten_years_are_filled_in_one_go_and_once(own: psycopg.Connection[Any]) -> None:
    add(own, every_minute("daily", cron="0 3 * * *", timezone="Europe/London"))
    start = NOON - timedelta(days=3650)
    assert len(ask(own, ticks.backfill("daily", start, NOON, now=NOON))) == 3650
    assert ask(own, ticks.backfill("daily", start, NOON, now=NOON)) == []
    with pytest.raises(InvalidOption, match="more than 10,000 ticks"):
        ask(own, ticks.backfill("daily", NOON.replace(year=1), NOON, now=NOON))


def test_settings_of_the_role_do_not_stop_ticks(own: psycopg.Connection[Any]) -> None:
    """Time zone, style of dates, search path: a look reads and writes instants all the same."""
    add(own, every_minute("one"))
    own.execute(
        "set timezone = 'Asia/Kathmandu'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; set search_path = ''"
    )
    assert len(ask(own, ticks.fire_due(now=NOON + MINUTE)).jobs) == 1
    assert get(own, "one").last == NOON + MINUTE


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "Europe/Berlin", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize(
    "rule", [{"cron": "*/20 * * * *", "timezone": "Europe/London"}, {"cron": None, "every": 1200}]
)
@pytest.mark.parametrize("change", ["2031-03-30T00:00+00:00", "2031-10-26T00:00+00:00"])
def test_the_time_zone_of_the_session_changes_no_tick(
    own: psycopg.Connection[Any], zone: str, rule: dict[str, Any], change: str
) -> None:
    """Drivers return instants in the session's time zone, and its clocks change while the schedule ticks."""
    own.execute(f"set timezone = '{zone}'".encode())
    start = datetime.fromisoformat(change) - 30 * MINUTE
    assert (
        ask(own, schedules.put(every_minute("one", **rule), replace=False, now=start)) is ScheduleChange.ADDED
    )
    fired = [
        len(ask(own, ticks.fire_due(now=start + number * MINUTE + SECOND)).jobs) for number in range(180)
    ]
    assert [number for number, count in enumerate(fired) if count] == [*range(10, 180, 20)]
    assert set(fired) == {0, 1}
    found, now = ask(own, schedules.dated("one", now=start))
    assert found.next == start + 190 * MINUTE
    assert [tick.at for tick in next_ticks(found, now, 3)] == [start + n * MINUTE for n in (10, 30, 50)]
    assert len(ask(own, ticks.backfill("one", start - 60 * MINUTE, start, now=start))) == 3


@pytest.mark.parametrize("rules", [{"gap": "skip", "repeat": "twice"}, {"gap": "shift", "repeat": "once"}])
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/London", "2031-03-30T01:00+00:00"),
        ("Europe/London", "2031-10-26T01:00+00:00"),
        ("Australia/Lord_Howe", "2031-04-05T15:00+00:00"),  # back by half an hour
        ("Australia/Lord_Howe", "2031-10-04T15:30+00:00"),  # forward by half an hour
    ],
)
def test_backfills_that_meet_at_a_clock_change_and_a_worker_fire_each_tick_once(
    own: psycopg.Connection[Any], zone: str, change: str, rules: dict[str, Any]
) -> None:
    """A schedule that fired live over the change, and one of which two pieces are filled that meet anywhere in it."""
    at = datetime.fromisoformat(change)
    start, end = at - 150 * MINUTE, at + 150 * MINUTE
    rule: dict[str, Any] = {
        "cron": "7,22,37,52 0-3 * * *",
        "timezone": zone,
        "missed": "all",
        "missed_limit": 100,
    } | rules
    ask(own, schedules.put(every_minute("live", **rule), replace=False, now=start))
    live = _fired_live(own, start, end)
    assert len(live) == len({*live}) > 4
    for minutes in range(-70, 71, 10):
        name = f"filled {minutes}"
        ask(own, schedules.put(every_minute(name, **rule), replace=False, now=end))
        meet = at + minutes * MINUTE
        pieces = [
            ask(own, ticks.backfill(name, *piece, now=end))
            for piece in ((start + SECOND, meet), (meet, end), (start + SECOND, end))
        ]
        assert [run.at for piece in pieces for run in piece] == live
        assert pieces[2] == []


def _fired_live(own: psycopg.Connection[Any], start: datetime, end: datetime) -> list[datetime]:
    """The ticks of the schedule "live" that a worker fires which looks every 9 minutes."""
    for number in range(1, 35):
        ask(own, ticks.fire_due(now=min(start + number * 9 * MINUTE, end)))
    noted = own.execute("select at from pgqueue.schedule_ticks where schedule = 'live' order by at")
    return [at for (at,) in noted]
