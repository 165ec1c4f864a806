"""What happened, as lines in files: written by the processes that did it, and read while they go on and afterwards.

The lines are the events of :mod:`pgqueue.values.history.events`. The files are outside of the database, so they remain what they
are when the database forgets. Each process has a file of its own, and each line is written by one call of the system: what was
written before a process is killed is in the file. Times are those of the system's monotonic clock, which all processes of a
machine share and no fault changes.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from pgqueue.app.history_log import HistoryLog
from pgqueue.values.history.events import Event

FOLDER = "CHAOS_LOG"
"""The setting that tells a process where to write."""
ENDING = ".jsonl"
WORKER = "worker"
"""What the names of the workers' files begin with."""
_NAME = re.compile(r"-(\d+)[.]jsonl$")


def log_of_process(folder: Path, name: str) -> HistoryLog:
    """This process's own file.

    Args:
        folder: where; another process reads it there.
        name: what the file's name begins with.
    """
    return HistoryLog(path_of(folder, name, os.getpid()))


def path_of(folder: Path, name: str, process: int) -> Path:
    """The file of a process; it is there once the process has written."""
    return folder / f"{name}-{process}{ENDING}"


class Line(NamedTuple):
    """An event, and the id of the process that wrote it."""

    event: Event
    process: int


class Tail:
    """Reads what was added to the files of a folder since the last look."""

    def __init__(self, folder: Path) -> None:
        """Begin with the first line of each."""
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

    def news(self) -> Iterator[Line]:
        """The new lines of each file in their order; the files one after the other."""
        for path in sorted(self._folder.glob(f"*{ENDING}")):
            if path.stat().st_size > self._read.get(path, 0):
                yield from self._news_of(path)

    def _news_of(self, path: Path) -> Iterator[Line]:
        named = _NAME.search(path.name)
        process = int(named[1]) if named else 0
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return  # the rest of it comes later, or its writer was killed
                self._read[path] = self._read.get(path, 0) + len(line)
                yield Line(self._decoder.decode(line), process)


def lines(folder: Path) -> Iterable[Line]:
    """All lines of all files."""
    return Tail(folder).news()
