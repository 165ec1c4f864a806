"""How the shell shows instants and lengths of time, in the reader's time zone."""

import time
from datetime import datetime

_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def local(instant: datetime) -> str:
    """An instant in the reader's time zone."""
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def zone() -> str:
    """The name of the reader's time zone; both names if it has a summer time."""
    return "/".join(dict.fromkeys(time.tzname if time.daylight else time.tzname[:1]))


def age(instant: datetime, now: datetime) -> str:
    """How far an instant is from now, in one unit: ``3 h ago``, ``in 5 min``."""
    seconds = (now - instant).total_seconds()
    whole = int(abs(seconds))
    said = next(
        (f"{whole // length:,} {name}" for length, name, *_ in _UNITS if whole >= length), f"{whole} s"
    )
    return f"{said} ago" if seconds >= 0 else f"in {said}"


def short_duration(seconds: float | None) -> str:
    """A length of time, short: ``340 ms``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for length, name, less, less_name in _UNITS:
        if whole >= length:
            return f"{whole // length:,} {name} {whole % length // less} {less_name}"
    return f"{whole} s"
