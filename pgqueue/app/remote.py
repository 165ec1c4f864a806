"""``@queue.remote``: remote functions, whose calls run as jobs, and whose callers await the results.

A call commits its job at once, on a connection of the queue, also inside a transaction: a job that is not committed cannot
run, and its caller would wait for ever.
"""

from collections.abc import Coroutine
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from pgqueue.app.adding import aadd
from pgqueue.app.job_methods import JobMethods
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption
from pgqueue.store.connections.open_transaction import OWN_CONNECTION

P = ParamSpec("P")
R = TypeVar("R")


class RemoteFunction(Protocol[P, R]):
    """An ``async def`` function: a call enqueues a job, and awaits its result."""

    @property
    def task(self) -> Task[P, R]:
        """The task of its jobs, to enqueue without waiting."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Enqueue a call, and await its result.

        Raises:
            JobFailed: the job is dead or was cancelled; what an enqueue and ``aresult`` raise, besides.
        """


def remote_function(queue: JobMethods, task: Task[P, R]) -> RemoteFunction[P, R]:
    """The function whose calls run as jobs of a task.

    Args:
        queue: where to enqueue them.
        task: which.

    Raises:
        InvalidOption: the task has a connection of the caller's.
    """
    if task.has_connection:
        raise InvalidOption(
            f"queue.remote({task.name}.using(connection=...)): a call waits for its job, which cannot run before that "
            "connection commits; enqueue the task there, and await the handle's aresult() after the commit"
        )

    @wraps(task.function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        job, _ = task._prepare(args, kwargs)  # noqa: SLF001 - the queue's own side of it
        (handle,) = await aadd(queue, [job], OWN_CONNECTION)
        return cast("R", await handle.aresult())

    call.task = task  # type: ignore[attr-defined]  # as RemoteFunction says
    return cast("RemoteFunction[P, R]", call)
