"""When a schedule's ticks are: cron expressions in a time zone, intervals, single instants. Pure: the instant is given.

A rule answers two questions, :meth:`Rule.after` and :meth:`Rule.before`, with ticks in UTC. What becomes of a tick that was
missed is decided in :mod:`pgqueue.values.schedules.due_ticks`, and how a schedule is stored in :mod:`pgqueue.store.schedules.schedules`.

``cronsim`` parses expressions and finds the wall times that match; it is imported when the first expression is met. What
a clock change does to the wall times is decided here. The time line is cut into segments of one UTC offset
(:mod:`pgqueue.values.schedules.zone`). Within a segment, each matching wall time is one instant. At a change:

- Clocks go forward: the wall times of the gap do not exist. ``gap="skip"`` drops them. ``gap="shift"`` runs one tick for
  all of them at the first instant after the gap.
- Clocks go back: the wall times of the overlap exist twice. ``repeat="twice"`` runs at both instants, ``repeat="once"`` at
  the first.

The default is what cron does: an expression that names its hours and its minutes shifts, and runs once; one whose hours or
minutes begin with ``*`` follows elapsed time: it skips, and runs twice.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, get_args

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import FIRST_TIME, LAST_TIME, one_of
from pgqueue.values.schedules.zone import SECOND, Segment, find_zone, segment_at

Gap = Literal["skip", "shift"]
Repeat = Literal["once", "twice"]
LONGEST_EXPRESSION = 200
SHORTEST_INTERVAL, LONGEST_INTERVAL = timedelta(seconds=1), timedelta(days=3650)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FAR = timedelta(days=2)
"""More than any clock change."""
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


DAY = -3
FIELDS = {
    "second": (-6, "second", "0 to 59"),
    "minute": (-5, "minute", "0 to 59"),
    "hour": (-4, "hour", "0 to 23"),
    "day-of-month": (DAY, "day of the month", "1 to 31, or L for the last"),
    "month": (-2, "month", "1 to 12, or JAN to DEC"),
    "day-of-week": (-1, "day of the week", "0 to 7, or SUN to SAT"),
}
"""What the parser calls each field: its place, its name and its values."""


class ClockChange(StrEnum):
    """What a clock change does to a tick."""

    SHIFTED = "shifted: this time does not exist"
    SKIPPED = "skipped: this time does not exist"
    FIRST = "first of two: the clock goes back"
    SECOND = "second of two: the clock has gone back"
    ONCE = "only once: the clock goes back"
    REPEATED = "not again: the clock has gone back"


NOT_RUN = frozenset({ClockChange.SKIPPED, ClockChange.REPEATED})


class Tick(NamedTuple):
    """One tick, or one that a clock change drops.

    Attributes:
        at: the instant, in UTC; of a dropped tick in a gap, the end of the gap.
        wall: the wall time that the expression names, in the schedule's time zone.
        note: what a clock change does to it; None: there is none near it.
    """

    at: datetime
    wall: datetime
    note: ClockChange | None = None

    @property
    def runs(self) -> bool:
        """Whether it is a tick at all."""
        return self.note not in NOT_RUN


class Rule(Protocol):
    """When ticks are."""

    def after(self, instant: datetime) -> Iterator[Tick]:
        """Ticks later than an instant, the earliest first, those included that a clock change drops."""

    def before(self, instant: datetime) -> Iterator[Tick]:
        """Ticks earlier than an instant, the latest first, those included that a clock change drops."""


@dataclass(frozen=True, slots=True)
class Once:
    """One tick, at one instant."""

    at: datetime
    zone: str = "UTC"

    def after(self, instant: datetime) -> Iterator[Tick]:
        """See :class:`Rule`."""
        if instant < self.at:
            yield _plain(self.at, self.zone)

    def before(self, instant: datetime) -> Iterator[Tick]:
        """See :class:`Rule`."""
        if self.at < instant:
            yield _plain(self.at, self.zone)


@dataclass(frozen=True, slots=True)
class Every:
    """A tick every ``interval`` of elapsed time, at ``anchor`` and at whole intervals from it, in both directions."""

    interval: timedelta
    anchor: datetime = EPOCH
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not SHORTEST_INTERVAL <= self.interval <= LONGEST_INTERVAL:
            raise InvalidOption(
                f"every={self.interval}: use seconds or a timedelta from 1 second to 10 years"
            )

    def after(self, instant: datetime) -> Iterator[Tick]:
        """See :class:`Rule`."""
        at = self.anchor + ((instant - self.anchor) // self.interval + 1) * self.interval
        while at < LAST_TIME:
            yield _plain(at, self.zone)
            at += self.interval

    def before(self, instant: datetime) -> Iterator[Tick]:
        """See :class:`Rule`."""
        at = self.anchor - ((self.anchor - instant) // self.interval + 1) * self.interval
        while at >= FIRST_TIME:
            yield _plain(at, self.zone)
            at -= self.interval


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of 5 or 6 fields (seconds first), or an alias such as ``@daily``, in a time zone.

    Raises:
        InvalidOption: the expression does not parse, never matches or is too long, or there is no such time zone.
    """

    expression: str
    zone: str = "UTC"
    gap: Gap | None = None
    repeat: Repeat | None = None

    def __post_init__(self) -> None:
        fields = _fields(self.expression)
        find_zone(self.zone)
        elapsed = any(field.startswith("*") for field in fields[-5:-3])
        self._choose("gap", get_args(Gap), "skip" if elapsed else "shift")
        self._choose("repeat", get_args(Repeat), "twice" if elapsed else "once")

    def after(self, instant: datetime) -> Iterator[Tick]:
        """See :class:`Rule`."""
        cursor, inclusive = max(instant, FIRST_TIME).astimezone(UTC), False
        while cursor < LAST_TIME:
            segment = segment_at(self.zone, cursor)
            first = segment.wall(cursor)
            wall = yield from self._within(segment, self._walls(first - SECOND if inclusive else first))
            if wall is None:
                return
            inclusive = wall - FAR <= segment.wall(segment.end)
            cursor = segment.end if inclusive else segment.instant(wall - FAR)
            if inclusive and (changed := self._in_gap(segment_at(self.zone, segment.end))):
                yield changed

    def before(self, instant: datetime) -> Iterator[Tick]:
        """See :class:`Rule`."""
        cursor = min(instant, LAST_TIME).astimezone(UTC)
        while cursor > FIRST_TIME:
            segment = segment_at(self.zone, cursor - MICROSECOND)
            walls = self._walls(segment.wall(cursor), reverse=True)
            wall = yield from self._within(segment, walls)
            if wall is None:
                return
            if wall + FAR < segment.wall(segment.start):
                cursor = segment.instant(wall + FAR)
                continue
            if changed := self._in_gap(segment):
                yield changed
            cursor = segment.start

    def _choose(self, what: str, choices: tuple[str, ...], default: str) -> None:
        given = getattr(self, what)
        object.__setattr__(
            self, what, default if given is None else one_of(what, given, choices, listed=repr)
        )

    def _within(self, segment: Segment, walls: Iterator[datetime]) -> Generator[Tick, None, datetime | None]:
        """Yield the ticks of matching wall times, as long as they are in the segment; return the first wall time that is not."""
        first, end = segment.wall(segment.start), segment.wall(segment.end)
        for wall in walls:
            if not first <= wall < end:
                return wall
            if (
                wall > first or self.gap == "skip" or self._in_gap(segment) is None
            ):  # else the shifted tick is there
                yield Tick(segment.instant(wall), wall, self._note(segment, wall))
        return None

    def _note(self, segment: Segment, wall: datetime) -> ClockChange | None:
        if wall < segment.wall(segment.start) + max(segment.before - segment.offset, timedelta(0)):
            return ClockChange.SECOND if self.repeat == "twice" else ClockChange.REPEATED
        if wall >= segment.wall(segment.end) - max(segment.offset - segment.behind, timedelta(0)):
            return ClockChange.FIRST if self.repeat == "twice" else ClockChange.ONCE
        return None

    def _in_gap(self, segment: Segment) -> Tick | None:
        """The tick for the wall times that the change at the beginning of a segment leaves out."""
        if segment.offset <= segment.before:
            return None
        first = segment.wall(segment.start)
        wall = next(self._walls(first - (segment.offset - segment.before) - SECOND), None)
        if wall is None or wall >= first:
            return None
        return Tick(segment.start, wall, ClockChange.SHIFTED if self.gap == "shift" else ClockChange.SKIPPED)

    def _walls(self, wall: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        """Yield the matching wall times after one, or before one; the iterator ends where there is none in fifty years."""
        from cronsim import CronSim  # noqa: PLC0415 - for the apps that have schedules

        return CronSim(" ".join(_fields(self.expression)), wall, reverse)


def _plain(at: datetime, zone: str) -> Tick:
    at = at.astimezone(UTC)
    return Tick(at, at.astimezone(find_zone(zone)).replace(tzinfo=None))


@lru_cache(maxsize=4096)
def _fields(expression: str) -> tuple[str, ...]:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - for the apps that have schedules

    if not isinstance(expression, str) or not 1 <= len(expression) <= LONGEST_EXPRESSION:
        raise InvalidOption(
            f"cron={expression!r:.80}: use a text of 1 to {LONGEST_EXPRESSION} characters, such as '*/5 * * * *'"
        )
    written = ALIASES.get(expression.strip().lower(), expression)
    fields = tuple(written.split())
    try:
        next(CronSim(" ".join(fields), datetime(2000, 1, 1)))  # noqa: DTZ001 - a wall time
    except StopIteration:
        raise InvalidOption(
            f"cron={expression!r}: no time ever matches; correct the day or the month"
        ) from None
    except (CronSimError, AssertionError, ValueError, RecursionError) as error:
        raise InvalidOption(f"cron={expression!r}: {_mistake(fields, str(error))}") from None
    return fields


def _mistake(fields: tuple[str, ...], said: str) -> str:
    if fields and fields[0].startswith("@"):
        return f"use one of {', '.join(ALIASES)}"
    if len(fields) not in (5, 6):
        return (
            f"it has {len(fields)} fields; use 5 (minute, hour, day of the month, month, day of the week), "
            "or 6, with seconds first"
        )
    place, name, values = FIELDS.get(said.removeprefix("Bad "), (0, "", ""))
    if not name:
        return "it is not in cron's form"
    if place == DAY and _parses([*fields[:-2], "*", fields[-1]]):
        return f"no month of {fields[-2]!r} has a day {fields[DAY]!r}; correct the day or the month"
    return f"the {name} is {fields[place]!r}; use {values}, with lists (1,3), ranges (1-3) and steps (*/3)"


def _parses(fields: list[str]) -> bool:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - for the apps that have schedules

    try:
        CronSim(" ".join(fields), EPOCH.replace(tzinfo=None))
    except (CronSimError, AssertionError, ValueError):
        return False
    return True
