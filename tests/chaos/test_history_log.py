"""The log of a history: many processes append to it, some of them are killed, and no whole line is lost."""

import os
import signal
import time
from pathlib import Path

import pytest

from pgqueue.chaos.history.events import Event, Left, Live, events_of
from pgqueue.chaos.log import HistoryLog, Tail

PROCESSES = 4
BATCHES = 200


def test_processes_that_append_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    children = [os.fork() or _append(path, number) for number in range(PROCESSES)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

    events, torn = _read(path)

    assert codes == [-signal.SIGKILL] * PROCESSES
    assert torn == 0
    found = {(one.worker, round(one.at)) for one in events if isinstance(one, Left)}
    assert len(events) == len(found) == PROCESSES * BATCHES * 2


def _append(path: Path, number: int) -> int:
    """In a child: append, and be killed without closing anything."""
    log = HistoryLog(path)
    for place in range(BATCHES):
        log.write(*(Left(at=2 * place + half, worker=f"{number}" * 500) for half in (0, 1)))
    os.kill(os.getpid(), signal.SIGKILL)
    return number  # not reached


def test_a_write_that_the_disk_cuts_off_costs_no_other_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, cuts = os.write, [50]

    def full(file: int, data: bytes) -> int:
        return written(file, data[: cuts.pop()] if cuts else data)

    log = HistoryLog(tmp_path / "history-1.jsonl")
    monkeypatch.setattr(os, "write", full)
    log.write(*(Left(at=place, worker="A") for place in range(5)))
    monkeypatch.undo()
    log.write(Live(at=time.monotonic(), job="a name", state="ready"))

    events, torn = _read(tmp_path / "history-1.jsonl")
    assert [one.at for one in events[:-1]] == [0, 1, 2, 3, 4]
    assert isinstance(events[-1], Live)
    assert torn == 1
    assert [line.event for line in Tail(tmp_path).news()] == events


def _read(path: Path) -> tuple[list[Event], int]:
    with path.open("rb") as file:
        return events_of(file)
