"""A clock that stands still until a test moves it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pgqueue.errors import Duration, InvalidOption, as_duration


class Clock:
    """What time it is for jobs: when they are enqueued, when they are due, when they ran.

    It does not tick. Tests decide when time passes, so that no job becomes due between two steps of a test.
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
        return f"<Clock {self._now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """The instant it shows."""
        return self._now

    def travel(self, by: Duration) -> datetime:
        """Move the clock forward, or with a negative duration back.

        Args:
            by: seconds, or a timedelta.

        Returns:
            The instant it shows then.

        Raises:
            InvalidOption: it is neither, or leads out of the years that Python has.
        """
        try:
            self._now += as_duration("by", by)
        except OverflowError:
            raise InvalidOption(
                f"by={by!r}: from {self._now.isoformat()}, that leads out of the years 1 to 9999"
            ) from None
        return self._now

    @contextmanager
    def at(self, instant: datetime) -> Iterator["Clock"]:
        """Show an instant for the length of a block, and the previous one after it.

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
