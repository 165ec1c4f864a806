"""Loggers whose records have a bounded traceback. Without them a handler formats the whole exception, in the thread that logs.

A record keeps the exception itself, for handlers that send it elsewhere.
"""

import logging
from collections.abc import MutableMapping
from typing import Any, Final

from pgqueue.values.jobs.error_text import traceback_of

TRACEBACK: Final = "pgqueue_traceback"
"""A field of a record's ``extra``: the traceback of its exception, where it has been made already."""


def bounded_logger(name: str) -> logging.Logger:
    """The logger of this name; :class:`logging.Formatter` writes the tracebacks of its records as the jobs' records have them."""
    logger = logging.getLogger(name)
    logger.addFilter(_bound_traceback)
    return logger


def _bound_traceback(record: logging.LogRecord) -> bool:
    made = vars(record).pop(TRACEBACK, None)
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = (made or traceback_of(record.exc_info[1])).rstrip("\n")
    return True


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to every record, beside the ``extra`` of a call."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Merge the fields."""
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs
