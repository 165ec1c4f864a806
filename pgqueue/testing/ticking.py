"""Asserts when a schedule ticks, clock changes included."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import UnknownSchedule
from pgqueue.values.nearest import did_you_mean
from pgqueue.values.schedules.rule import Tick
from pgqueue.values.schedules.schedule import Timing


def assert_ticks(queue: PgQueue, name: str, *, after: datetime, expected: Sequence[datetime | str]) -> None:
    """Assert the next ticks of a schedule that the app declares. No database is needed.

    Args:
        queue: the app's.
        name: of the schedule; the task's name, where the declaration gives no other.
        after: an instant; the ticks are those later than it.
        expected: the instants, in order, with a time zone; or texts in ISO 8601.

    Raises:
        AssertionError: the ticks are others; the message lists them, with what a clock change does to each.
        UnknownSchedule: the app declares none of this name.
    """
    declared = {one.name: one.timing for one in queue.schedules.declared()}
    if name not in declared:
        raise UnknownSchedule(f"the app declares no schedule {name!r}{did_you_mean(name, declared)}")
    wanted = [_instant(one) for one in expected]
    found = [tick.at for tick in islice(_ticks_that_run(declared[name], after), len(wanted))]
    if found != wanted:
        shown = islice(declared[name].after(after), len(wanted) + 3)
        raise AssertionError(
            "\n".join(
                [
                    f"the ticks of {name!r} after {after} are others:",
                    *(f"  expected {at}" for at in wanted),
                    *map(_line, shown),
                ]
            )
        )


def _ticks_that_run(timing: Timing, after: datetime) -> "filter[Tick]":
    return filter(lambda tick: tick.runs, timing.after(after.astimezone(UTC)))


def _instant(given: datetime | str) -> datetime:
    at = datetime.fromisoformat(given) if isinstance(given, str) else given
    return at.astimezone(UTC)


def _line(tick: Tick) -> str:
    note = "" if tick.note is None else f" ({tick.note})"
    return f"  found    {tick.at}, local time {tick.wall}{note}"
