import json
import logging
import math
import sys
from datetime import UTC, datetime

import pytest

from pgqueue.cli.logs import FORMATS, LineFormatter, form_of_parent


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


def record_with(**fields: object) -> logging.LogRecord:
    record = logging.makeLogRecord(
        {"name": "shop", "levelname": "ERROR", "created": 0.25, "msecs": 250.0, "msg": "one\ntwo \ud800"}
    )
    vars(record).update(fields)
    return record


def test_json_is_one_object_a_line_whatever_the_fields_are() -> None:
    error = (ValueError, ValueError("no"), None)
    given = {
        "job": 1,
        "time": "mine",
        "wide": 2**70,
        "nan": math.nan,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "all": [1, math.inf],
        "none": None,
    }
    text = FORMATS["json"]().format(record_with(**given, exc_info=error))
    found = json.loads(text)
    assert "\n" not in text
    assert found.pop("traceback").endswith("ValueError: no")
    assert found == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "error",
        "logger": "shop",
        "message": "one\ntwo \ud800",
        "job": 1,
        "field_time": "mine",
        "wide": 2**70,
        "nan": "nan",
        "at": "2026-01-01 00:00:00+00:00",
        "all": [1, "inf"],
        "none": None,
    }


def test_logfmt_is_one_line_and_no_field_forges_another() -> None:
    text = FORMATS["logfmt"]().format(record_with(**{"level": "info", 'a b="c"\n': 'x" level=info', "": 1}))
    assert text.splitlines() == [text]
    assert text.startswith("time=1970-01-01T00:00:00.250Z level=error logger=shop message=")
    assert text.endswith(r""" field_level=info a_b__c__="x\" level=info" _=1""")


def test_a_process_of_a_quarantined_job_writes_its_log_as_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, taken in (("json", "json"), ("nonsense", "text")):
        monkeypatch.setenv("PGQUEUE_LOG_FORMAT", said)
        assert form_of_parent() == taken
    monkeypatch.delenv("PGQUEUE_LOG_FORMAT")
    assert form_of_parent() == "text"
