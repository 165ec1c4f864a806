"""The log of a worker waits for no reader: a full pipe stops neither its event loop nor its heartbeat."""

import logging
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from looking import wait_until

from pgqueue.cli import log_writer
from pgqueue.cli.log_writer import LogWriter

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


def test_lines_beyond_the_bound_are_dropped_and_counted(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MOST", 20)
    for number in range(100):
        pipe.log.warning("%d %s", number, LONG)
    found = pipe.read(b"log lines were dropped: no program read them\n")
    kept = numbers(found)
    assert kept == [*range(len(kept))]
    assert 20 < len(kept) < 100


def test_the_end_of_the_process_waits_for_a_reader_only_so_long(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "FLUSHED_WITHIN", 0.05)
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
