import logging
import sys
from datetime import datetime

import pytest

from pgqueue.cli.logs import LineFormatter


def line(message: str = "job done", **fields: object) -> str:
    record = logging.makeLogRecord(
        {"name": "pgqueue.worker", "levelname": "INFO", "created": 0.25, "msecs": 250.0}
    )
    record.msg = message
    vars(record).update(fields)
    return LineFormatter().format(record)


def test_a_record_is_time_level_logger_message_and_fields() -> None:
    assert line(job=42, task="shop.send") == (
        "1970-01-01T00:00:00.250Z info pgqueue.worker job done job=42 task=shop.send"
    )


def test_the_time_is_iso_8601_in_utc() -> None:
    assert datetime.fromisoformat(line().split()[0]).timestamp() == 0.25


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("one\ntwo", r'"one\ntwo"'),
        ("\x1b[31m", r'"\u001b[31m"'),
        ([1, 2], '"[1, 2]"'),
        ("größe", "größe"),
    ],
)
def test_a_field_that_is_not_one_plain_word_is_quoted(value: object, shown: str) -> None:
    assert line(field=value).endswith(f" field={shown}")


def test_a_message_cannot_begin_a_new_record() -> None:
    assert "\n" not in line("one\r\n1970-01-01T00:00:00.250Z info pgqueue.worker forged")


def test_a_traceback_stands_beneath_its_record_indented() -> None:
    try:
        int("one\ntwo")
    except ValueError:
        first, *rest = line(exc_info=sys.exc_info(), job=1).splitlines()
    assert first.endswith("job done job=1")
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-1].startswith("    ValueError: ")
    assert all(one.startswith("    ") for one in rest)
