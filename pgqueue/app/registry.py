"""Where tasks are registered: under which name, with which policy, for which queue.

What can be a task is decided in :mod:`pgqueue.app.naming`; what becomes of its calls, in :mod:`pgqueue.app.task`.
"""

import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from pgqueue.app.batches import require_item, require_one_parameter
from pgqueue.app.context import Context
from pgqueue.app.decorators import BatchTaskDecorator, RemoteDecorator, TaskDecorator, TaskOptions
from pgqueue.app.job_methods import JobMethods
from pgqueue.app.middleware import Middleware
from pgqueue.app.naming import as_aliases, first_name, name_of, place_of, require_function
from pgqueue.app.remote import RemoteFunction, remote_function
from pgqueue.app.task import Awaited, Task, TaskLoader
from pgqueue.errors import DuplicateTask, Duration, InvalidOption, UnknownTask, as_limit
from pgqueue.values.hints import did_you_mean, suggest_options
from pgqueue.values.jobs.options import AfterTimeout, BatchPolicy, JobOptions, as_after_timeout
from pgqueue.values.jobs.options import batch_policy as checked_batching
from pgqueue.values.jobs.retry import Retry, as_policy
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.limits.limit import AnyLimit, LimitNumbers
from pgqueue.values.limits.task_limits import TaskLimits, limits_of_task, require_agreement
from pgqueue.values.payloads.argument_check import refuse_injected, refuse_models
from pgqueue.values.workers.crashes import Crashes, as_crashes

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item


class Registry(JobMethods):
    """The tasks of a queue.

    Attributes:
        middleware: what runs around each attempt, the outermost first.
    """

    middleware: tuple[Middleware, ...]
    _loader: TaskLoader | None = None
    """Where tasks are looked for. A framework's queue sets it when it is made; None: only registered tasks are found."""
    _tasks: dict[str, Task[..., Any]]
    _batch_tasks: set[str]
    _limits: dict[str, LimitNumbers]
    _declared: dict[
        str, Any
    ]  # DeclaredSchedule by its name, and DeclaredAlert: their modules import this one
    _declared_alerts: dict[str, Any]

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks, by name, and by each former name that one has."""
        return MappingProxyType(self._tasks) if self._loader is None else self._loader

    @property
    def limits(self) -> Mapping[str, LimitNumbers]:
        """The limits of its tasks, by name."""
        return self._limits

    @property
    def limiting(self) -> Mapping[str, TaskLimits | None]:
        """Which limits and which share the jobs of each task have; None: they have none."""
        return {name: task.limiting for name, task in self._tasks.items()}

    @property
    def batch_tasks(self) -> Collection[str]:
        """The names of those whose jobs run in batches."""
        return self._batch_tasks

    @overload
    def task(
        self, function: Callable[Concatenate[Context | None, P], Awaited[R]], /
    ) -> "Task[P, R, ..., Awaited[R]]": ...
    @overload
    def task(self, function: Callable[Concatenate[Context | None, P], R], /) -> "Task[P, R, ..., R]": ...  # type: ignore[overload-overlap]
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Awaited[R]], /
    ) -> "Task[P, R, Concatenate[Context, P], Awaited[R]]": ...
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> "Task[P, R, Concatenate[Context, P], R]": ...
    @overload
    def task(self, function: Callable[P, Awaited[R]], /) -> "Task[P, R, P, Awaited[R]]": ...
    @overload
    def task(self, function: Callable[P, R], /) -> "Task[P, R, P, R]": ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    @suggest_options
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        retry: Retry | int | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        unique: Unique | None = None,
        expires_in: Duration | None = None,
        limit: AnyLimit | Sequence[AnyLimit] | None = None,
        fair_by: str | Sequence[str] | None = None,
        crashes: Crashes | int | None = None,
        process: bool = False,
        after_timeout: AfterTimeout | None = None,
        slots: int = 1,
        aliases: Sequence[str] = (),
    ) -> Any:
        """Register a function as a task; with or without parentheses.

        Args:
            function: the function, where the decorator has no parentheses.
            name: what jobs say in the database; by default the function's module and qualified name.
            queue: the queue to stand in; ``default`` by default.
            priority: -100…100, higher runs sooner; 0 by default.
            retry: when failed jobs run again: a :class:`Retry`, or how many attempts a job has.
            max_attempts: after how many attempts a job is dead; by default what ``retry`` says.
            timeout: seconds, or a timedelta, that an attempt may take; None: as long as it likes.
            unique: what happens when two live jobs would share a key; ``Unique(by=...)`` makes it from arguments, else give ``unique_key``.
            expires_in: seconds, or a timedelta, from the time when a job may run: no attempt starts later, the job is dead as ``expired``.
            limit: how many of the jobs run at once (:class:`Limit`), or how often they start (:class:`Rate`), over all workers;
                one or a list of them.
            fair_by: arguments whose values make a share: jobs of each value get the same share of the slots.
            crashes: what becomes of a job whose attempts end with their worker: a :class:`Crashes`, or after how many of them
                the job runs alone in a process of its own; 3 by default.
            process: run the attempts of a plain function in child processes of the worker, which are kept for further attempts. The
                worker ends such a process when its attempt times out, is cancelled, or outlives the grace of a stop.
            after_timeout: what becomes of the job while its function goes on after its timeout: ``wait``, it stays running until the
                function returns; ``retry``, it is retried at once. None: ``wait`` for a job that a limit counts, else ``retry``.
            slots: how many slots of its worker an attempt takes; all, of a worker that has fewer.
            aliases: former names of the task, the oldest first: jobs that were enqueued under one of them run here. Limits, keys of
                ``Unique(by=...)`` and schedules that are named after the task keep the name of the first alias.

        Returns:
            A :class:`Task` with the function's own signature, less its ``Context``.

        Raises:
            DuplicateTask: the name is taken.
            InvalidOption: an option is out of its range, or this is nothing that can be a task.
            UnknownQueue: the queue is not one of those declared.
        """
        policy = as_policy(retry)
        options = JobOptions(max_attempts=policy.max_attempts).but(
            queue=queue, priority=priority, max_attempts=max_attempts, unique=unique, expires_in=expires_in
        )
        self.require_queue(options.queue)
        register = partial(
            self._register,
            name=name,
            options=options,
            retry=policy,
            timeout=as_limit("timeout", timeout),
            limit=limit,
            fair_by=fair_by,
            crashes=as_crashes(crashes),
            process=process,
            after_timeout=as_after_timeout(after_timeout),
            slots=slots,
            aliases=as_aliases(aliases),
        )
        return register if function is None else register(function)

    @suggest_options
    def batch_task(
        self,
        item: Callable[P, I],
        /,
        *,
        size: int = 100,
        wait: Duration = 0.1,
        by: str | Sequence[str] = (),
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        retry: Retry | int | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        unique: Unique | None = None,
        expires_in: Duration | None = None,
        limit: AnyLimit | Sequence[AnyLimit] | None = None,
        fair_by: str | Sequence[str] | None = None,
        crashes: Crashes | int | None = None,
        after_timeout: AfterTimeout | None = None,
        aliases: Sequence[str] = (),
    ) -> BatchTaskDecorator[P, I]:
        """Register a function that takes many jobs in one call: a :class:`pgqueue.Batch` of items.

        Each job is enqueued with the arguments of one item, and ends by itself.

        Args:
            item: what makes an item of a job's arguments: a dataclass, a ``NamedTuple``, a model, or a function.
            size: the most jobs of a call, 1…1000.
            wait: for how long a worker lets the first job wait for others; seconds, or a timedelta, up to a minute. 0: not at all.
            by: arguments; the jobs of a call have the same values of them.
            name: what jobs say in the database; by default the function's module and qualified name.
            queue: the queue to stand in; ``default`` by default.
            priority: -100…100, higher runs sooner; 0 by default.
            retry: when failed jobs run again: a :class:`Retry`, or how many attempts a job has.
            max_attempts: after how many attempts a job is dead; by default what ``retry`` says.
            timeout: seconds, or a timedelta, that a call may take; None: as long as it likes.
            unique: what happens when two live jobs would share a key; ``Unique(by=...)`` makes the key from arguments.
            expires_in: seconds, or a timedelta, from the time when a job may run: no attempt starts later, the job is dead
                then, as ``expired``.
            limit: how many of the jobs run at once (:class:`Limit`), or how often they start (:class:`Rate`), over all workers;
                one or a list of them.
            fair_by: arguments whose values make a share: jobs of each value get the same share of the slots.
            crashes: what becomes of a job whose attempts end with their worker, as for :meth:`task`.
            after_timeout: what becomes of the jobs while the function goes on after its timeout, as for :meth:`task`.
            aliases: former names of the task, the oldest first, as for :meth:`task`.

        Returns:
            The decorator; it makes a :class:`Task` with the signature of the item.

        Raises:
            DuplicateTask: the name is taken.
            InvalidOption: an option is out of its range, or this is nothing that can be a batch task.
            UnknownQueue: the queue is not one of those declared.
        """
        require_item(item)
        policy, batching, former = as_policy(retry), checked_batching(size, wait, by), as_aliases(aliases)
        options = JobOptions(max_attempts=policy.max_attempts).but(
            queue=queue, priority=priority, max_attempts=max_attempts, unique=unique, expires_in=expires_in
        )
        self.require_queue(options.queue)

        def register(function: Callable[..., Any], /) -> Task[..., Any]:
            return self._register(
                function,
                name=name,
                options=options,
                retry=policy,
                timeout=as_limit("timeout", timeout),
                crashes=as_crashes(crashes),
                after_timeout=as_after_timeout(after_timeout),
                item=item,
                batching=batching,
                limit=limit,
                fair_by=fair_by,
                aliases=former,
            )

        return cast("BatchTaskDecorator[P, I]", register)

    @overload
    def remote(self, task: Task[P, R], /) -> RemoteFunction[P, R]: ...
    @overload
    def remote(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> RemoteFunction[P, R]: ...
    @overload
    def remote(self, function: Callable[Concatenate[Context, P], R], /) -> RemoteFunction[P, R]: ...
    @overload
    def remote(self, function: Callable[P, Awaitable[R]], /) -> RemoteFunction[P, R]: ...
    @overload
    def remote(self, function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
    @overload
    def remote(self, /, **options: Unpack[TaskOptions]) -> RemoteDecorator: ...
    def remote(self, function: Any = None, /, **options: Any) -> Any:  # noqa: D417 - those of task
        """Register a function as a task, and make an ``async def`` function whose calls run as its jobs.

        ``await function(...)`` enqueues a job, committed at once, and returns the job's result. A caller that is
        cancelled leaves the job as it is. The options are those of :meth:`task`.

        Args:
            function: the function, where the decorator has no parentheses; or a task, with or without ``using``.

        Returns:
            The function, with the function's own signature, less its ``Context``; its ``task`` is the task.

        Raises:
            InvalidOption: as for :meth:`task`, or the task has a connection of the caller's.
        """
        if function is None:
            register = self.task(**options)
            return lambda function: remote_function(self, register(function))
        return remote_function(self, function if isinstance(function, Task) else self.task(function))

    def find_task(self, name: str) -> Task[..., Any]:
        """A registered task by its name. Of the queue on one shard it is one that enqueues on that shard.

        Raises:
            UnknownTask: there is none; the message suggests the nearest.
        """
        try:
            task = self._tasks[name]
        except KeyError:
            raise UnknownTask(f"no task {name!r} is registered{did_you_mean(name, self._tasks)}") from None
        return task._of_queue(self)  # noqa: SLF001 - the queue's own side of it

    def load_task(self, name: str) -> bool:
        """Look further for a task that a job names and that is not registered; whether it is registered now.

        A worker calls it in a thread, since it may block. It must not raise.
        """
        return name in self._tasks if self._loader is None else self._loader.load(name)

    def _policy_of(self, name: str) -> Retry:
        task = self._tasks.get(name)
        return Retry() if task is None else task.retry

    def _add_builtin(
        self, name: str, function: Callable[..., Any], options: JobOptions, retry: Retry
    ) -> None:
        # A task of pgqueue's own: nothing of the app runs around it.
        self._tasks[name] = Task(
            function, self, middleware=(), name=name, options=options, retry=retry, timeout=None
        )

    def _register(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        options: JobOptions,
        retry: Retry,
        timeout: timedelta | None,
        crashes: Crashes,
        after_timeout: AfterTimeout | None,
        process: bool = False,
        slots: int = 1,
        item: Callable[..., Any] | None = None,
        batching: BatchPolicy | None = None,
        limit: AnyLimit | Sequence[AnyLimit] | None = None,
        fair_by: str | Sequence[str] | None = None,
        aliases: tuple[str, ...] = (),
    ) -> Task[..., Any]:
        require_function(function, named=name is not None)
        if batching is not None:
            require_one_parameter(function)
        name = name_of(function, name)
        annotations = getattr(item or function, "__annotations__", {})
        refuse_models(name, annotations)
        refuse_injected(name, annotations, Context)
        names = (name, *aliases)
        if hasattr(sys, "ps1"):
            self._forget_former(name, function)
        self._require_free(names, function)
        task = Task[..., Any](
            function,
            self,
            middleware=self.middleware,
            name=name,
            options=options,
            retry=retry,
            timeout=timeout,
            crashes=crashes,
            process=process,
            after_timeout=after_timeout,
            slots=slots,
            item=item,
            batching=batching,
            limiting=limits_of_task(name, limit, fair_by, named=first_name(name, aliases)),
            aliases=aliases,
        )
        self._add_limits(task)
        if batching is not None:
            self._batch_tasks.update(names)
        self._tasks.update(dict.fromkeys(names, task))
        return task

    def _forget_former(self, name: str, function: Callable[..., Any]) -> None:
        """In a notebook or at the prompt, a cell or module that runs again defines its functions again."""
        former = self._tasks.get(name)
        defined = (function.__module__, function.__qualname__)
        if former is not None and (former.function.__module__, former.function.__qualname__) == defined:
            for one in (former.name, *former.aliases):
                del self._tasks[one]

    def _require_free(self, names: tuple[str, ...], function: Callable[..., Any]) -> None:
        name = names[0]
        if name in names[1:]:
            raise InvalidOption(
                f"aliases={names[1:]!r}: {name!r} is the name of the task itself; give its former names"
            )
        for one in names:
            if (other := self._tasks.get(one)) is not None:
                said = f"task {name!r}" if one == name else f"alias {one!r} of task {name!r}"
                raise DuplicateTask(
                    f"{said} at {place_of(function)} is registered already, by task {other.name!r} at "
                    f"{place_of(other.function)}; give one of the two another name: @queue.task(name=...), or leave out the alias"
                )

    def _add_limits(self, task: Task[..., Any]) -> None:
        if task.limiting is None:
            return
        for name, other in self._tasks.items():
            if other.limiting is not None:
                require_agreement(task.name, task.limiting, name, other.limiting)
        self._limits.update(task.limiting.numbers)
