from datetime import timedelta

import click
import pytest

from pgqueue.cli.values import ABOVE_ZERO, LENGTH, names


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
    assert LENGTH.convert(text, None, None) == length


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e3", "5 m", "5y", "9" * 30, "3651d"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no length of time|is too long"):
        LENGTH.convert(text, None, None)


def test_zero_is_refused_where_it_makes_no_sense_in_the_words_of_the_shell() -> None:
    assert LENGTH.convert("0", None, None) == timedelta(0)
    with pytest.raises(
        click.BadParameter, match=r"'0' is too short; use a length above zero, such as 0.5, 30 or 5m"
    ):
        ABOVE_ZERO.convert("0", None, None)
    with pytest.raises(click.BadParameter, match="too short"):
        ABOVE_ZERO.convert("0.0000001", None, None)


def test_names_stand_between_commas() -> None:
    assert names("mail, default") == ["mail", "default"]
