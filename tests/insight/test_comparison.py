"""What changed between two windows: real changes are named, and chance is not.

What changed at an instant: which minutes and hours are compared, and with which bounds.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from insight.test_series import HOUR, MINUTE, NOON, row, write

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import over_time, series
from pgqueue.values.insight.comparison import FEW, Comparison, ComparisonLine, compare_windows
from pgqueue.values.insight.series import Figures, Spread
from pgqueue.values.insight.sketch import count_times, quantiles


def spread(times: list[float]) -> Spread | None:
    if not times:
        return None
    sketch: dict[int, int] = {}
    count_times(sketch, sorted(times))
    return Spread(len(times), *quantiles(sketch, (0.5, 0.95, 0.99)))


def figures(
    runs: int, *, median: float = 0.2, failed: int = 0, wait: float = 0.01, seed: int = 0, **given: Any
) -> Figures:
    """A task whose run times are log-normal, as most are."""
    chance = random.Random(seed)  # noqa: S311 - made-up times
    times = [median * chance.lognormvariate(0, 0.6) for _ in range(runs)]
    waits = [wait * chance.lognormvariate(0, 0.8) for _ in range(runs)]
    counts = {"started": runs + failed, "succeeded": runs, "failed": failed}
    return Figures(**{**counts, **given}, wait=spread(waits), run=spread(times))


def one(before: Figures, after: Figures) -> ComparisonLine:
    (line,) = compare_windows({"send": before}, {"send": after})
    return line


def test_a_task_that_takes_twice_as_long_is_slower() -> None:
    line = one(figures(200), figures(200, median=0.4, seed=1))
    assert (line.changes, line.worse) == (("slower",), True)
    assert line.run_ratio == pytest.approx(2, rel=0.2)
    back = one(figures(200, median=0.4), figures(200, seed=1))
    assert (back.changes, back.worse) == (("faster",), False)


def test_a_task_of_which_few_attempts_became_slow_is_slower() -> None:
    """A deploy that makes one call in ten slow leaves the median as it is."""
    before = figures(1000)
    slow = [*[0.2] * 900, *[9.0] * 100]
    line = one(before, Figures(started=1000, succeeded=1000, run=spread(slow)))
    assert "slower" in line.changes
    assert line.run_ratio == pytest.approx(1, rel=0.2)
    assert (line.run_p95_ratio or 0) > 10


def test_a_task_that_fails_more_is_named_with_both_shares() -> None:
    line = one(figures(990, failed=10), figures(900, failed=100, seed=1))
    assert line.changes == ("fails more",)
    assert (line.failed_before, line.failed_after) == (0.01, 0.1)
    assert one(figures(900, failed=100), figures(990, failed=10, seed=1)).changes == ("fails less",)


def test_a_wait_of_milliseconds_delays_nobody() -> None:
    assert one(figures(500), figures(500, wait=0.1, seed=1)).changes == ()
    assert one(figures(500), figures(500, wait=3.0, seed=1)).changes == ("waits longer",)


def test_what_runs_first_or_no_more_is_said() -> None:
    assert one(Figures(), figures(50)).changes == ("new",)
    assert one(figures(50), Figures()).changes == ("gone",)
    assert one(figures(FEW - 1), Figures()).changes == (), "it may only have had nothing to do"


@pytest.mark.parametrize("few", [1, FEW - 1])
def test_few_attempts_are_not_judged(few: int) -> None:
    for line in (
        one(figures(few), figures(500, median=2.0, seed=1)),
        one(figures(500), figures(few, median=2.0, seed=1)),
        one(figures(500), figures(1, failed=few - 1, seed=1)),
    ):
        assert (line.changes, line.few) == ((), True)


def test_chance_is_no_change() -> None:
    """1,000 tasks of which none has changed: with three standard errors a few in a thousand may be named."""
    chance = random.Random(7)  # noqa: S311 - made-up numbers
    sizes = [chance.randrange(FEW, 400) for _ in range(1000)]
    before: dict[str | None, Figures] = {
        str(n): figures(size, failed=size // 20, seed=2 * n) for n, size in enumerate(sizes)
    }
    after: dict[str | None, Figures] = {
        str(n): figures(size, failed=size // 20, seed=2 * n + 1) for n, size in enumerate(sizes)
    }
    named = [line.name for line in compare_windows(before, after) if line.changes]
    assert len(named) < 15


def test_a_change_that_is_sure_but_small_is_none() -> None:
    assert one(figures(20_000), figures(20_000, median=0.22, seed=1)).changes == ()


def test_the_worst_comes_first_and_what_did_not_run_is_left_out() -> None:
    before: dict[str | None, Figures] = {
        name: figures(300, seed=n) for n, name in enumerate(("a", "b", "c", "d"))
    }
    after: dict[str | None, Figures] = {
        "a": figures(300, seed=9),
        "b": figures(300, median=0.5, seed=8),
        "c": figures(300, median=2.0, seed=7),
        "d": figures(200, failed=100, seed=6),
        "e": figures(90),
        "f": Figures(enqueued=5),
    }
    lines = compare_windows(before, after)
    assert [line.name for line in lines] == ["d", "c", "b", "a", "e"]
    assert [line.worse for line in lines] == [True, True, True, False, False]


def started(found: Comparison) -> dict[str | None, tuple[int, int]]:
    return {one.name: (one.before.started, one.after.started) for one in found.lines}


def test_the_minute_of_the_instant_is_in_neither_window(queue: PgQueue) -> None:
    write(queue, *(row(NOON + n * MINUTE, started=10**n) for n in range(7)))
    compare = queue.database.run(
        over_time.compare(NOON + 3 * MINUTE + timedelta(seconds=5), 2 * MINUTE, now=NOON + HOUR)
    )
    assert started(compare) == {"send": (110, 110_000)}
    assert (compare.before_since, compare.before_until) == (NOON + MINUTE, NOON + 3 * MINUTE)
    assert (compare.after_since, compare.after_until) == (NOON + 4 * MINUTE, NOON + 6 * MINUTE)
    exact = queue.database.run(over_time.compare(NOON + 3 * MINUTE, 2 * MINUTE, now=NOON + HOUR))
    assert started(exact) == {"send": (110, 11_000)}, "a whole minute belongs to what is after"


def test_both_windows_are_shorter_where_less_time_has_passed(queue: PgQueue) -> None:
    write(queue, *(row(NOON + n * MINUTE, started=10**n) for n in range(7)))
    found = queue.database.run(
        over_time.compare(NOON + 4 * MINUTE, HOUR, now=NOON + 6 * MINUTE + timedelta(seconds=59))
    )
    assert started(found) == {"send": (1_100, 110_000)}
    assert found.after_until - found.after_since == found.before_until - found.before_since == 2 * MINUTE


@pytest.mark.parametrize("ago", [timedelta(0), timedelta(seconds=59), -HOUR])
def test_an_instant_behind_which_no_minute_is_over_is_refused(queue: PgQueue, ago: timedelta) -> None:
    now = NOON + timedelta(seconds=30)
    with pytest.raises(InvalidOption, match="no whole minute has passed since"):
        queue.database.run(over_time.compare(now - ago, HOUR, now=now))


@pytest.mark.parametrize("length", [HOUR, 13 * HOUR])
def test_what_is_told_by_hours_leaves_out_the_hour_of_the_instant(
    queue: PgQueue, connection: psycopg.Connection[Any], length: timedelta
) -> None:
    """Since the window is long; or since its minutes are no longer kept, and only hours are left."""
    for n in range(-15, 16):
        write(queue, row(NOON + n * HOUR + 7 * MINUTE, started=1))
    later = NOON + timedelta(days=4 if length == HOUR else 1)
    while queue.database.run(series.move(now=later)):
        pass
    if length == HOUR:
        connection.execute("truncate pgqueue.series_minutes")
        connection.commit()
    found = queue.database.run(over_time.compare(NOON + 20 * MINUTE, length, now=later))
    hours = length // HOUR
    assert (found.before_until, found.after_since) == (NOON, NOON + HOUR)
    assert found.after_until == NOON + HOUR + (HOUR * hours)
    assert started(found) == {"send": (hours, hours)}


def test_only_what_is_asked_for_is_compared(queue: PgQueue) -> None:
    for at in (NOON, NOON + MINUTE):
        write(
            queue,
            row(at, "mail", "send", started=1),
            row(at, "mail", "open", started=2),
            row(at, "bulk", "send", started=4),
        )

    def asked(**given: Any) -> dict[str | None, tuple[int, int]]:
        plan = over_time.compare(NOON + MINUTE, MINUTE, **given, now=NOON + 2 * MINUTE)
        return started(queue.database.run(plan))

    assert asked() == {"send": (5, 5), "open": (2, 2)}
    assert asked(by="queue") == {"mail": (3, 3), "bulk": (4, 4)}
    assert asked(queue="mail") == {"send": (1, 1), "open": (2, 2)}
    assert asked(by="queue", task="send") == {"mail": (1, 1), "bulk": (4, 4)}


async def test_it_is_asked_by_the_queue_in_both_ways(queue: PgQueue) -> None:
    now = datetime.now(UTC)
    write(queue, row(now - 30 * MINUTE, started=3), row(now - 90 * MINUTE, started=4))
    found = queue.insight.compare(HOUR)
    assert started(found) == {"send": (4, 3)}
    assert started(await queue.insight.acompare(now - HOUR, 3600)) == {"send": (4, 3)}
    for wrong in (0, -5, datetime(2031, 1, 1)):  # noqa: DTZ001 - no time zone
        with pytest.raises(InvalidOption):
            queue.insight.compare(wrong)
    with pytest.raises(InvalidOption, match="length"):
        queue.insight.compare(HOUR, 0)
    with pytest.raises(InvalidOption, match="by="):
        queue.insight.compare(HOUR, by="colour")  # type: ignore[arg-type]  # refused
