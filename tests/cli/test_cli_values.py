from datetime import timedelta

import click
import pytest

from pgqueue.cli.values import names, seconds


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30", timedelta(seconds=30)),
        ("0.5", timedelta(seconds=0.5)),
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1.5h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_length_of_time_is_seconds_or_has_a_unit(text: str, length: timedelta) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e3", "5 m", "5y", "9" * 30])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no length of time|is too long"):
        seconds(text)


def test_names_stand_between_commas() -> None:
    assert names("mail, default") == ["mail", "default"]
