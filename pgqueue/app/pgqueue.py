"""The queue: where tasks are registered and jobs are enqueued; looking and steering it has from the desk.

Every public method runs one plan of the store. Those that touch the database come in pairs, the awaited one
with Django's ``a`` prefix; one test holds the pairs to the same parameters and words.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from pgqueue.app.context import Context
from pgqueue.app.desk import Desk
from pgqueue.app.handle import JobHandle
from pgqueue.app.take import AsyncTake, Take
from pgqueue.app.task import Call, Registers, Task
from pgqueue.app.undertest import under_test
from pgqueue.errors import (
    DuplicateTask,
    Duration,
    InvalidOption,
    UnknownQueue,
    UnknownTask,
    as_delay,
    as_duration,
    as_limit,
)
from pgqueue.store import enqueue
from pgqueue.store.database import Database
from pgqueue.values.job import Enqueued, NewJob
from pgqueue.values.nearest import did_you_mean
from pgqueue.values.options import JobOptions, check_name, check_queues
from pgqueue.values.payload import DEFAULT_LIMIT
from pgqueue.values.retry import Retry
from pgqueue.values.unique import Unique

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_RETENTION = timedelta(days=7)
LONGEST_RETENTION = timedelta(days=36_525)
DEFAULT_LEASE = timedelta(seconds=30)


class PgQueue(Desk):
    """A job queue in a PostgreSQL database."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "pgqueue",
        queues: Iterable[str] | None = None,
        history: Duration = DEFAULT_RETENTION,
        max_payload: int = DEFAULT_LIMIT,
        behind_pooler: bool = False,
        direct_dsn: str | None = None,
        pool_size: int = 10,
    ) -> None:
        """Describe the queue. Nothing is connected until something is run.

        Args:
            dsn: where the database is; by default PGQUEUE_DSN or DATABASE_URL in the environment.
            schema: the database schema in which the tables are.
            queues: the queues there are. Given, any other name is refused; None allows any.
            history: for how long ended jobs are kept, up to 100 years; they are dropped by whole days, so give
                ``timedelta(days=...)``. Zero keeps none. As everywhere, a number means seconds.
            max_payload: the most bytes a job's arguments may take as JSON.
            behind_pooler: ``dsn`` leads to a transaction pooler such as PgBouncer.
            direct_dsn: how to reach the server past that pooler, so that workers can listen; by default
                PGQUEUE_DIRECT_DSN in the environment.
            pool_size: at most how many connections of each kind (blocking, awaitable) to keep.

        Raises:
            InvalidOption: one of them is out of its range.
        """
        if pool_size < 1:
            raise InvalidOption(f"pool_size={pool_size!r}: keep at least one connection")
        if max_payload < 1:
            raise InvalidOption(f"max_payload={max_payload!r}: use a number of bytes above zero")
        super().__init__(
            self._make_database(
                dsn, schema=schema, direct_dsn=direct_dsn, behind_pooler=behind_pooler, pool_size=pool_size
            )
        )
        self.database = under_test(self, self.database)
        self.history = _retention(history)
        self.max_payload = max_payload
        self.queues = None if queues is None else frozenset(check_queues(queues))
        self._tasks: dict[str, Task[..., Any]] = {}

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks, by name."""
        return MappingProxyType(self._tasks)

    @property
    def keeps_history(self) -> bool:
        """Whether ended jobs are kept at all."""
        return self.history > timedelta(0)

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        unique: Unique | None = None,
    ) -> Registers: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        unique: Unique | None = None,
    ) -> Any:
        """Register a function as a task; with or without parentheses.

        Args:
            function: the function, where the decorator has no parentheses.
            name: what jobs say in the database; by default the function's module and qualified name.
            queue: the queue to stand in; ``default`` by default.
            priority: -100…100, higher runs sooner; 0 by default.
            retry: when failed jobs run again.
            max_attempts: after how many attempts a job is dead; by default what ``retry`` says.
            timeout: seconds, or a timedelta, that an attempt may take; None: as long as it likes.
            unique: what happens when two live jobs would share a ``unique_key``.

        Returns:
            A :class:`Task` with the function's own signature, less its ``Context``.

        Raises:
            DuplicateTask: the name is taken.
            InvalidOption: an option is out of its range.
            UnknownQueue: the queue is not one of those declared.
        """
        policy = Retry() if retry is None else retry
        options = JobOptions(max_attempts=policy.max_attempts).but(
            queue=queue, priority=priority, max_attempts=max_attempts, unique=unique
        )
        self.require_queue(options.queue)
        limit = as_limit("timeout", timeout)

        def register(decorated: Callable[..., Any]) -> Task[..., Any]:
            task_name = check_name(
                "task", f"{decorated.__module__}.{decorated.__qualname__}" if name is None else name
            )
            if task_name in self._tasks:
                raise DuplicateTask(
                    f"task {task_name!r} is registered already, as {self._tasks[task_name].function!r}; "
                    "give one of the two another name: @queue.task(name=...)"
                )
            task: Task[..., Any] = Task(
                decorated,
                self,
                work=self.surround(decorated),
                name=task_name,
                options=options,
                retry=policy,
                timeout=limit,
            )
            self._tasks[task_name] = task
            return task

        return register if function is None else register(function)

    def surround(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What a worker calls in place of a task's function; here the function itself.

        A framework's queue overrides this, and so may an app's: it wraps the function in what it needs to have
        around it. What it returns must be ``async def`` if the function is, and is given the same arguments.
        """
        return function

    def find_task(self, name: str) -> Task[..., Any]:
        """A registered task by its name.

        Raises:
            UnknownTask: there is none; the message suggests the nearest.
        """
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(f"no task {name!r} is registered{did_you_mean(name, self._tasks)}") from None

    def load_task(self, name: str) -> bool:
        """Look further for a task that a job names and that is not registered; whether it is registered now.

        A framework's queue overrides this. A worker calls it in a thread, since it may block. It must not raise.
        """
        return name in self._tasks

    def require_queue(self, queue: str) -> None:
        """Refuse a queue that was not declared, where queues are declared.

        Raises:
            UnknownQueue: it is not one of them; the message lists them.
        """
        if self.queues is not None and queue not in self.queues:
            raise UnknownQueue(
                f"queue {queue!r} is not one of those declared in PgQueue(queues=...): "
                f"{', '.join(sorted(self.queues))}{did_you_mean(queue, self.queues)}"
            )

    def enqueue(self, jobs: Iterable[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        """Add jobs that tasks have prepared; ``Task.enqueue`` and ``enqueue_many`` end here."""
        match jobs:
            case [job]:
                return self._handles([self.database.run(enqueue.enqueue(self._checked(job)), connection)])
            case _:
                plan = enqueue.enqueue_many(self._drawn(jobs, connection))
                return self._handles(self.database.run_whole(plan, connection))

    async def aenqueue(self, jobs: Iterable[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        """Add jobs that tasks have prepared; ``Task.enqueue`` and ``enqueue_many`` end here."""
        match jobs:
            case [job]:
                return self._handles(
                    [await self.database.arun(enqueue.enqueue(self._checked(job)), connection)]
                )
            case _:
                plan = enqueue.enqueue_many(self._drawn(jobs, connection))
                return self._handles(await self.database.arun_whole(plan, connection))

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: object = None) -> list[JobHandle[R]]:
        """Enqueue many calls at once, all or none.

        Args:
            calls: ``task.call(...)`` or ``task.using(...).call(...)``, of any tasks.
            connection: enqueue on this connection, in its current transaction.

        Returns:
            A handle per call, in order; ``handle.accepted`` is False where a unique key was taken.
        """
        return self.enqueue((call.job for call in calls), connection)

    async def aenqueue_many(
        self, calls: Iterable[Call[R]], *, connection: object = None
    ) -> list[JobHandle[R]]:
        """Enqueue many calls at once, all or none.

        Args:
            calls: ``task.call(...)`` or ``task.using(...).call(...)``, of any tasks.
            connection: enqueue on this connection, in its current transaction.

        Returns:
            A handle per call, in order; ``handle.accepted`` is False where a unique key was taken.
        """
        return await self.aenqueue((call.job for call in calls), connection)

    def take(
        self,
        count: int = 1,
        *,
        queues: Sequence[str] | None = None,
        timeout: Duration | None = None,
        lease: Duration = DEFAULT_LEASE,
    ) -> Take:
        """Take jobs to handle them yourself: a context manager of a list of jobs (``atake``: an async one).

        Waits until there is a job. Leaving the block completes all jobs that were not settled one by one;
        an exception returns them all, an attempt spent, the error recorded.

        Args:
            count: at most how many.
            queues: from these, in this order; None: from all.
            timeout: how long to wait for the first job, in seconds or as a timedelta; then the list is empty. Zero:
                do not wait. None, the default: wait for ever.
            lease: how soon others may have the jobs if this process dies; seconds, or a timedelta. It is renewed
                meanwhile.

        Raises:
            InvalidOption: a value is out of its range.
            Superseded: on leaving, if the lease was lost; the jobs are somebody else's.
        """
        return Take(self.database, count, **self._hold(queues, timeout, lease))

    def atake(
        self,
        count: int = 1,
        *,
        queues: Sequence[str] | None = None,
        timeout: Duration | None = None,
        lease: Duration = DEFAULT_LEASE,
    ) -> AsyncTake:
        """Take jobs to handle them yourself: a context manager of a list of jobs (``atake``: an async one).

        Waits until there is a job. Leaving the block completes all jobs that were not settled one by one;
        an exception returns them all, an attempt spent, the error recorded.

        Args:
            count: at most how many.
            queues: from these, in this order; None: from all.
            timeout: how long to wait for the first job, in seconds or as a timedelta; then the list is empty. Zero:
                do not wait. None, the default: wait for ever.
            lease: how soon others may have the jobs if this process dies; seconds, or a timedelta. It is renewed
                meanwhile.

        Raises:
            InvalidOption: a value is out of its range.
            Superseded: on leaving, if the lease was lost; the jobs are somebody else's.
        """
        return AsyncTake(self.database, count, **self._hold(queues, timeout, lease))

    def close(self) -> None:
        """Close the connections kept for enqueuing."""
        self.database.close()

    async def aclose(self) -> None:
        """Close the connections kept for enqueuing."""
        await self.database.aclose()

    def _make_database(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        """Where this queue's jobs are to be; a framework's queue overrides it."""
        return Database(dsn, **options)

    def _handles(self, enqueued: Iterable[Enqueued]) -> list[JobHandle[Any]]:
        return [JobHandle(one, self) for one in enqueued]

    def _hold(
        self, queues: Sequence[str] | None, timeout: Duration | None, lease: Duration
    ) -> dict[str, Any]:
        queues = None if queues is None else check_queues(queues)
        for queue in queues or ():
            self.require_queue(queue)
        return {
            "queues": queues if queues is not None or self.queues is None else sorted(self.queues),
            "timeout": as_delay("timeout", timeout),
            "lease": as_limit("lease", lease),
            "keep": self.keeps_history,
            "policy_of": self._policy_of,
        }

    def _policy_of(self, name: str) -> Retry:
        """The retry policy of a task that is registered here; the default one for any other."""
        task = self._tasks.get(name)
        return Retry() if task is None else task.retry

    def _drawn(self, jobs: Iterable[NewJob], connection: object) -> Iterable[NewJob]:
        """The jobs: all of them now, where making them may use the very connection, else when there is time."""
        checked = map(self._checked, jobs)
        first = islice(checked, None if self.database.joins(connection) else enqueue.ROWS_PER_BLOCK)
        return chain(list(first), checked)  # a mistake in the first block needs no database to be found

    def _checked(self, job: NewJob) -> NewJob:
        if self.queues is not None:
            self.require_queue(job.queue)
        return job


def _retention(history: Duration) -> timedelta:
    """The history's retention; a length between zero and a day is a mistake: somebody meant days."""
    kept = as_duration("history", history)
    if kept < timedelta(0) or kept > LONGEST_RETENTION:
        raise InvalidOption(f"history={history!r}: use a timedelta from zero to 100 years")
    if timedelta(0) < kept < timedelta(days=1):
        raise InvalidOption(
            f"history={history!r} is {kept}, but history is kept by whole days: "
            "use timedelta(days=...), or 0 to keep none"
        )
    return kept
