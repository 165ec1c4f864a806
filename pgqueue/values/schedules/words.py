"""A schedule's rule in words, for people: ``every 5 minutes``, ``at 09:00 on weekdays, Europe/London``. Pure."""

import re
from datetime import datetime
from typing import Final

from pgqueue.values.schedules.rule import ALIASES
from pgqueue.values.schedules.schedule import Timing
from pgqueue.values.workers.lease import duration_text

ORDINALS: Final = {"second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6}
"""How cronsim writes the steps that it does not write in digits, of those that divide 60 and 24."""
_SOME_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time
_STEP: Final = re.compile(r"Every (\w+) (second|minute) of every (?:minute|hour)")
_HOURS: Final = re.compile(r"At minute (\d+) past every (\w+) hour")
_DAYS: Final = (
    (" on Monday through Friday", " on weekdays"),
    (" on Sunday and Saturday", " at weekends"),
    (" on Saturday and Sunday", " at weekends"),
)


def rule_in_words(timing: Timing) -> str:
    """When ticks are, in words; of ``cron`` with its time zone."""
    if timing.cron is not None:
        return f"{_cron_in_words(timing.cron)}, {timing.timezone}"
    if timing.every is not None:
        return f"every {duration_text(timing.every.total_seconds())}"
    return f"once, at {timing.at:%Y-%m-%d %H:%M:%S} UTC"


def _cron_in_words(expression: str) -> str:
    from cronsim import CronSim  # noqa: PLC0415 - for the apps that have schedules

    written = ALIASES.get(expression.strip().lower(), expression)
    try:
        said = CronSim(written, _SOME_DAY).explain()
    except Exception:  # noqa: BLE001 - the expression itself says it, too
        return expression
    if (found := _STEP.fullmatch(said)) is not None and (count := _divisor(found[1], 60)):
        return f"every {count} {found[2]}s"
    if (found := _HOURS.fullmatch(said)) is not None and (count := _divisor(found[2], 24)):
        return f"every {count} hours, at minute {found[1]}"
    for days, words in _DAYS:
        said = said.removesuffix(days) + words if said.endswith(days) else said
    return said[:1].lower() + said[1:]


def _divisor(text: str, whole: int) -> int | None:
    """The number of a step that divides the hour, or the day, into equal parts."""
    digits = text.removesuffix("th")
    count = ORDINALS.get(text) or (int(digits) if digits.isdecimal() else None)
    return count if count and whole % count == 0 else None
