"""Call sites written for Django-Q and django-q2, on pgqueue: ``async_task``, ``result``, ``fetch``, ``schedule``.

::

    queue = PgQueue()
    cluster = Cluster(queue, retry=60, max_attempts=3)
    cluster.register(send_receipt, resize_image)
    async_task, result = cluster.async_task, cluster.result

A cluster of Django-Q imports any function that a task names; a pgqueue worker runs only functions that are registered
with its queue, so register each function once. Jobs keep Django-Q's meaning: a failed job runs again after ``retry``
seconds, without end unless ``max_attempts`` sets a limit, or not at all with ``ack_failures``. An option that is not
honoured raises an error that names it. The guide is ``docs/moving/from-django-q.md``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenacity.stop import stop_after_attempt
from tenacity.wait import wait_fixed

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import InvalidOption, JobFailed, JobNotDone, JobNotFound
from pgqueue.moving.strict import FOR_EVER, honoured_options, path_of, require_faithful, require_task
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.retry import Retry

KNOWN = ("ack_failure", "cluster", "save")
HOOK = "use @queue.on('succeeded') or @queue.on('dead'); such a function gets the events of all tasks"
GROUP = "use pgqueue.group([task.call(...), ...]).enqueue(); queue.find_task(path) returns the task"
REMEDIES = {
    "broker": "there is no broker: jobs are in your database; omit it",
    "cached": "results are in your database; omit it",
    "chain": "use pgqueue.chain(first.call(...), second.call(...)).enqueue(); queue.find_task(path) returns the task",
    "failure_hook": HOOK,
    "group": GROUP,
    "hook": HOOK,
    "iter_cached": GROUP,
    "iter_count": GROUP,
    "sync": "call the function",
    "task_name": "a job has its task's name; keep the id that async_task returns",
    "timeout": "a time limit belongs to the function: cluster.register(function, timeout=...)",
    "timeout_hook": HOOK,
}
SCHEDULE_KNOWN = ("cluster", "next_run", "schedule_type")
RECURRING = "the compatibility module schedules once only; use @queue.schedule, or queue.schedules.add(name, task.call(...), cron)"
SCHEDULE_REMEDIES = {
    "cron": RECURRING,
    "failure_hook": HOOK,
    "hook": HOOK,
    "intended_date_kwarg": RECURRING,
    "minutes": RECURRING,
    "name": "the compatibility module has no names; use queue.schedules.add(name, task.call(...), at=...)",
    "timeout_hook": HOOK,
}
ONCE = "O"


@dataclass(frozen=True)
class FetchedTask:
    """A task that has ended, as ``fetch`` returns it.

    Attributes:
        id: the job's id as a string.
        func: the function's dotted path.
        success: whether it succeeded.
        result: what the function returned; if it failed, the traceback.
        started: when its last attempt started.
        stopped: when it ended.
        attempt_count: how many attempts there were.
    """

    id: str
    func: str
    success: bool
    result: Any
    started: datetime | None
    stopped: datetime | None
    attempt_count: int


class Cluster:
    """The settings of a ``Q_CLUSTER``, and Django-Q's functions as methods."""

    def __init__(
        self,
        queue: PgQueue,
        *,
        retry: float = 60,
        max_attempts: int = 0,
        timeout: float | None = None,
        ack_failures: bool = False,
    ) -> None:
        """Set the options of ``Q_CLUSTER``.

        Args:
            queue: where jobs go.
            retry: after how many seconds a failed job runs again.
            max_attempts: how many attempts a job has; 0: without end.
            timeout: how many seconds an attempt may take; None: without limit.
            ack_failures: a failed job does not run again.
        """
        self.queue = queue
        self._timeout = timeout
        self._retry = Retry(
            wait=wait_fixed(retry),
            stop=stop_after_attempt(1 if ack_failures else max_attempts or FOR_EVER),
        )

    def register(self, *functions: Callable[..., Any], timeout: float | None = None) -> None:
        """Make functions known to workers, under their dotted paths.

        Args:
            *functions: any functions, yours or a library's.
            timeout: how many seconds an attempt may take, in place of the cluster's.
        """
        for function in functions:
            self.queue.task(
                name=path_of(function),
                timeout=self._timeout if timeout is None else timeout,
                retry=self._retry,
            )(function)

    def async_task(self, func: Callable[..., Any] | str, *args: object, **kwargs: object) -> str:
        """Enqueue a call; returns the job's id.

        Args:
            func: a registered function, or its dotted path.
            *args: the function's positional arguments.
            **kwargs: the function's keyword arguments, and Django-Q's options, also in ``q_options``: ``cluster`` names
                the queue, ``ack_failure`` allows one attempt only.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
            UnknownTask: the function is not registered.
            PayloadNotEncodable: an argument would arrive as another value.
        """
        options, rest = _without_options(kwargs)
        if not options.get("save", True):
            raise InvalidOption(
                "save=False: the queue sets how long ended jobs are kept: PgQueue(history=...)"
            )
        return self._enqueue(
            func,
            args,
            rest,
            queue=options.get("cluster"),
            max_attempts=1 if options.get("ack_failure") else None,
        )

    def schedule(self, func: str, *args: object, **kwargs: object) -> str:
        """Enqueue a call that is due once, at ``next_run``; returns the job's id.

        Args:
            func: the dotted path of a registered function.
            *args: the function's positional arguments.
            **kwargs: the function's keyword arguments, and Django-Q's options: ``next_run`` with a time zone,
                ``cluster``. A ``schedule_type`` other than once is an error.

        Raises:
            InvalidOption: an option is not honoured; the message says what to do instead.
        """
        given, rest = _split(kwargs, {*SCHEDULE_KNOWN, *SCHEDULE_REMEDIES, "repeats"})
        if given.get("schedule_type", ONCE) != ONCE:
            raise InvalidOption(f"schedule_type={given['schedule_type']!r}: {RECURRING}")
        given.pop("repeats", None)  # it means nothing for a schedule that is due once
        options = honoured_options("Django-Q", given, SCHEDULE_KNOWN, SCHEDULE_REMEDIES)
        return self._enqueue(func, args, rest, queue=options.get("cluster"), run_at=options.get("next_run"))

    def fetch(self, task_id: str | int, wait: int = 0) -> FetchedTask | None:
        """A job that has ended; None: it has not ended.

        Args:
            task_id: the id that ``async_task`` returned.
            wait: how long to wait, in milliseconds; below zero: without limit.

        Raises:
            InvalidOption: it cannot be an id of pgqueue.
        """
        if not str(task_id).isdecimal():
            raise InvalidOption(
                f"task_id={task_id!r} is no id of a job in pgqueue; Django-Q's tasks are in its own tables"
            )
        try:
            self.queue.result(int(task_id), timeout=None if wait < 0 else wait / 1000)
        except (JobNotDone, JobNotFound):
            return None
        except JobFailed:
            pass  # a failed job has ended, too
        return _fetch_task(self.queue.job(int(task_id)))

    def result(self, task_id: str | int, wait: int = 0) -> Any:  # noqa: ANN401 - any JSON
        """What the function returned; if it failed, the traceback; None before it has ended.

        Args:
            task_id: the id that ``async_task`` returned.
            wait: how long to wait, in milliseconds; below zero: without limit.
        """
        found = self.fetch(task_id, wait)
        return None if found is None else found.result

    def _enqueue(
        self,
        function: Callable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        **options: Any,  # noqa: ANN401 - those of Task.using
    ) -> str:
        task = require_task(
            self.queue, function, "cluster.register(function) makes it known to workers"
        ).using(**options)
        require_faithful(self.queue, task, args, kwargs)
        return str(task.enqueue(*args, **kwargs).id)


def _without_options(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return Django-Q's options, and the function's keyword arguments."""
    given, rest = _split(kwargs, {*KNOWN, *REMEDIES, "q_options"})
    grouped = given.pop("q_options", None) or {}
    return honoured_options("Django-Q", {**given, **grouped}, KNOWN, REMEDIES), rest


def _split(kwargs: Mapping[str, Any], names: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    given = {name: value for name, value in kwargs.items() if name in names}
    return given, {name: value for name, value in kwargs.items() if name not in names}


def _fetch_task(job: Job) -> FetchedTask:
    failure = (job.errors[-1].traceback or job.errors[-1].message) if job.errors else str(job.state)
    success = job.state is JobState.SUCCEEDED
    return FetchedTask(
        id=str(job.id),
        func=job.task,
        success=success,
        result=job.result if success else failure,
        started=job.started_at,
        stopped=job.ended_at,
        attempt_count=job.attempts,
    )
