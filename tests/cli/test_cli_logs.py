"""The log of a worker waits for no reader: a full pipe stops neither its event loop nor its heartbeat."""

import json
import logging
import math
import os
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from looking import wait_until

from pgqueue.cli import logs
from pgqueue.cli.logs import FORMATS, LONGEST, MOST_ITEMS, LineFormatter, LogWriter, form_of_parent


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


def test_a_long_message_and_a_long_list_are_cut_once_in_every_format() -> None:
    record = record_with(msg="x" * (LONGEST + 5), many=["y"] * 2_000)
    found = json.loads(FORMATS["json"]().format(record))
    assert found["message"] == "x" * LONGEST + "… (5 more characters)"
    assert len(found["many"]) == MOST_ITEMS
    assert "… (5 more characters)" in FORMATS["logfmt"]().format(record)


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


LONG = "x" * 3_000


class Pipe(NamedTuple):
    log: logging.Logger
    writer: LogWriter
    reads: int

    def read(self, until: bytes) -> bytes:
        """What was written, to the end of a text."""
        found = b""
        while until not in found:
            found += os.read(self.reads, 1 << 16)
        return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reads, writes = os.pipe()
    writer = LogWriter(writes)
    log = logging.Logger("tests.log_writer")  # noqa: LOG001 - one that pytest does not hear: xdist cannot send all its texts
    log.addHandler(writer)
    yield Pipe(log, writer, reads)
    os.close(reads)
    writer.flush()
    os.close(writes)


def numbers(text: bytes) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines() if line[:1].isdigit()]


def test_a_line_is_written_at_once_and_by_no_thread(pipe: Pipe) -> None:
    before = threading.active_count()
    pipe.log.warning("größe \udc80")
    assert pipe.read(b"\n") == "größe \\udc80\n".encode()
    assert threading.active_count() == before


def test_a_full_pipe_makes_no_caller_wait_and_its_reader_gets_every_line_in_order(pipe: Pipe) -> None:
    for number in range(100):
        pipe.log.warning("%d %s", number, LONG)
    pipe.log.warning("the end")
    assert numbers(pipe.read(b"the end\n")) == [*range(100)]
    wait_until(lambda: not pipe.writer.waiting)
    pipe.log.warning("100 at once again")
    assert numbers(pipe.read(b"\n")) == [100]


class Counted(bytes):
    """A line that counts the bytes that are copied of it."""

    copied = 0

    def __getitem__(self, part: Any) -> Any:
        found = Counted(super().__getitem__(part))
        Counted.copied += len(found)
        return found


def test_a_long_line_is_copied_once_however_little_the_pipe_takes_at_a_time(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = 40 * logs.LONGEST
    Counted.copied = 0
    monkeypatch.setattr(pipe.writer, "_line", lambda _: Counted(b"x" * length + b"\n"))
    reader = threading.Thread(target=pipe.read, args=(b"\n",))
    reader.start()
    pipe.log.warning("long")
    pipe.writer.flush()
    reader.join()
    assert Counted.copied <= 2 * length


@pytest.mark.parametrize("form", FORMATS)
def test_no_line_is_long_and_none_sends_control_codes_to_a_terminal(form: str) -> None:
    bad = "\x1b[31m\x9b1m\u202e\u2066\u2028\x7f"
    try:
        int(f"{bad}{'x' * 20_000_000}")
    except ValueError as error:
        found = FORMATS[form]().format(
            record_with(
                msg=f"{bad}{error}", text=f"{bad}{error}", exc_info=sys.exc_info(), many=[f"{bad}{error}"]
            )
        )
    assert len(found) < 10 * logs.LONGEST
    assert set(found) - {"\n"} == set(filter(str.isprintable, found))
    assert "ValueError" in found


def test_lines_beyond_the_bound_are_dropped_and_counted(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST", 20)
    for number in range(100):
        pipe.log.warning("%d %s", number, LONG)
    found = pipe.read(b"log lines were dropped: no program read them\n")
    kept = numbers(found)
    assert kept == [*range(len(kept))]
    assert 20 < len(kept) < 100


def test_the_end_of_the_process_waits_for_a_reader_only_so_long(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FLUSHED_WITHIN", 0.05)
    for _ in range(100):
        pipe.log.warning(LONG)
    pipe.writer.flush()
    assert pipe.writer.waiting


def test_a_reader_that_is_gone_costs_lines_and_nothing_else(pipe: Pipe) -> None:
    os.close(pipe.reads)
    for _ in range(100):
        pipe.log.warning(LONG)
    pipe.writer.flush()
    assert not pipe.writer.waiting
    os.dup2(os.open(os.devnull, os.O_RDONLY), pipe.reads)
