"""How the jobs of a batch task are gathered: how many in a call, for how long the first one waits, and which go together."""

from collections.abc import Sequence
from dataclasses import dataclass

from pgqueue.errors import Duration, InvalidOption, as_duration
from pgqueue.values.jobs.options import check_number

SIZES = range(1, 1_001)
"""One statement records at most as many verdicts."""
LONGEST_WAIT = 60.0
"""Seconds. Jobs that wait for others are claimed: no other worker can run them."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The policy of a batch task, checked.

    Attributes:
        size: the most jobs of a call.
        wait: for how many seconds the first job of a call waits for others.
        by: the arguments of which all jobs of a call have the same values.
    """

    size: int
    wait: float
    by: tuple[str, ...]


def batch_policy(size: int, wait: Duration, by: str | Sequence[str]) -> BatchPolicy:
    """The policy that options of ``batch_task`` describe.

    Raises:
        InvalidOption: a value is out of its range.
    """
    check_number("size", size, SIZES)
    seconds = as_duration("wait", wait)
    if seconds is None or not 0 <= seconds.total_seconds() <= LONGEST_WAIT:
        raise InvalidOption(
            f"wait={wait!r}: use seconds or a timedelta, from zero to {LONGEST_WAIT:.0f} seconds"
        )
    return BatchPolicy(size, seconds.total_seconds(), _names(by))


def _names(by: str | Sequence[str]) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, list | tuple) else ("",)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(f"by={by!r}: use the names of arguments, for example by=('tenant',)")
    return names
