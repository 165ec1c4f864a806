"""Call sites, signatures and settings written for Celery, on pgqueue.

::

    from pgqueue.moving.celery import Celery, chain, chord, group, shared_task
    from pgqueue.moving.celery.schedules import crontab

    app = Celery("shop")  # or Celery(queue)

Tasks keep Celery's meaning: an error is not retried unless the task says so, with ``autoretry_for`` or ``self.retry``;
a task with neither, and without ``acks_late``, is never started twice. An option that is not honoured raises an error
that names it. The guide is ``docs/moving/from-celery.md``.
"""

from typing import Any, NoReturn

from pgqueue.moving.celery.app import Celery, shared_task
from pgqueue.moving.celery.canvas import Signature, chain, chord, group
from pgqueue.moving.celery.result import AsyncResult, EagerResult, GroupResult, process
from pgqueue.moving.celery.schedules import crontab, schedule, solar
from pgqueue.moving.celery.task import CeleryTask
from pgqueue.moving.celery.task import CeleryTask as Task
from pgqueue.moving.celery.utils.log import get_task_logger
from pgqueue.moving.strict import missing_name

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryTask",
    "EagerResult",
    "GroupResult",
    "Signature",
    "Task",
    "chain",
    "chord",
    "crontab",
    "get_task_logger",
    "group",
    "schedule",
    "shared_task",
    "signature",
    "solar",
]
_REMEDIES = {
    "bootsteps": "write PgQueue(middleware=[...])",
    "chunks": "write group(task.s(item) for item in items)",
    "current_app": "import your app",
    "current_task": "use bind=True, and self.request",
    "signals": "use hooks: @queue.on('failed'), or PgQueue(middleware=[...])",
    "states": "compare with the strings: result.state == 'SUCCESS'",
    "xmap": "write group(task.s(item) for item in items)",
}


def signature(task: str | CeleryTask[..., Any], *args: Any, **options: Any) -> Signature[Any]:
    """A signature of a task, or of the task of the current app that has this name; arguments as for :meth:`CeleryTask.signature`."""
    found = process.current.find(task) if isinstance(task, str) else task
    return found.signature(*args, **options)


def __getattr__(name: str) -> NoReturn:
    raise missing_name("celery", name, _REMEDIES)
