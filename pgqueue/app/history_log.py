"""A log of events outside of the queue: many processes append to one file, and none of them loses a line of another."""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pgqueue.values.history.events import Event, events_of, line_of

now = time.monotonic
"""The clock of a log: one for all processes of a host, which no change of the wall clock touches."""


class HistoryLog:
    """Appends events to a file. Each call is one write at the file's end, so lines of other processes are never split.

    It is safe to use in many threads, and after a fork. Nothing is kept in memory: what was written stays if the process is
    killed.
    """

    __slots__ = ("_file", "path")

    def __init__(self, path: Path) -> None:
        """Open the file, and make it where it is missing.

        Args:
            path: the file.

        Raises:
            OSError: it cannot be opened.
        """
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, *events: Event) -> None:
        """Append events with one write.

        Raises:
            OSError: the disk is full, or another error of the system; a part of a line may be in the file.
        """
        left = b"".join(map(line_of, events))
        while left:
            written = os.write(self._file, left)
            if written < len(left):  # the disk is full: the next line of any process begins on its own
                left = b"\n" + left[left.rfind(b"\n", 0, written) + 1 :]
            else:
                break

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def read_log(path: Path) -> tuple[list[Event], int]:
    """The events of a log, in the order in which they were written, and how many lines cannot be read.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return events_of(file)
