"""The queue: where tasks are registered and jobs are enqueued, looked at and steered.

Every public method runs one plan of the store. Those that touch the database come in pairs, the awaited one
with Django's ``a`` prefix; one test holds the pairs to the same parameters and words.
"""

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from pgqueue.app.context import Context
from pgqueue.app.handle import JobHandle
from pgqueue.app.take import AsyncTake, Take
from pgqueue.app.task import Call, Registers, Task
from pgqueue.errors import (
    DuplicateTask,
    InvalidOption,
    JobFailed,
    JobNotDone,
    JobNotFound,
    UnknownQueue,
    UnknownTask,
)
from pgqueue.store import control, enqueue
from pgqueue.store.database import Database
from pgqueue.values.job import Enqueued, Job, JobState, NewJob, QueueCount
from pgqueue.values.options import JobOptions, check_name
from pgqueue.values.payload import DEFAULT_LIMIT
from pgqueue.values.retry import Retry
from pgqueue.values.unique import Unique

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_RETENTION = timedelta(days=7)
DEFAULT_LEASE = timedelta(seconds=30)
FIRST_LOOK, LONGEST_LOOK = 0.01, 1.0
LONGEST_PAGE = 10_000


class PgQueue:
    """A job queue in a PostgreSQL database."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "pgqueue",
        queues: Iterable[str] | None = None,
        history: timedelta = DEFAULT_RETENTION,
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
            history: for how long ended jobs are kept, in whole days; zero keeps none.
            max_payload: the most bytes a job's arguments may take as JSON.
            behind_pooler: ``dsn`` leads to a transaction pooler such as PgBouncer.
            direct_dsn: how to reach the server past that pooler, so that workers can listen; by default
                PGQUEUE_DIRECT_DSN in the environment.
            pool_size: at most how many connections of each kind (blocking, awaitable) to keep.

        Raises:
            InvalidOption: one of them is out of its range.
        """
        if history < timedelta(0):
            raise InvalidOption(f"history={history!r}: use a timedelta of zero or more")
        if max_payload < 1:
            raise InvalidOption(f"max_payload={max_payload!r}: use a number of bytes above zero")
        self.database = Database(
            dsn, schema=schema, direct_dsn=direct_dsn, behind_pooler=behind_pooler, pool_size=pool_size
        )
        self.history = history
        self.max_payload = max_payload
        self.queues = None if queues is None else frozenset(check_name("queue", name) for name in queues)
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
        timeout: float | timedelta | None = None,
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
        timeout: float | timedelta | None = None,
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
        limit = _duration("timeout", timeout)
        if limit is not None and limit <= timedelta(0):
            raise InvalidOption(f"timeout={timeout!r}: use a number of seconds above zero, or None")

        def register(decorated: Callable[..., Any]) -> Task[..., Any]:
            task_name = check_name("task", name or f"{decorated.__module__}.{decorated.__qualname__}")
            if task_name in self._tasks:
                raise DuplicateTask(
                    f"task {task_name!r} is registered already, as {self._tasks[task_name].function!r}; "
                    "give one of the two another name: @queue.task(name=...)"
                )
            task: Task[..., Any] = Task(
                decorated, self, name=task_name, options=options, retry=policy, timeout=limit
            )
            self._tasks[task_name] = task
            return task

        return register if function is None else register(function)

    def find_task(self, name: str) -> Task[..., Any]:
        """A registered task by its name.

        Raises:
            UnknownTask: there is none; the message suggests the nearest.
        """
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(f"no task {name!r} is registered{_did_you_mean(name, self._tasks)}") from None

    def require_queue(self, queue: str) -> None:
        """Refuse a queue that was not declared, where queues are declared.

        Raises:
            UnknownQueue: it is not one of them; the message lists them.
        """
        if self.queues is not None and queue not in self.queues:
            raise UnknownQueue(
                f"queue {queue!r} is not one of those declared in PgQueue(queues=...): "
                f"{', '.join(sorted(self.queues))}{_did_you_mean(queue, self.queues)}"
            )

    def enqueue(self, jobs: Sequence[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        """Add jobs that tasks have prepared; ``Task.enqueue`` and ``enqueue_many`` end here."""
        self._require_queues(jobs)
        if len(jobs) == 1:
            return self._handles([self.database.run(enqueue.enqueue(jobs[0]), connection)])
        return self._handles(self.database.run_whole(enqueue.enqueue_many(jobs), connection))

    async def aenqueue(self, jobs: Sequence[NewJob], connection: object = None) -> list[JobHandle[Any]]:
        """Add jobs that tasks have prepared; ``Task.enqueue`` and ``enqueue_many`` end here."""
        self._require_queues(jobs)
        if len(jobs) == 1:
            return self._handles([await self.database.arun(enqueue.enqueue(jobs[0]), connection)])
        return self._handles(await self.database.arun_whole(enqueue.enqueue_many(jobs), connection))

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: object = None) -> list[JobHandle[R]]:
        """Enqueue many calls at once, all or none.

        Args:
            calls: ``task.call(...)`` or ``task.using(...).call(...)``, of any tasks.
            connection: enqueue on this connection, in its current transaction.

        Returns:
            A handle per call, in order; ``handle.accepted`` is False where a unique key was taken.
        """
        return self.enqueue([call.job for call in calls], connection)

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
        return await self.aenqueue([call.job for call in calls], connection)

    def take(
        self,
        count: int = 1,
        *,
        queues: Sequence[str] | None = None,
        timeout: float | timedelta | None = None,
        lease: timedelta = DEFAULT_LEASE,
    ) -> Take:
        """Take jobs to handle them yourself: a context manager of a list of jobs (``atake``: an async one).

        Waits until there is a job. Leaving the block completes all jobs that were not settled one by one;
        an exception returns them all, an attempt spent, the error recorded.

        Args:
            count: at most how many.
            queues: from these, in this order; None: from all.
            timeout: how many seconds to wait for the first; then the list is empty. None: for ever.
            lease: how soon others may have the jobs if this process dies. It is renewed meanwhile.

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
        timeout: float | timedelta | None = None,
        lease: timedelta = DEFAULT_LEASE,
    ) -> AsyncTake:
        """Take jobs to handle them yourself: a context manager of a list of jobs (``atake``: an async one).

        Waits until there is a job. Leaving the block completes all jobs that were not settled one by one;
        an exception returns them all, an attempt spent, the error recorded.

        Args:
            count: at most how many.
            queues: from these, in this order; None: from all.
            timeout: how many seconds to wait for the first; then the list is empty. None: for ever.
            lease: how soon others may have the jobs if this process dies. It is renewed meanwhile.

        Raises:
            InvalidOption: a value is out of its range.
            Superseded: on leaving, if the lease was lost; the jobs are somebody else's.
        """
        return AsyncTake(self.database, count, **self._hold(queues, timeout, lease))

    def job(self, job_id: int) -> Job:
        """All that is recorded of a job, live or ended.

        Raises:
            JobNotFound: there is no record of it: never committed, or its history was dropped.
        """
        return _found(job_id, self.database.run(control.show(job_id)))

    async def ajob(self, job_id: int) -> Job:
        """All that is recorded of a job, live or ended.

        Raises:
            JobNotFound: there is no record of it: never committed, or its history was dropped.
        """
        return _found(job_id, await self.database.arun(control.show(job_id)))

    def jobs(
        self,
        *,
        state: JobState | str | Collection[JobState | str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        unique_key: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs that match every filter given, newest first.

        Args:
            state: a state or several: ``ready``, ``running``, ``dead``, ….
            queue: in this queue.
            task: of this task.
            unique_key: with this key.
            before: with a lower id than this; give the last id of a page to get the next.
            limit: at most so many, up to 10,000.

        Raises:
            InvalidOption: there is no such state, or the limit is out of range.
        """
        return self.database.run(
            control.jobs(
                states=_states(state),
                queue=queue,
                task=task,
                unique_key=unique_key,
                before=before,
                limit=_page(limit),
            )
        )

    async def ajobs(
        self,
        *,
        state: JobState | str | Collection[JobState | str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        unique_key: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs that match every filter given, newest first.

        Args:
            state: a state or several: ``ready``, ``running``, ``dead``, ….
            queue: in this queue.
            task: of this task.
            unique_key: with this key.
            before: with a lower id than this; give the last id of a page to get the next.
            limit: at most so many, up to 10,000.

        Raises:
            InvalidOption: there is no such state, or the limit is out of range.
        """
        return await self.database.arun(
            control.jobs(
                states=_states(state),
                queue=queue,
                task=task,
                unique_key=unique_key,
                before=before,
                limit=_page(limit),
            )
        )

    def cancel(self, job_id: int) -> JobState | None:
        """Cancel a job.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return self.database.run(control.cancel(job_id))

    async def acancel(self, job_id: int) -> JobState | None:
        """Cancel a job.

        Returns:
            CANCELLED if it was waiting; RUNNING if its worker has been asked to stop it; None if it has ended.
        """
        return await self.database.arun(control.cancel(job_id))

    def retry(self, job_id: int) -> bool:
        """Make a job ready at once: a scheduled one before its time, a dead one with all its attempts.

        Returns:
            False if there is no such job, or a live job has taken its unique key.
        """
        return self.database.run_whole(control.retry(job_id))

    async def aretry(self, job_id: int) -> bool:
        """Make a job ready at once: a scheduled one before its time, a dead one with all its attempts.

        Returns:
            False if there is no such job, or a live job has taken its unique key.
        """
        return await self.database.arun_whole(control.retry(job_id))

    def retry_dead(
        self, *, task: str | None = None, queue: str | None = None, before: datetime | None = None
    ) -> list[int]:
        """Return to their lines the dead jobs that match every filter given.

        Args:
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.

        Returns:
            The ids that went; those whose unique key is taken stay dead.
        """
        return self.database.run_whole(control.retry_dead_matching(task=task, queue=queue, before=before))

    async def aretry_dead(
        self, *, task: str | None = None, queue: str | None = None, before: datetime | None = None
    ) -> list[int]:
        """Return to their lines the dead jobs that match every filter given.

        Args:
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.

        Returns:
            The ids that went; those whose unique key is taken stay dead.
        """
        return await self.database.arun_whole(
            control.retry_dead_matching(task=task, queue=queue, before=before)
        )

    def purge_dead(
        self,
        job_ids: Sequence[int] | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
    ) -> int:
        """Forget the dead jobs that match every filter given; with none, all.

        Args:
            job_ids: among these.
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.

        Returns:
            How many were forgotten.
        """
        return self.database.run(control.purge_dead(job_ids=job_ids, task=task, queue=queue, before=before))

    async def apurge_dead(
        self,
        job_ids: Sequence[int] | None = None,
        *,
        task: str | None = None,
        queue: str | None = None,
        before: datetime | None = None,
    ) -> int:
        """Forget the dead jobs that match every filter given; with none, all.

        Args:
            job_ids: among these.
            task: of this task.
            queue: in this queue.
            before: dead since before this instant.

        Returns:
            How many were forgotten.
        """
        return await self.database.arun(
            control.purge_dead(job_ids=job_ids, task=task, queue=queue, before=before)
        )

    def pause(self, queue: str) -> None:
        """Stop a queue from being claimed from, by every worker; what runs goes on."""
        self.database.run(control.pause(check_name("queue", queue)))

    async def apause(self, queue: str) -> None:
        """Stop a queue from being claimed from, by every worker; what runs goes on."""
        await self.database.arun(control.pause(check_name("queue", queue)))

    def resume(self, queue: str) -> bool:
        """Let a paused queue be claimed from again; False: it was not paused."""
        return self.database.run(control.resume(check_name("queue", queue)))

    async def aresume(self, queue: str) -> bool:
        """Let a paused queue be claimed from again; False: it was not paused."""
        return await self.database.arun(control.resume(check_name("queue", queue)))

    def counts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue are in each state, the ended ones left out; and which queues are paused."""
        return self.database.run(control.counts())

    async def acounts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue are in each state, the ended ones left out; and which queues are paused."""
        return await self.database.arun(control.counts())

    def result(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401 - any JSON
        """Wait until a job has ended, and return what its task returned.

        Args:
            job_id: which.
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it.
        """
        for pause in _looks(timeout):
            job = self.job(job_id)
            if job.state.ended:
                return _result(job)
            time.sleep(pause)
        raise _not_done(job_id, timeout)

    async def aresult(self, job_id: int, *, timeout: float | timedelta | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """Wait until a job has ended, and return what its task returned.

        Args:
            job_id: which.
            timeout: seconds, or a timedelta; None: as long as it takes.

        Raises:
            JobNotDone: it has not ended in time.
            JobFailed: it is dead or was cancelled.
            JobNotFound: there is no record of it.
        """
        for pause in _looks(timeout):
            job = await self.ajob(job_id)
            if job.state.ended:
                return _result(job)
            await asyncio.sleep(pause)
        raise _not_done(job_id, timeout)

    def close(self) -> None:
        """Close the connections kept for enqueuing."""
        self.database.close()

    async def aclose(self) -> None:
        """Close the connections kept for enqueuing."""
        await self.database.aclose()

    def _handles(self, enqueued: Iterable[Enqueued]) -> list[JobHandle[Any]]:
        return [JobHandle(one, self) for one in enqueued]

    def _hold(
        self, queues: Sequence[str] | None, timeout: float | timedelta | None, lease: timedelta
    ) -> dict[str, Any]:
        for queue in queues or ():
            self.require_queue(queue)
        return {
            "queues": queues if queues is not None or self.queues is None else sorted(self.queues),
            "timeout": _duration("timeout", timeout),
            "lease": lease,
            "keep": self.keeps_history,
        }

    def _require_queues(self, jobs: Sequence[NewJob]) -> None:
        if self.queues is not None:
            for queue in {job.queue for job in jobs}:
                self.require_queue(queue)


def _duration(what: str, value: float | timedelta | None) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidOption(f"{what}={value!r}: use a number of seconds, a timedelta or None") from error


def _did_you_mean(name: str, known: Collection[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _found(job_id: int, job: Job | None) -> Job:
    if job is None:
        raise JobNotFound(
            f"no record of job {job_id}: it was never committed, or its history has been dropped"
        )
    return job


def _states(state: JobState | str | Collection[JobState | str] | None) -> list[JobState] | None:
    if state is None:
        return None
    given = [state] if isinstance(state, str) else list(state)
    try:
        return [JobState(one) for one in given]
    except ValueError as error:
        raise InvalidOption(f"{error}; the states are {', '.join(JobState)}") from error


def _page(limit: int) -> int:
    if not 1 <= limit <= LONGEST_PAGE:
        raise InvalidOption(f"limit={limit!r}: use a number from 1 to {LONGEST_PAGE:,}")
    return limit


def _looks(timeout: float | timedelta | None) -> Iterator[float]:
    """How long to pause after each look at a job, ever longer, until the time is over."""
    limit = _duration("timeout", timeout)
    deadline = None if limit is None else time.monotonic() + limit.total_seconds()
    pause = FIRST_LOOK
    while deadline is None or time.monotonic() < deadline:
        left = LONGEST_LOOK if deadline is None else deadline - time.monotonic()
        yield max(0.0, min(pause, left))
        pause = min(pause * 1.5, LONGEST_LOOK)
    yield 0.0


def _not_done(job_id: int, timeout: float | timedelta | None) -> JobNotDone:
    return JobNotDone(f"job {job_id} has not ended within {timeout!r}; it may still")


def _result(job: Job) -> Any:  # noqa: ANN401 - any JSON
    if job.state is JobState.SUCCEEDED:
        return job.result
    last = f": {job.errors[-1].type}: {job.errors[-1].message}" if job.errors else ""
    raise JobFailed(f"job {job.id} of {job.task} is {job.state}{last}")
