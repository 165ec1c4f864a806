"""What a worker logs for people: its start, its stop, and a line for each attempt that ended.

:class:`JobLog` is an observer: it logs attempts that end well, are cancelled or are requeued, in batches, when the
database has recorded them, at info by the logger ``pgqueue.jobs``. The executor has attempts that fail logged as soon as they
fail, as warnings and errors with their traceback. While the logger is off, a batch costs one look at its level.
"""

import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any, assert_never
from uuid import UUID

import psycopg

from pgqueue.app.context import Context
from pgqueue.app.hooks.observer import Observer
from pgqueue.app.judgement import why_dead
from pgqueue.app.logger import TRACEBACK, bounded_logger
from pgqueue.values.jobs.error_text import frames_of
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import (
    Again,
    Cancelled,
    Died,
    Returned,
    Succeeded,
    Unknown,
    Verdict,
    Waits,
    error_to_log,
)
from pgqueue.values.payloads.codec import Codec, logged_error

NAMED_TASKS = 20
"""A longer list of tasks is cut short in the log."""


class WorkerLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that never raises: a filter or handler of the program must not end a worker or an attempt."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:  # noqa: ANN401 - those of logging
        """Log a record; if the program's logging raises, print that to standard error."""
        if not self.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        error: Any = kwargs.get("exc_info")
        if issubclass(
            type(error), BaseException
        ):  # logging would ask the error for its traceback, which may raise
            kwargs["exc_info"] = (type(error), error, frames_of(error))
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - a filter of the program may raise anything
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


def worker_log(name: str = "pgqueue.worker") -> WorkerLog:
    """The logger of this name, which never raises."""
    return WorkerLog(bounded_logger(name), {})


log = worker_log("pgqueue.jobs")
about_worker = worker_log()


class JobLog(Observer):
    """Logs a line for each attempt that ended well, was cancelled or was requeued."""

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """Log these attempts."""
        if not log.isEnabledFor(logging.INFO):
            return
        for verdict in verdicts:
            match verdict:
                case Succeeded():
                    seconds = round(verdict.seconds, 3)
                    log.info("job succeeded", extra={**_fields(verdict.claim), "seconds": seconds})
                case Cancelled(skipped=True):
                    log.info("job skipped: the condition of its node holds", extra=_fields(verdict.claim))
                case Cancelled(error=error):
                    raised = {"raised": error.type} if error is not None and error.traceback else {}
                    log.info("job cancelled", extra={**_fields(verdict.claim), **raised})
                case Waits(awaited=awaited):
                    log.info("job waits", extra={**_fields(verdict.claim), "waits_for": str(awaited)})
                case Returned(delay=None):
                    log.info("job returned to its queue", extra=_fields(verdict.claim))
                case Returned():
                    delay = str(verdict.delay)
                    log.info("job returned to its queue", extra={**_fields(verdict.claim), "runs_in": delay})
                case Again() | Died() | Unknown():
                    pass  # logged where the attempt failed
                case _:
                    assert_never(verdict)


def log_start(
    worker: UUID, where: psycopg.ConnectionInfo, queues: Sequence[str] | None, tasks: Sequence[str]
) -> None:
    """Log what a worker serves, and on which database."""
    fields = {
        "worker": str(worker),
        "database": f"{where.dbname} on {where.host}:{where.port}",
        "queues": "all" if queues is None else ", ".join(queues),
        "tasks": _list_names(sorted(tasks)),
    }
    about_worker.info("worker started", extra=fields)
    if not tasks:
        about_worker.warning(
            "no task is registered, so no job can run here: import the modules that define your tasks"
        )


def log_stopping(worker: UUID, running: int, grace: float, own_end: str | None) -> None:
    """Log what a stopping worker waits for; ``own_end``: why it stops by itself."""
    words = f"worker stopping: {own_end}" if own_end else "worker stopping"
    if running and grace:
        them = "it" if running == 1 else "them"
        words += (
            f": waiting up to {grace:g} s for {_jobs(running)}; Ctrl-C again returns {them} to the queue now"
        )
    about_worker.info(words, extra={"worker": str(worker), "running": running})


def log_second_stop(worker: UUID, running: int) -> None:
    """Log what a worker does that was told to stop a second time."""
    words = f"worker stopping now: {_jobs(running)} returned to the queue"
    about_worker.info(words, extra={"worker": str(worker), "running": running})


def log_stop(worker: UUID, unrecorded: int) -> None:
    """Log that a worker has ended, and how many verdicts it could not record."""
    fields = {"worker": str(worker)}
    if unrecorded:
        words = "worker stopped before the database recorded how %s ended; other workers run them again"
        about_worker.error(words, _jobs(unrecorded), extra=fields)
    else:
        about_worker.info("worker stopped", extra=fields)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - NAMED_TASKS
    return ", ".join(names[:NAMED_TASKS]) + (f" and {more} more" if more > 0 else "")


def _fields(claim: Claim) -> dict[str, object]:
    return {"job": claim.id, "task": claim.task, "queue": claim.queue, "attempt": claim.attempt}


def log_failure(
    codec: Codec | None, ctx: Context, verdict: Verdict, error: BaseException, *, logged: bool = False
) -> None:
    """Log what an error makes of an attempt; ``logged``: its traceback has been logged."""
    fields: dict[str, object] = {"job": ctx.job.id, "task": ctx.job.task, "attempt": ctx.attempt}
    fields["seconds"] = round(ctx.seconds, 3)
    match verdict:
        case Died():
            shown = None if logged else logged_error(codec, error_to_log(error))
            fields |= _recorded(verdict.error) if shown is error else {}
            about_worker.error("job is dead: %s", why_dead(verdict.reason), extra=fields, exc_info=shown)
        case Again():
            shown = None if logged else logged_error(codec, error)
            fields |= _recorded(verdict.error) if shown is error else {}
            fields["retry_in"] = str(verdict.delay)
            about_worker.warning("attempt failed; the job runs again", extra=fields, exc_info=shown)
        case Succeeded() | Returned() | Unknown() | Waits() | Cancelled():
            pass  # the job's own line says so
        case _:
            assert_never(verdict)


def _recorded(error: AttemptError) -> dict[str, object]:
    """What the log takes from the job's record: formatting the error again would call its code again."""
    return {TRACEBACK: error.traceback} if error.traceback else {}
