"""Values as text for people: spans of time, shares, hours, names.

Queue names, tenants and messages are user text. This module shortens them and escapes control characters;
:mod:`pgqueue.spark.report.rendering` escapes them for HTML.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from pgqueue.values.payloads.storable import spelled_out

MOST_LETTERS = 120
TWO_DIGITS = 9.95
"""A larger number has two digits before the point when rounded."""
NONE = "\N{EN DASH}"

_EPOCH = date(1970, 1, 1)
_SPANS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "h"), (120, 60, "min"), (1, 1, "s"))


def clean(text: str, most: int = MOST_LETTERS) -> str:
    """User text on one line: control characters as escapes, the end cut off."""
    shown = spelled_out(text[: most + 1].encode("utf-8", "backslashreplace").decode())
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def task_of(queue: str, task: str) -> str:
    """A task and its queue."""
    return f"{clean(task)} ({clean(queue)})"


def span(seconds: float | None) -> str:
    """A length of time with about two digits: 340 ms, 4.2 s, 41 s, 3.5 min."""
    if seconds is None:
        return NONE
    for least, unit, name in _SPANS:
        if abs(seconds) >= least:
            return f"{_digits(seconds / unit)} {name}"
    return f"{_digits(seconds * 1e3)} ms" if seconds else "0 s"


def number(value: float | None) -> str:
    """A number; with digits after the point only if it has few before it."""
    return NONE if value is None else _digits(value)


def count(value: float | None) -> str:
    """A whole number."""
    return NONE if value is None else f"{value:,.0f}"


def some(value: float, one: str, many: str | None = None) -> str:
    """A count with its noun: 1 job, 2 jobs."""
    return f"{count(value)} {one if value == 1 else many or one + 's'}"


def share(value: float | None) -> str:
    """A share from 0 to 1 in percent; near 0% and 100% with more digits."""
    if value is None:
        return NONE
    edge = min(abs(value), abs(1 - value)) * 100
    digits = 0 if edge >= 10 or edge == 0 else 1 if edge >= 1 else 2  # noqa: PLR2004 - two digits that count
    return f"{value:.{digits}%}"


def times(ratio: float) -> str:
    """A ratio: 12 times, 3.4 times."""
    return f"{_digits(ratio)} times"


def hour(number: int) -> str:
    """The hour with this number, counted from 1970, UTC."""
    return f"{instant(number):%a %d %b, %H:%M}"


def hours(first: int, last: int) -> str:
    """From the beginning of one hour to the end of another."""
    if last - first >= 24:  # noqa: PLR2004 - hours of a day
        return f"{hour(first)} to {hour(last + 1)}"
    return f"{hour(first)}\N{EN DASH}{instant(last + 1):%H:%M}"


def day(number: int) -> str:
    """The day with this number, counted from 1970."""
    return f"{day_of(number):%a %d %b %Y}"


def instant(number: int) -> datetime:
    """The beginning of the hour with this number, counted from 1970."""
    return datetime.fromtimestamp(number * 3_600, UTC)


def day_of(number: int) -> date:
    """The date of the day with this number, counted from 1970."""
    return _EPOCH + timedelta(days=number)


def day_number(value: date) -> int:
    """A date's number, counted in days from 1970."""
    return (value - _EPOCH).days


def list_text(parts: Sequence[str], most: int = 3) -> str:
    """The first parts as a list, and the number of those left out."""
    if len(parts) > most:
        return f"{', '.join(parts[:most])} and {len(parts) - most} more"
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def _digits(value: float) -> str:
    if abs(value) >= TWO_DIGITS or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
