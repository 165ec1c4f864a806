"""The worker's loggers. A program's own filter or handler that fails must not end the worker or an attempt."""

import logging
import sys
import traceback
from typing import Any


class WorkerLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records are told to standard error where the program's logging raises."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:  # noqa: ANN401 - those of logging
        """Log a record; never raise."""
        if not self.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - a filter of the program may raise anything
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


def worker_log(name: str = "pgqueue.worker") -> WorkerLog:
    """The logger of this name, guarded."""
    return WorkerLog(logging.getLogger(name), {})
