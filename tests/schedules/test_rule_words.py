"""A schedule's rule in words."""

from datetime import UTC, datetime, timedelta

import pytest

from pgqueue.values.schedules.schedule import Timing
from pgqueue.values.schedules.words import rule_in_words


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/20 * * * * *", "every 20 seconds"),
        ("*/2 * * * *", "every 2 minutes"),
        ("*/7 * * * *", "every seventh minute of every hour"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("0 */2 * * *", "every 2 hours, at minute 0"),
        ("0 */5 * * *", "at minute 0 past every fifth hour"),
        ("30 1 * * *", "at 01:30 every day"),
        ("0 9 * * 1-5", "at 09:00 on weekdays"),
        ("0 9,17 * * MON,THU", "at 09:00 and 17:00 on Monday and Thursday"),
        ("0 9 * * SAT,SUN", "at 09:00 at weekends"),
        ("0 0 L * *", "at 00:00 on the last day of every month"),
        ("@daily", "at 00:00 every day"),
        ("@HOURLY", "at the start of every hour"),
    ],
)
def test_an_expression_is_said_in_words_with_its_time_zone(expression: str, said: str) -> None:
    assert rule_in_words(Timing(cron=expression, timezone="Europe/London")) == f"{said}, Europe/London"


def test_an_interval_and_an_instant_are_said_in_words() -> None:
    assert rule_in_words(Timing(every=timedelta(minutes=15))) == "every 15 min"
    assert rule_in_words(Timing(at=datetime(2026, 5, 1, 9, tzinfo=UTC))) == "once, at 2026-05-01 09:00:00 UTC"
