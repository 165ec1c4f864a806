"""The log of a worker: a line per record on stderr, ``time level logger message key=value …``.

A record's ``extra`` fields are the ``key=value`` part; with :class:`pgqueue.middleware.LoggingContext` they include the job's. The traceback of a record follows on indented lines, so that
every line that begins with a time is a record.
"""

import json
import logging
import time

from pgqueue.middleware.logging_context import add_fields

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


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
            _one_line(record.getMessage()),
        ]
        words += [f"{key}={_value(value)}" for key, value in vars(record).items() if key not in _ORDINARY]
        line = " ".join(words)
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info)
        return "\n    ".join([line, *trace.splitlines()])


def configure(level: str) -> None:
    """Send the records of all loggers to stderr, from a level on. If the app has configured logging, change nothing."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    handler.addFilter(add_fields)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _value(value: object) -> str:
    """A field's value: bare if it is one plain word, else in quotes."""
    text = str(value)
    plain = text and text.isprintable() and not any(char.isspace() or char in '"=' for char in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
