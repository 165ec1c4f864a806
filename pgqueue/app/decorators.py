"""The decorators of a queue as type checkers see them: what each takes, and which task it makes of which function."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, overload

from pgqueue.app.batches import Batch
from pgqueue.app.context import Context
from pgqueue.app.remote import RemoteFunction
from pgqueue.app.task import Awaited, Task
from pgqueue.errors import Duration
from pgqueue.values.jobs.options import AfterTimeout
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.limits.limit import AnyLimit
from pgqueue.values.workers.crashes import Crashes

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T", bound=Task[..., Any])


class TaskOptions(TypedDict, total=False):
    """The options of :meth:`Registry.task`, for type checkers."""

    name: str | None
    queue: str | None
    priority: int | None
    retry: Retry | int | None
    max_attempts: int | None
    timeout: Duration | None
    unique: Unique | None
    expires_in: Duration | None
    limit: AnyLimit | Sequence[AnyLimit] | None
    fair_by: str | Sequence[str] | None
    crashes: Crashes | int | None
    process: bool
    after_timeout: AfterTimeout | None
    slots: int
    aliases: Sequence[str]


class TaskDecorator(Protocol):
    """The decorator that :meth:`pgqueue.PgQueue.task` returns: the function's signature becomes the task's."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context | None, P], Awaited[R]], /
    ) -> "Task[P, R, ..., Awaited[R]]": ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context | None, P], R], /) -> "Task[P, R, ..., R]": ...  # type: ignore[overload-overlap]
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaited[R]], /
    ) -> "Task[P, R, Concatenate[Context, P], Awaited[R]]": ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> "Task[P, R, Concatenate[Context, P], R]": ...
    @overload
    def __call__(self, function: Callable[P, Awaited[R]], /) -> "Task[P, R, P, Awaited[R]]": ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> "Task[P, R, P, R]": ...


class BatchTaskDecorator(Protocol[P, I]):
    """The decorator: the signature of the item becomes the task's; a list that the function returns has a result for each job."""

    @overload
    def __call__(
        self, function: Callable[[Batch[I]], Awaited[list[R]]], /
    ) -> "Task[P, R, [Batch[I]], Awaited[list[R]]]": ...
    @overload
    def __call__(self, function: Callable[[Batch[I]], list[R]], /) -> "Task[P, R, [Batch[I]], list[R]]": ...
    @overload
    def __call__(
        self, function: Callable[[Batch[I]], Awaited[None]], /
    ) -> "Task[P, Any, [Batch[I]], Awaited[None]]": ...
    @overload
    def __call__(self, function: Callable[[Batch[I]], None], /) -> "Task[P, Any, [Batch[I]], None]": ...


class ScheduleDecorator(Protocol):
    """The decorator that :meth:`pgqueue.PgQueue.schedule` returns: of a task, or of a function that becomes one."""

    @overload
    def __call__(self, function: T, /) -> T: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context | None, P], Awaited[R]], /
    ) -> "Task[P, R, ..., Awaited[R]]": ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context | None, P], R], /) -> "Task[P, R, ..., R]": ...  # type: ignore[overload-overlap]
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaited[R]], /
    ) -> "Task[P, R, Concatenate[Context, P], Awaited[R]]": ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> "Task[P, R, Concatenate[Context, P], R]": ...
    @overload
    def __call__(self, function: Callable[P, Awaited[R]], /) -> "Task[P, R, P, Awaited[R]]": ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> "Task[P, R, P, R]": ...


class RemoteDecorator(Protocol):
    """The decorator that :meth:`pgqueue.PgQueue.remote` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> RemoteFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> RemoteFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> RemoteFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
