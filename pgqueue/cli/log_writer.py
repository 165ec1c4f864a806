"""Writes log lines to a file descriptor, and never has the program wait for whatever reads them.

A pipe that no program reads is full after 64 kB, and a write to it then waits. In an event loop that would stop every job, and
in the thread of the heartbeat it would cost the lease. So a line is written at once where that needs no waiting; else a thread
writes it, and up to :data:`MOST` lines wait for the thread. More are dropped, and counted.
"""

import logging
import os
import select
import threading
import time
from collections import deque

MOST = 10_000
"""Lines that wait; the next ones are dropped."""
FLUSHED_WITHIN = 2.0
"""Seconds for which the end of the process waits for a reader."""


class LogWriter(logging.Handler):
    """A handler for a file descriptor: one of a pipe, a terminal or a file."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin without lines and without a thread: in a fork the parent's thread does not run."""
        self._changed = threading.Condition()
        self._left: deque[bytes] = deque()
        self._dropped = 0
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """How many lines wait for a reader."""
        return len(self._left)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; see :mod:`pgqueue.cli.log_writer`."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)
            return
        with self._changed:
            if not self._left:
                line = self._written(line)
            if line:
                self._keep(line)

    def flush(self) -> None:
        """Wait until all lines are written, for :data:`FLUSHED_WITHIN` at most."""
        until = time.monotonic() + FLUSHED_WITHIN
        with self._changed:
            while self._left and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _written(self, line: bytes) -> bytes:
        """Write what needs no waiting; return the rest."""
        while line and self._poll.poll(0):
            try:
                # Where poll says so, a pipe has room for PIPE_BUF bytes.
                line = line[os.write(self._descriptor, line[: select.PIPE_BUF]) :]
            except OSError:  # no program can read it any more, or the disk is full
                return b""
        return line

    def _keep(self, line: bytes) -> None:
        if len(self._left) >= MOST:
            self._dropped += 1
            return
        self._left.append(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_for_ever, name="pgqueue-log", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _write_for_ever(self) -> None:
        while True:
            with self._changed:
                while not self._left:
                    self._changed.wait()
                # It stays the first until it is written, so that no later line goes before it.
                line = self._left[0]
            self._write(line)
            with self._changed:
                self._left.popleft()
                if not self._left and self._dropped:
                    self._left.append(self._notice())
                    self._dropped = 0
                self._changed.notify_all()

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:  # as in _written
            return

    def _notice(self) -> bytes:
        record = logging.makeLogRecord(
            {
                "name": "pgqueue",
                "levelno": logging.WARNING,
                "levelname": "WARNING",
                "msg": "log lines were dropped: no program read them",
                "lines": self._dropped,
            }
        )
        return self._line(record)
