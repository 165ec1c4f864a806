"""Values on the command line: spans of time, instants, JSON objects, names, job ids.

The functions are option types; click shows their names. What is out of range is the core's to refuse.
"""

import re
from datetime import date, datetime, timedelta
from typing import Any

import click
import msgspec

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")

JOB_ID = click.IntRange(min=1, max=(1 << 63) - 1)


def seconds(value: str) -> timedelta:
    """A length of time: seconds, or a number with s, m, h, d or w behind it."""
    match = _SPAN.fullmatch(value)
    if match is None:
        raise click.BadParameter(
            f"{value!r} is no length of time; use seconds, or a number with s, m, h, d or w."
        )
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise click.BadParameter(f"{value!r} is too long.") from None


def day(value: str) -> date:
    """A day."""
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no day; use one like 2030-01-31.") from None


def instant(value: str) -> datetime:
    """A time in ISO 8601, with its time zone."""
    example = "use one like 2030-01-31T08:00:00+01:00, or Z for UTC"
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no ISO 8601 time; {example}.") from None
    if read.utcoffset() is None:
        raise click.BadParameter(f"{value!r} has no time zone, so it names no instant; {example}.")
    return read


def json_object(value: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        return msgspec.json.decode(value.encode(), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f"{value!r} is no JSON object ({error}); use one like '{{\"id\": 42}}'."
        ) from None


def names(value: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in value.split(",")]
