"""A stretch of time in steps, as series have it. Pure rules."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.insight.series import EPOCH, MINUTE, floor

MOST_STEPS = 1_500
ABOUT = 60
"""Steps that a stretch has, give or take, where the caller does not say how long they are."""
STEPS = [timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of time.

    Attributes:
        since: the first instant.
        until: behind the last instant; a whole number of steps later.
        step: how long a step is.
    """

    since: datetime
    until: datetime
    step: timedelta

    @property
    def span(self) -> dict[str, object]:
        """The parameters of a statement."""
        return {"since": self.since, "until": self.until, "step": self.step}

    @property
    def instants(self) -> Sequence[datetime]:
        """When each step begins."""
        return [self.since + self.step * place for place in range((self.until - self.since) // self.step)]

    def by_steps_of(self, unit: timedelta) -> bool:
        """Whether each step is a number of whole hours or days."""
        return not (self.step % unit or (self.since - EPOCH) % unit)


def ends(
    since: datetime | timedelta, until: datetime | None, *, clock: datetime
) -> tuple[datetime, datetime]:
    """The first instant, and the one behind the last, in UTC.

    Args:
        since: an instant, or how long before ``until``.
        until: an instant; None: now.
        clock: now.

    Raises:
        InvalidOption: there is nothing between them.
    """
    end = until or clock
    start = since if isinstance(since, datetime) else end - since
    if start >= end:
        raise InvalidOption(f"since={start.isoformat()} is not before until={end.isoformat()}")
    return start.astimezone(UTC), end.astimezone(UTC)


def in_steps(start: datetime, end: datetime, step: timedelta | None, *, least: timedelta = MINUTE) -> Stretch:
    """A stretch from the step in which it begins to the one in which it ends.

    Args:
        start: the first instant.
        end: behind the last one.
        step: how long a step is; None: so long that there are about 60.
        least: then a step is not shorter than this.

    Raises:
        InvalidOption: a step is no whole number of minutes, or there are more than 1,500.
    """
    step = _fitting_step(end - start, least) if step is None else _check_step(step)
    start = floor(start, step)
    steps = -(-(end - start) // step)
    if steps > MOST_STEPS:
        raise InvalidOption(
            f"step={step}: that makes {steps:,} steps; use a longer one, for at most {MOST_STEPS:,}"
        )
    return Stretch(start, start + step * steps, step)


def _fitting_step(length: timedelta, least: timedelta) -> timedelta:
    return next((step for step in STEPS if step >= least and length <= ABOUT * 1.5 * step), STEPS[-1])


def _check_step(step: timedelta) -> timedelta:
    if step % MINUTE or step < MINUTE:
        raise InvalidOption(f"step={step}: use whole minutes")
    return step
