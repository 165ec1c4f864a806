"""The log of a worker, on stderr. ``text``: a line per record for people, ``time level logger message key=value …``.

A traceback follows on indented lines, so that every line that begins with a time is a record. ``json`` and ``logfmt`` are for
programs: a line per record, with its traceback as a field. In each, a record's ``extra`` fields are fields, and so are those of
the attempt that writes it (:class:`pgqueue.middleware.LoggingContext`).

Every text is shortened before it is escaped, and control characters are escaped: a job decides what its error says, and the
thread that formats the line may be the event loop's.

A program's field of the name ``time``, ``level``, ``logger`` or ``traceback`` is written as ``field_time``, and so on.
"""

import json
import logging
import math
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from pgqueue.middleware import add_fields
from pgqueue.values.jobs.error_text import traceback_of
from pgqueue.values.payloads.storable import spelled_out

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

LONGEST = 16_000
"""Characters of a message, a field or a traceback; the rest is left out."""
MOST_ITEMS = 100
"""Of a list in a field; the rest is left out."""
MOST = 10_000
"""Lines that wait; the next ones are dropped."""
FLUSHED_WITHIN = 2.0
"""Seconds for which the end of the process waits for a reader."""


class LineFormatter(logging.Formatter):
    """Writes a record as one line, and its traceback on the lines after it."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """The record's text."""
        words = [
            self.formatTime(record),
            record.levelname.lower(),
            record.name,
            spelled_out(_cut(record.getMessage())),
        ]
        words += [f"{key}={_value(value)}" for key, value in vars(record).items() if key not in _ORDINARY]
        line = " ".join(words)
        if not record.exc_info:
            return line
        trace = spelled_out(_traceback(record), keep="\n")
        return "\n    ".join([line, *trace.split("\n")])


class FieldFormatter(LineFormatter):
    """Writes a record as one line of fields, in JSON or as ``key=value``."""

    def __init__(self, write: Callable[[dict[str, object]], str]) -> None:
        super().__init__()
        self._write = write

    def format(self, record: logging.LogRecord) -> str:
        """The record's line."""
        fields: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in vars(record).items():
            if key not in _ORDINARY:
                fields[f"field_{key}" if key in OWN else key] = value
        if record.exc_info:
            fields["traceback"] = _traceback(record)
        return self._write(fields)


def as_json(fields: dict[str, object]) -> str:
    """One object in one line. What has no JSON form is written as text; numbers that JSON lacks are, too."""
    return json.dumps({key: _plain(value) for key, value in fields.items()}, ensure_ascii=True)


def as_logfmt(fields: dict[str, object]) -> str:
    """``key=value`` for each field; a character that would end a key becomes ``_``."""
    return " ".join(f"{_KEY.sub('_', key) or '_'}={_value(value)}" for key, value in fields.items())


FORMATS: dict[str, Callable[[], logging.Formatter]] = {
    "text": LineFormatter,
    "json": lambda: FieldFormatter(as_json),
    "logfmt": lambda: FieldFormatter(as_logfmt),
}
OWN = frozenset({"time", "level", "logger", "traceback"})
_KEY = re.compile(r"[^\w.-]")

VARIABLE = "PGQUEUE_LOG_FORMAT"
"""In the environment of a worker's processes: the format of its log."""


def form_of_parent() -> str:
    """The format of the log of the worker that started this process."""
    form = os.environ.get(VARIABLE, "text")
    return form if form in FORMATS else "text"


def configure(level: str, form: str = "text") -> None:
    """Send the records of all loggers to stderr, from a level on. If the app has configured logging, change nothing.

    Args:
        level: the lowest level.
        form: one of :data:`FORMATS`.
    """
    handler = _to_stderr()
    handler.setFormatter(FORMATS[form]())
    handler.addFilter(add_fields)
    handler.addFilter(_add_trace)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _to_stderr() -> logging.Handler:
    try:
        return LogWriter(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        # It has no descriptor: a test may have put a text in its place.
        return logging.StreamHandler()


def _add_trace(record: logging.LogRecord) -> bool:
    tracing = sys.modules.get("pgqueue.telemetry.tracing")
    return tracing is None or bool(tracing.add_trace(record))


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value[:MOST_ITEMS]]
    return _cut(str(value))


def _value(value: object) -> str:
    text = _cut(str(value))
    plain = text and text.isprintable() and not any(char.isspace() or char in '"=' for char in text)
    return text if plain else spelled_out(json.dumps(text, ensure_ascii=False))


def _cut(text: str) -> str:
    left_out = len(text) - LONGEST
    return text if left_out <= 0 else f"{text[:LONGEST]}… ({left_out:,} more characters)"


def _traceback(record: logging.LogRecord) -> str:
    """Return the traceback that the record has, or make one of bounded length."""
    error = record.exc_info[1] if record.exc_info else None
    made = record.exc_text or ("" if error is None else traceback_of(error).rstrip("\n"))
    return made[-LONGEST:]


class LogWriter(logging.Handler):
    """Writes log lines to a file descriptor, and never has the program wait for whatever reads them.

    A pipe that no program reads is full after 64 kB, and a write to it then waits. In an event loop that would stop every job,
    and in the thread of the heartbeat it would cost the lease. So a line is written at once where that needs no waiting; else a
    thread writes it, and up to :data:`MOST` lines wait for the thread. More are dropped, and counted.
    """

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
        """Write a record, now or in the thread."""
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
        begin = 0
        while begin < len(line) and self._poll.poll(0):
            try:
                # Where poll says so, a pipe has room for PIPE_BUF bytes.
                begin += os.write(self._descriptor, line[begin : begin + select.PIPE_BUF])
            except OSError:  # no program can read it any more, or the disk is full
                return b""
        return line[begin:]

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
        left = memoryview(line)  # else each part that a pipe takes would copy the rest
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
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
