"""What changed at an instant: which minutes and hours are compared, and with which bounds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from insight.test_series import HOUR, MINUTE, NOON, row, write

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import over_time, series
from pgqueue.values.insight.comparison import Comparison


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
