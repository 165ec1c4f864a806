"""Batch tasks: how one is declared, and what it sees: its jobs, each with its arguments, and what becomes of each.

    @dataclass
    class Document:
        id: int
        tenant: str

    @queue.batch_task(Document, size=100, by=("tenant",))
    def index(jobs: Batch[Document]) -> None:
        for job in jobs:
            try: ...
            except SearchError as error:
                job.fail(error)

A job that is not told otherwise ends as the call does. :mod:`pgqueue.worker.batches` calls the function;
:mod:`pgqueue.values.jobs.verdict` decides what an error means.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from pgqueue.app.context import AttemptHost, Context, JobTransaction
from pgqueue.app.naming import place_of
from pgqueue.app.task import Task
from pgqueue.errors import Duration, InvalidOption, JobError, Snooze, Superseded, as_delay
from pgqueue.store.jobs import finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import NOT_RETURNED, Died, Succeeded, Verdict, as_recorded, failed_verdict
from pgqueue.values.payloads.codec import with_encoded_errors

I_co = TypeVar("I_co", covariant=True)


class BatchJob(Generic[I_co]):
    """One job of a batch.

    Attributes:
        result: what the job returns; it counts if the job succeeds.
        error: how the job was told to end, by :meth:`fail` or :meth:`release`; None: as the call ends.
    """

    __slots__ = ("_args", "_ctx", "_host", "error", "result")

    def __init__(self, args: I_co, ctx: Context, host: AttemptHost) -> None:
        """Made by the worker, for one attempt."""
        self._args = args
        self._ctx = ctx
        self._host = host
        self.result: Any = None
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<BatchJob {self.id} attempt {self.attempt}>"

    @property
    def id(self) -> int:
        """The job's id."""
        return self._ctx.job.id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._ctx.job.attempt

    @property
    def args(self) -> I_co:
        """The arguments: what the task's first option makes of them."""
        return self._args

    @property
    def meta(self) -> dict[str, Any]:
        """What the enqueuer sent along with the job; empty: nothing."""
        return self._ctx.meta

    @property
    def cancelled(self) -> bool:
        """Whether the attempt was told to stop: a caller cancelled the job, the worker stops, or the lease is lost."""
        return self._ctx.cancelled

    def fail(self, error: BaseException, *, delay: Duration | None = None) -> None:
        """Fail this job and no other one: as if a task of this one job had raised the error.

        Args:
            error: the task's retry policy decides on it; ``Snooze``, ``RetryLater``, ``Dead`` and ``Cancelled`` decide by themselves.
            delay: run the job again after this, if it has attempts left; seconds, or a timedelta. None: as the policy decides.

        Raises:
            InvalidOption: this is no exception, or the delay is out of its range.
            JobError: the batch's transaction has recorded how the job ended.
        """
        if not isinstance(error, BaseException):
            raise InvalidOption(f"job.fail({error!r:.80}): give an exception")
        if self._ctx.completed:
            raise JobError(f"job {self.id}: jobs.transaction() has recorded how it ended")
        if (after := as_delay("delay", delay)) is not None:
            self._ctx._judged = error, self._again(error, after)  # noqa: SLF001 - of the same floor, for the worker
        self.error = error

    def release(self, delay: Duration = 0) -> None:
        """Put this job back to run after ``delay``; its attempt is not counted. Raises as :meth:`fail`."""
        self.fail(Snooze(delay))

    def _again(self, error: BaseException, delay: timedelta) -> Verdict:
        job = self._ctx.job
        return failed_verdict(job, describe(error, job.attempt), delay=delay, seconds=self._ctx.seconds)

    def _verdict(self) -> Verdict:
        ctx, host = self._ctx, self._host
        if self.error is not None:
            return host.verdict(ctx, self.error)
        if self.result is None:
            return Succeeded(ctx.job, ctx.seconds, NOT_RETURNED if host.returns_value(ctx.job) else None)
        return host.success(ctx.job, ctx.seconds, self.result)


class Batch(Sequence[BatchJob[I_co]]):
    """The jobs of one call of a batch task, in the order in which they were claimed."""

    __slots__ = ("_host", "_jobs")

    def __init__(self, jobs: Sequence[BatchJob[I_co]], host: AttemptHost) -> None:
        """Made by the worker, for one call."""
        self._jobs = tuple(jobs)
        self._host = host

    @overload
    def __getitem__(self, index: int) -> BatchJob[I_co]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BatchJob[I_co]]: ...
    def __getitem__(self, index: int | slice) -> BatchJob[I_co] | Sequence[BatchJob[I_co]]:
        return self._jobs[index]

    def __iter__(self) -> Iterator[BatchJob[I_co]]:
        return iter(self._jobs)

    def __len__(self) -> int:
        """How many jobs there are; at least one."""
        return len(self._jobs)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} jobs>"

    @property
    def cancelled(self) -> bool:
        """Whether every job was told to stop."""
        return all(job.cancelled for job in self._jobs)

    def transaction(self) -> "BatchTransaction":
        """A transaction that commits the task's own writes together with the ends of all jobs, or nothing of them.

        Jobs that were told to fail or were put back before the end of the block are recorded so, and the others as succeeded.
        All else is as for :meth:`pgqueue.Context.transaction`.

        Raises:
            Superseded: on leaving, if one of the jobs is no longer this attempt's. All is rolled back.
        """
        return BatchTransaction(self, self._host)


class BatchContext(Context):
    """What middleware sees of a batch: the surroundings of its first job, and all its jobs."""

    __slots__ = ("_batch",)

    def __init__(self, job: Claim, host: AttemptHost, batch: Batch[Any]) -> None:
        """Made by the worker, for one call."""
        super().__init__(job, host)
        self._batch = batch

    @property
    def jobs(self) -> tuple[Claim, ...]:
        """The jobs of the call."""
        return tuple(job._ctx.job for job in self._batch)  # noqa: SLF001 - of this same file

    def is_final(self, error: BaseException) -> bool:
        """Whether a job is dead if the call ends with this error."""
        left = (job._ctx for job in self._batch if job.error is None)  # noqa: SLF001 - of this same file
        return any(isinstance(self._host.verdict(ctx, error), Died) for ctx in left)

    def transaction(self) -> JobTransaction:
        """The batch's."""
        return self._batch.transaction()


class BatchTransaction(JobTransaction):
    """A transaction of a batch task's writes and the ends of its jobs: ``with``, in an ``async def`` task ``async with``."""

    __slots__ = ("_batch", "_states")

    def __init__(self, batch: Batch[Any], host: AttemptHost) -> None:
        super().__init__(batch[0]._ctx, host)  # noqa: SLF001 - of this same file
        self._batch = batch

    def _ends(self) -> Sequence[Verdict]:
        return [job._verdict() for job in self._batch]  # noqa: SLF001 - of this same file

    def _completion(self, ends: Sequence[Verdict]) -> Plan[States]:
        encoded = with_encoded_errors(self._host.codec, ends)
        return finish.finish(ends[0].claim.worker_id, encoded, keep=self._host.keeps_history)

    def _require_held(self, done: States) -> None:
        self._states = done
        lost = [job._ctx for job in self._batch if job.id not in done]  # noqa: SLF001 - of this same file
        for ctx in lost:
            ctx._lost("rolled back")  # noqa: SLF001 - of the same floor
        if lost:
            raise Superseded(
                f"jobs {', '.join(str(ctx.job.id) for ctx in lost[:10])}: this attempt no longer holds them; the batch of "
                f"{len(self._batch)} jobs is rolled back"
            )

    def _note_completion(self, ends: Sequence[Verdict]) -> None:
        if ends:
            for job in self._batch:
                job._ctx.completed = True  # noqa: SLF001 - of this same file
            self._host.observers.ended([as_recorded(one, self._states[one.claim.id]) for one in ends])


def require_item(item: object) -> None:
    """Refuse what cannot make an item of a job's arguments.

    Raises:
        InvalidOption: it cannot; the message says what to write.
    """
    form = "write @queue.batch_task(Item, size=100), with a dataclass of one job's arguments"
    if not callable(item) or isinstance(item, Task):
        raise InvalidOption(f"@queue.batch_task({item!r:.80}): {form}")
    try:
        known = inspect.signature(item).parameters
    except (TypeError, ValueError):
        raise InvalidOption(
            f"@queue.batch_task({item!r:.80}): its parameters are not known; {form}"
        ) from None
    if any("Batch" in str(parameter.annotation) for parameter in known.values()):
        raise InvalidOption(f"@queue.batch_task on {item!r:.80}: {form}")
    if inspect.iscoroutinefunction(item) or inspect.isgeneratorfunction(item):
        raise InvalidOption(f"@queue.batch_task({item!r:.80}): an item is made by a plain call; {form}")


def require_one_parameter(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with a batch alone.

    Raises:
        InvalidOption: it cannot.
    """
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise InvalidOption(
            f"@queue.batch_task on {function!r:.80} ({place_of(function)}): {error}; it is called with one argument, the "
            "Batch: its transaction() takes the place of a Context"
        ) from None
