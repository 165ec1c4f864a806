"""A clock that stands still until a test moves it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from pgqueue.errors import InvalidOption


class Clock:
    """What time it is for jobs: when they are enqueued, when they are due, when they ran.

    It does not tick. Tests decide when time passes, so that nothing becomes due while nobody looks.
    """

    def __init__(self, now: datetime | None = None) -> None:
        """Set the clock.

        Args:
            now: the instant to show, with a time zone; by default the present one.

        Raises:
            InvalidOption: the instant has no time zone.
        """
        self._now = datetime.now(UTC) if now is None else _instant(now)

    def __repr__(self) -> str:
        """Like ``<Clock 2030-01-01T12:00:00+00:00>``."""
        return f"<Clock {self._now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """The instant it shows."""
        return self._now

    def travel(self, by: timedelta) -> datetime:
        """Move the clock; forth, or with a negative duration back.

        Returns:
            The instant it shows then.
        """
        self._now += by
        return self._now

    @contextmanager
    def at(self, instant: datetime) -> Iterator["Clock"]:
        """Show an instant for the length of a block, and the former one after it.

        Raises:
            InvalidOption: the instant has no time zone.
        """
        before, self._now = self._now, _instant(instant)
        try:
            yield self
        finally:
            self._now = before


def _instant(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise InvalidOption(
            f"now={moment!r} has no time zone, so it names no instant; use tzinfo=timezone.utc"
        )
    return moment
