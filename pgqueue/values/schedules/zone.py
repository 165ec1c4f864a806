"""Time zones: which there are, and the stretches of time in which one has a single offset from UTC. Pure.

What a clock change does to a schedule's ticks is decided in :mod:`pgqueue.values.schedules.rule`.
"""

from bisect import bisect_right
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pgqueue.errors import InvalidOption
from pgqueue.values.hints import did_you_mean

SECOND = timedelta(seconds=1)
SAMPLED = timedelta(days=3)
"""No zone has changed its offset twice within this time since 1900: the nearest two changes are 3.98 days apart (Freetown, 1939).
A finer sample would cost: with 6 hours, a first look at schedules in 100 zones took 3.8 s, and with 3 days 0.26 s."""


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo:
    """A time zone by its name.

    Raises:
        InvalidOption: there is none; the message suggests the nearest.
    """
    with suppress(ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        if name in available_timezones():  # else a path of the machine, such as "posixrules", may answer
            return ZoneInfo(name)
    raise InvalidOption(
        f"timezone={name!r:.80}: there is no such time zone{did_you_mean(str(name), available_timezones())}"
    )


class Segment(NamedTuple):
    """A stretch of time in which a zone has one offset from UTC.

    Attributes:
        start: its first instant.
        end: the first instant after it.
        offset: the wall time less UTC.
        before: the offset before ``start``; ``offset`` itself, where no change is near.
        behind: the offset from ``end`` on; ``offset`` itself, where no change is near.
    """

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta
    behind: timedelta

    def wall(self, instant: datetime) -> datetime:
        """What clocks show at an instant, with the offset of this segment."""
        return instant.replace(tzinfo=None) + self.offset

    def instant(self, wall: datetime) -> datetime:
        """When clocks show a wall time, with the offset of this segment."""
        return (wall - self.offset).replace(tzinfo=UTC)


def segment_at(zone: str, instant: datetime) -> Segment:
    """The segment of a zone that an instant in UTC is in; at its ends are changes, or the bounds of three years."""
    years = range(instant.year - 1, instant.year + 2)
    changes = [change for year in years for change in _changes(zone, year)]
    place = bisect_right(changes, instant)
    start = changes[place - 1] if place else _new_year(years[0])
    end = changes[place] if place < len(changes) else _new_year(years[-1] + 1)
    return Segment(start, end, _offset(zone, start), _offset(zone, start - SECOND), _offset(zone, end))


@lru_cache(maxsize=4096)
def _changes(zone: str, year: int) -> tuple[datetime, ...]:
    """Return the first instants of new offsets within a year."""
    found = []
    at, end = _new_year(year) - SECOND, _new_year(year + 1) - SECOND
    offset = _offset(zone, at)
    while at < end:
        later = min(at + SAMPLED, end)
        then = _offset(zone, later)
        if offset != then:
            found.append(_change(zone, at, later))
        at, offset = later, then
    return tuple(found)


def _change(zone: str, at: datetime, later: datetime) -> datetime:
    """The first second with the offset of ``later``."""
    while later - at > SECOND:
        middle = at + ((later - at) // 2 // SECOND) * SECOND
        if _offset(zone, middle) == _offset(zone, at):
            at = middle
        else:
            later = middle
    return later


def _new_year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def _offset(zone: str, instant: datetime) -> timedelta:
    return instant.astimezone(find_zone(zone)).utcoffset() or timedelta(0)
