"""Minutes and hours: moved by one worker at a time, told at once, bounded, and dropped when they are old.

Sketches tell quantiles within their error, however the times come and whatever the order of merging.
"""

import random
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store.samples import adding, new_job, taking

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import over_time, series
from pgqueue.values.insight.series import COUNTS, Figures
from pgqueue.values.insight.sketch import BORDERS, ERROR, SMALLEST, count_times, count_waits, merge, quantiles

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def row(at: datetime, queue: str | None = "mail", task: str | None = "send", **given: Any) -> dict[str, Any]:
    """What a worker writes."""
    times = given.pop("times", [])
    sketch: dict[int, int] = {}
    count_times(sketch, sorted(times))
    return {
        "at": at.isoformat(),
        "queue": queue,
        "task": task,
        **dict.fromkeys(COUNTS, 0),
        "wait_bins": [],
        "wait_counts": [],
        "run_bins": [*sketch],
        "run_counts": [*sketch.values()],
        **given,
    }


def write(queue: PgQueue, *rows: dict[str, Any]) -> None:
    queue.database.run(series.write(rows))


def table(connection: psycopg.Connection[Any], name: str, columns: str) -> list[Any]:
    connection.rollback()
    order = ", ".join(str(place + 1) for place in range(columns.count(",") + 1))
    return connection.execute(f"select {columns} from pgqueue.{name} order by {order}").fetchall()


def test_a_minute_is_told_before_it_is_moved_and_after_it(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    run = queue.database.run
    write(queue, row(NOON, started=2, times=[1.0]), row(NOON, "bulk", "copy", started=1, times=[100.0]))
    write(queue, row(NOON, started=3, times=[2.0]))

    def told() -> tuple[Any, Any]:
        whole = run(over_time.series(5 * MINUTE, now=NOON + 3 * MINUTE))
        tasks = run(over_time.totals(5 * MINUTE, by="task", now=NOON + 3 * MINUTE))
        return whole, tasks

    before = told()
    assert run(series.move(now=NOON + MINUTE)) == 0
    assert len(table(connection, "series_written", "at")) == 3, "the minute ended just now: others may write"
    run(series.move(now=NOON + 2 * MINUTE))

    assert told() == before
    assert table(connection, "series_written", "at") == []
    assert table(connection, "series_minutes", "whole, queue, task, started") == [
        (False, "bulk", "copy", 1),
        (False, "mail", "send", 5),
        (True, None, None, 6),
    ]
    (line,), (first, _) = before[0].lines, before[1].lines
    assert [(point.at, point.figures.started) for point in line.points][2] == (NOON, 6)
    assert line.points[0].figures == Figures()
    assert (first.name, first.figures.started) == ("send", 5)
    assert first.figures.run.count == 2


def test_hours_are_made_when_they_are_over_and_late_minutes_are_added_to_both(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    run = queue.database.run
    write(queue, *(row(NOON + n * MINUTE, started=1, times=[float(n + 1)]) for n in range(0, 90, 10)))
    run(series.move(now=NOON + 95 * MINUTE))
    assert table(connection, "series_hours", "whole, at, started") == [(False, NOON, 6), (True, NOON, 6)]
    assert table(connection, "series_state", "hours_until") == [(NOON + HOUR,)]
    assert run(series.move(now=NOON + 96 * MINUTE)) == 0, "once"

    write(queue, row(NOON + 5 * MINUTE, started=10))
    run(series.move(now=NOON + 97 * MINUTE))

    window: dict[str, Any] = {"since": NOON, "until": NOON + 2 * HOUR, "now": NOON + 100 * MINUTE}
    by_minute = run(over_time.series(step=10 * MINUTE, **window)).lines[0]
    assert [point.figures.started for point in by_minute.points] == [11, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    for queue_ in (None, "mail"):
        by_hour = run(over_time.series(step=HOUR, queue=queue_, **window)).lines[0]
        assert [point.figures.started for point in by_hour.points] == [16, 3]
        spread = by_hour.points[0].figures.run
        assert spread is not None
        assert spread.p50 == pytest.approx(21.0, rel=0.05)
    connection.execute("truncate pgqueue.series_minutes")
    connection.commit()
    by_hour = run(over_time.series(step=HOUR, **window)).lines[0]
    assert [point.figures.started for point in by_hour.points] == [16, 0], "read from the hours"


def test_one_worker_moves_at_a_time(queue: PgQueue, connection: psycopg.Connection[Any]) -> None:
    write(queue, row(NOON, started=1))
    connection.execute("select from pgqueue.series_state for update")

    queue.database.run(series.move(now=NOON + HOUR))

    assert len(table(connection, "series_minutes", "at")) == 0
    assert len(table(connection, "series_written", "at")) == 1


def test_pairs_beyond_the_bound_are_one_row_of_a_minute_and_of_an_hour(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "PAIRS", 2)
    write(queue, *(row(NOON, f"tenant-{n}", started=1, times=[1.0]) for n in range(5)))

    queue.database.run(series.move(now=NOON + 2 * HOUR))

    for name in ("series_minutes", "series_hours"):
        assert table(connection, name, "whole, queue, started") == [
            (False, "tenant-0", 1),
            (False, "tenant-1", 1),
            (False, None, 3),
            (True, None, 5),
        ]
    lines = queue.database.run(over_time.totals(NOON, by="queue", now=NOON + HOUR)).lines
    assert [(one.name, one.figures.started) for one in lines] == [(None, 3), ("tenant-0", 1), ("tenant-1", 1)]


def test_pairs_that_are_beyond_the_bound_in_an_hour_alone_are_one_row_of_it(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "PAIRS", 2)
    write(queue, *(row(NOON + n * MINUTE, f"tenant-{n}", started=1) for n in range(5)))

    queue.database.run(series.move(now=NOON + 2 * HOUR))

    assert len(table(connection, "series_minutes", "at")) == 10
    assert table(connection, "series_hours", "whole, queue, started") == [
        (False, "tenant-0", 1),
        (False, "tenant-1", 1),
        (False, None, 3),
        (True, None, 5),
    ]


def test_old_minutes_and_hours_are_dropped_as_long_as_they_are_kept(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "DELETED_AT_ONCE", 3)
    run = queue.database.run
    write(queue, *(row(NOON + n * MINUTE, started=1) for n in range(10)))
    run(series.move(now=NOON + 2 * HOUR))
    assert run(series.drop(now=NOON + 48 * HOUR)) == 0
    assert queue.control.keep_series(hours=timedelta(days=30)) == (timedelta(hours=48), timedelta(days=30))

    assert run(series.drop(now=NOON + 49 * HOUR)) == 20
    assert len(table(connection, "series_hours", "at")) == 2
    assert run(series.drop(now=NOON + timedelta(days=32))) == 0, "no day is made of these hours yet"
    later = NOON + timedelta(days=32)
    write(queue, row(later - HOUR, started=1))
    run(series.move(now=later + 2 * MINUTE))
    assert run(series.drop(now=later)) == 4, "an hour and a day, of the pair and of the whole"
    assert {at for (at,) in table(connection, "series_hours", "at")} == {later - HOUR}
    assert table(connection, "series_days", "at") == []
    assert queue.control.keep_series(minutes=3 * HOUR)[0] == 3 * HOUR


def test_jobs_that_wait_count_as_enqueued_when_they_were_enqueued_and_once(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    run = queue.database.run
    run(adding(new_job("bill"), new_job("mail"), now=NOON))
    run(adding(new_job("bill"), now=NOON + MINUTE))
    connection.execute("update pgqueue.jobs set created_at = run_at")
    connection.commit()
    asked: dict[str, Any] = {"since": NOON, "until": NOON + 2 * MINUTE}

    (line,) = run(over_time.series(**asked, now=NOON + HOUR)).lines
    assert [point.figures.enqueued for point in line.points] == [2, 1]
    lines = run(over_time.totals(**asked, by="task", now=NOON + HOUR)).lines
    assert [(one.name, one.figures.enqueued) for one in lines] == [("bill", 2), ("mail", 1)]

    run(taking(now=NOON + MINUTE))
    (line,) = run(over_time.series(**asked, now=NOON + HOUR)).lines
    assert [point.figures.enqueued for point in line.points] == [0, 0], "the worker that claimed them counts"


def test_of_a_large_table_the_waiting_are_estimated_and_the_answer_says_so(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_time, "WHOLE_PAGES", 150)
    connection.execute(
        "insert into pgqueue.jobs (queue, task) select 'mail', 'send' from generate_series(1, 30000)"
    )
    connection.commit()

    found = queue.insight.series()

    assert found.estimated
    assert 15_000 < sum(point.figures.enqueued for point in found.lines[0].points) < 60_000


def test_a_window_or_step_that_makes_no_sense_is_refused(queue: PgQueue) -> None:
    see = queue.insight
    with pytest.raises(InvalidOption, match="is not before until"):
        see.series(NOON, NOON)
    with pytest.raises(InvalidOption, match="1,501 steps"):
        see.series(NOON, NOON + 1501 * MINUTE, step=MINUTE)
    with pytest.raises(InvalidOption, match="whole minutes"):
        see.series(step=90)
    with pytest.raises(InvalidOption, match="time zone"):
        see.totals(datetime(2031, 5, 4))  # noqa: DTZ001 - this is the point
    with pytest.raises(InvalidOption, match="by='day'"):
        see.totals(by="day")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="by=None"):
        see.totals(by=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"keep_series\(\)"):
        queue.control.keep_series()
    with pytest.raises(InvalidOption, match="3 hours or longer"):
        queue.control.keep_series(minutes=HOUR)


@pytest.mark.parametrize(
    ("length", "step"), [(HOUR, 60), (24 * HOUR, 1800), (7 * 24 * HOUR, 7200), (30 * 24 * HOUR, 43200)]
)
def test_without_a_step_there_are_about_sixty(queue: PgQueue, length: timedelta, step: int) -> None:
    found = queue.database.run(over_time.series(length, now=NOON))
    assert found.step == step


@pytest.mark.parametrize(("length", "step"), [(6 * HOUR, 300), (24 * HOUR, 3600), (30 * 24 * HOUR, 86400)])
def test_of_each_task_long_windows_are_told_by_hours_and_days(
    queue: PgQueue, length: timedelta, step: int
) -> None:
    found = queue.database.run(over_time.series(length, by="task", now=NOON))
    assert found.step == step


def test_views_tell_the_same_quantiles_as_the_api(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    times = [0.001 * n**2 for n in range(1, 200)]
    write(queue, row(NOON, started=199, times=times[:50]), row(NOON, times=times[50:]))
    write(queue, row(NOON, "bulk", "copy", times=[7.0]))
    queue.database.run(series.move(now=NOON + 2 * HOUR))
    sketch: dict[int, int] = {}
    count_times(sketch, times)
    wanted = pytest.approx(quantiles(sketch, over_time.SHARES))

    columns = "at, queue, task, started, wait_p50, run_p50, run_p95, run_p99"
    for view in ("insight_minutes", "insight_hours"):
        bulk, mail = table(connection, view, columns)
        assert mail[:5] == (NOON, "mail", "send", 199, None)
        assert [*mail[5:]] == wanted
        assert bulk[5] == pytest.approx(7.0, rel=0.05)
        ((at, started, _),) = table(connection, f"{view}_all", "at, started, run_p50")
        assert (at, started) == (NOON, 199)


def test_days_hours_and_minutes_tell_the_same_for_every_window(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    run = queue.database.run
    midnight = datetime(2031, 5, 4, tzinfo=UTC)
    instants = [midnight + n * timedelta(hours=7) + n * MINUTE for n in range(12)]
    for at in instants:  # three and a half days, moved while they go by
        write(queue, row(at, started=1, times=[1.0]))
        run(series.move(now=at + HOUR))
    write(queue, row(instants[1], "bulk", "copy", started=1))
    now = instants[-1] + 2 * HOUR
    run(series.move(now=now))
    assert table(connection, "series_state", "days_until") == [(midnight + timedelta(days=3),)]
    assert len(table(connection, "series_days", "at")) == 8, "a late minute is added to its day"
    assert len(table(connection, "series_hours", "at")) == 26

    windows = [
        (midnight, now),
        (midnight + 3 * HOUR, midnight + timedelta(days=2, hours=5)),
        (midnight + timedelta(days=1), midnight + timedelta(days=3)),
        (midnight + 20 * HOUR, midnight + 40 * HOUR),
    ]
    for since, until in windows:
        inside = sum(since <= at < until for at in [*instants, instants[1]])
        for by in ("queue", "task"):
            lines = run(over_time.totals(since, until, by=by, now=now)).lines
            assert sum(line.figures.started for line in lines) == inside
        for step in (15 * MINUTE, HOUR):
            for told in (None, "mail"):
                found = run(over_time.series(since, until, step, queue=told, now=now)).lines[0]
                late = 0 if told is None else since <= instants[1] < until
                assert sum(point.figures.started for point in found.points) == inside - late
    daily = run(over_time.series(midnight, midnight + timedelta(days=3), timedelta(days=1), now=now)).lines[0]
    assert [point.figures.started for point in daily.points] == [5, 3, 4]
    connection.execute("truncate pgqueue.series_minutes, pgqueue.series_hours")
    connection.commit()
    again = run(over_time.series(midnight, midnight + timedelta(days=3), timedelta(days=1), now=now)).lines[0]
    assert again == daily, "read from the days"


def test_old_minutes_stay_until_their_hours_are_made(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MADE_AT_ONCE", 1)
    run = queue.database.run
    old = [NOON - n * timedelta(days=40) for n in range(3)]
    write(queue, *(row(at, enqueued=1) for at in old), row(datetime(1970, 1, 1, tzinfo=UTC), enqueued=1))
    write(queue, row(old[2] + 3 * HOUR, enqueued=1))
    for _ in range(4):
        run(series.move(now=NOON + HOUR + 5 * MINUTE))
        run(series.drop(now=NOON + HOUR + 5 * MINUTE))
    assert [at for at, _ in table(connection, "series_minutes", "at, whole")] == [old[0], old[0]]

    for _ in range(4):
        run(series.move(now=NOON + HOUR + 5 * MINUTE))
    days: dict[str, Any] = {"since": NOON - timedelta(days=300), "until": NOON + HOUR}
    assert sum(one.figures.enqueued for one in run(over_time.totals(**days, now=NOON + 2 * HOUR)).lines) == 4


def test_workers_that_write_and_move_at_once_lose_and_double_nothing(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    threads, rounds = 6, 20

    def work(which: int) -> None:
        own = PgQueue(queue.database.dsn)
        for n in range(rounds):
            write(own, row(NOON + n * 7 * MINUTE, f"queue-{which % 3}", started=1, times=[1.0]))
            own.database.run(series.move(now=NOON + n * 7 * MINUTE + timedelta(minutes=which)))
        own.close()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    queue.database.run(series.move(now=NOON + timedelta(days=1)))

    assert table(connection, "series_written", "at") == []
    for name in ("series_minutes", "series_hours"):
        sums = "sum(started), sum((select sum(n) from unnest(run_counts) as n))"
        for whole in ("whole", "not whole"):
            counted = connection.execute(f"select {sums} from pgqueue.{name} where {whole}").fetchall()
            assert counted == [(threads * rounds,) * 2]


MIDDAY = datetime(2031, 5, 4, 12, tzinfo=UTC).timestamp()
SHARES = (0.0, 0.5, 0.95, 0.99, 1.0)
TIMES = st.lists(st.floats(min_value=SMALLEST, max_value=6e8), min_size=1, max_size=200)


def sketch_of(times: list[float]) -> dict[int, int]:
    counts: dict[int, int] = {}
    count_times(counts, sorted(times))
    return counts


def exact(times: list[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


@given(parts=st.lists(TIMES, min_size=1, max_size=5), order=st.randoms())
def test_merged_sketches_are_within_the_error_whatever_the_order(
    parts: list[list[float]], order: random.Random
) -> None:
    sketches = [sketch_of(times) for times in parts]
    order.shuffle(sketches)
    merged: dict[int, int] = {}
    for one in sketches:
        merge(merged, one, one.values())
    times = [time for part in parts for time in part]

    assert sum(merged.values()) == len(times)
    assert merged == sketch_of(times)
    for share, found in zip(SHARES, quantiles(merged, SHARES), strict=True):
        assert abs(found - exact(times, share)) <= ERROR * exact(times, share)


@given(seconds=st.lists(st.integers(min_value=100, max_value=10**13), min_size=1, max_size=200))
def test_waits_until_the_present_are_within_the_error(seconds: list[int]) -> None:
    times = [one / 1e6 for one in seconds]
    counts: dict[int, int] = {}
    count_waits(counts, sorted(MIDDAY - one for one in times), MIDDAY)

    assert sum(counts.values()) == len(times)
    for share, found in zip(SHARES, quantiles(counts, SHARES), strict=True):
        assert abs(found - exact(times, share)) <= ERROR * exact(times, share)


@given(times=st.lists(st.floats(allow_nan=False), max_size=50))
def test_no_time_is_left_out_however_odd(times: list[float]) -> None:
    counts = sketch_of(times)

    assert sum(counts.values()) == len(times)
    assert all(0 <= bin_ < len(BORDERS) for bin_ in counts)


def test_an_instant_in_the_future_is_no_wait() -> None:
    counts: dict[int, int] = {}
    count_waits(counts, [MIDDAY - 1, MIDDAY + 3 * 86_400], MIDDAY)

    assert counts == {0: 1, bisect_left(BORDERS, 1.0): 1}
