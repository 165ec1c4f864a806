"""Lengths of time as people write them: seconds, or a number with a unit. The command line and the dashboard read them here."""

import re
from datetime import timedelta
from typing import Final

from pgqueue.errors import LONGEST_DELAY, InvalidOption

WRITTEN: Final = "seconds, or 90s, 15m, 2h, 7d"
"""What a hint says."""
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LENGTH: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhdw]?)")


def read_length(text: str, *, above_zero: bool = False) -> timedelta:
    """Read a length of time of up to ten years, the longest in all of pgqueue.

    Args:
        text: seconds, or a number with s, m, h, d or w behind it.
        above_zero: whether zero is out of range.

    Raises:
        InvalidOption: it cannot be read, or is out of range.
    """
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise InvalidOption(
            f"{text!r:.40} is no length of time; use seconds, or a number with s, m, h, d or w"
        )
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > LONGEST_DELAY.total_seconds():
        raise InvalidOption(f"{text!r:.40} is too long; use ten years (3650d) or less")
    length = timedelta(seconds=seconds)
    if above_zero and not length:
        raise InvalidOption(f"{text!r:.40} is too short; use a length above zero, such as 0.5, 30 or 5m")
    return length
