"""What a running task may know and do: its job, its attempt, its logger, its transaction.

A task that wants its context names it by annotation::

    @queue.task
    def bill(ctx: Context, order_id: int) -> None:
        with ctx.transaction() as connection:
            connection.execute("update orders set billed = true where id = %s", [order_id])

The job's completion commits in that same transaction: either both happen or neither does.

What an attempt notes is decided in :mod:`pgqueue.app.notes`, and how it waits in :mod:`pgqueue.app.signals.waits`.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

import psycopg

from pgqueue.app.attempt_logs import WaitingLogs
from pgqueue.app.flows.nodes import FlowInside
from pgqueue.app.forks import end_if_forked, process
from pgqueue.app.hooks.observer import Observers
from pgqueue.app.logger import JobLogger, bounded_logger
from pgqueue.app.notes import Board, NoteHost, Notes
from pgqueue.app.signals.waits import CanWait
from pgqueue.app.twins import awaits, blocks, require_blocking
from pgqueue.errors import JobError, Superseded
from pgqueue.store.connections.connection import AsyncStepRunner, StepRunner
from pgqueue.store.connections.open_transaction import joinable
from pgqueue.store.flows import flow_growth
from pgqueue.store.jobs import finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.store.plan import Plan, arun, run
from pgqueue.values.flows.results import FlowPosition, Results
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import checked_report
from pgqueue.values.jobs.verdict import NOT_RETURNED, Died, Stop, Succeeded, Verdict
from pgqueue.values.payloads.storable import SCHEDULED_FOR, object_of

if TYPE_CHECKING:
    from pgqueue.values.flows.addition import Addition

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

logger = bounded_logger("pgqueue.task")


class AttemptHost(NoteHost, Protocol):
    """What runs attempts, as their contexts see it.

    Attributes:
        database: where ``transaction`` takes connections from, and where notes are kept.
        keeps_history: whether completion writes history.
        observers: told if the job is found lost, or if ``transaction`` completes it.
        board: where progress is reported.
        logs: where lines are kept that attempts log.
    """

    keeps_history: bool
    observers: Observers
    board: Board
    logs: WaitingLogs

    def returns_value(self, claim: Claim) -> bool:
        """Whether the claim's task says that it returns something."""

    def is_async(self, claim: Claim) -> bool:
        """Whether the claim's task is an ``async def`` function."""

    def clear_result(self, task: str, stored: str, meta: str | None) -> str:
        """The stored result of a job of this task, and with this ``meta``, as JSON in clear."""

    def timeout(self, claim: Claim) -> timedelta | None:
        """How long an attempt of the claim's task may take; None: as long as it likes."""

    def success(self, claim: Claim, seconds: float, value: object) -> Succeeded:
        """What to record of an attempt that returned this."""

    def verdict(self, ctx: "Context", error: BaseException) -> Verdict:
        """What becomes of the job if its attempt ends with this error."""


class Context(CanWait):
    """The surroundings of one attempt.

    Attributes:
        job: the claim: id, queue, task, priority, attempt, max_attempts, run_at, created_at.
        attempt: which attempt this is, from 1.
        logger: a logger whose records carry the job's id, task and attempt.
        cancelled: whether this attempt has been told to stop (a caller cancelled the job, the worker stops,
            or the lease is lost). An ``async def`` task is cancelled besides; a plain one may look here.
        completed: whether :meth:`transaction` has completed the job.
    """

    _host: AttemptHost
    __slots__ = (
        "_additions",
        "_facts",
        "_host",
        "_judged",
        "_notes",
        "_started",
        "_stopped",
        "_superseded",
        "cancelled",
        "completed",
        "job",
    )

    def __init__(self, job: Claim, host: AttemptHost) -> None:
        """Made by the worker, for one attempt."""
        self.job = job
        self.cancelled = False
        self.completed = False
        self._superseded = False
        self._stopped: Stop | None = None
        self._host = host
        self._facts: FlowPosition | None = None
        self._additions: list[Addition] = []  # list[Addition]() takes 0.5 µs
        self._judged: tuple[BaseException, Verdict] | None = None
        self._notes: Notes | None = None
        self._started = time.monotonic()

    @property
    def jobs(self) -> tuple[Claim, ...]:
        """The jobs of this attempt, for middleware: one; around a batch, all of its jobs, of which ``job`` is the first."""
        return (self.job,)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempt

    @property
    def meta(self) -> dict[str, Any]:
        """What the enqueuer sent along with the job; empty: nothing."""
        return {} if self.job.meta is None else object_of(self.job.meta)

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of the schedule that enqueued the job, in UTC; None: no schedule did."""
        said = self.meta.get(SCHEDULED_FOR)
        return datetime.fromisoformat(said).astimezone(UTC) if isinstance(said, str) else None

    @property
    def results(self) -> Results:
        """What the nodes before this job returned, in its chain, group or workflow; empty, if it is in none."""
        return Results(() if self._facts is None else self._facts.before, self._host.clear_result)

    @property
    def flow(self) -> FlowInside:
        """The chain, group or workflow that this job is part of, to which it may add.

        Raises:
            FlowError: it is part of none.
        """
        return FlowInside(self._facts, self.job, self._additions)

    @property
    def seconds(self) -> float:
        """How long this attempt has been running."""
        return time.monotonic() - self._started

    @property
    def timeout(self) -> timedelta | None:
        """How long this attempt may take; None: as long as it likes."""
        return self._host.timeout(self.job)

    @property
    def logger(self) -> "JobLogger":
        """A logger whose records carry the job's id, task and attempt."""
        return JobLogger(logger, {"job": self.job.id, "task": self.job.task, "attempt": self.job.attempt})

    def is_final(self, error: BaseException) -> bool:
        """Whether the job is dead if this attempt ends with this error; for middleware that tells of failures.

        The worker judges an error once, so it records what is said here.
        """
        return isinstance(self._host.verdict(self, error), Died)

    def transaction(self) -> "JobTransaction":
        """A transaction that commits the task's own writes and the job's completion together.

        What the task asks of the same queue inside, without naming a connection, is part of it: jobs that it enqueues
        commit with it, or not at all. ``using(connection=OWN_CONNECTION)`` enqueues apart from it.

        Returns:
            For a plain task, a context manager of a :class:`psycopg.Connection`; for an ``async def`` task,
            an asynchronous one of a :class:`psycopg.AsyncConnection`. Left by an exception it rolls back,
            and the job is not completed. What the task does after it is outside of the job; so is its
            return value.

        Raises:
            Superseded: on leaving, if this attempt no longer holds its job. The writes are rolled back.
        """
        return JobTransaction(self, self._host)

    @blocks
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: D417 - its own
        """Run a part of a plain task once per job: ``ctx.step("charge", charge, order_id)``.

        The result is recorded as soon as the function has returned. Later attempts get the recorded result, and the function
        is not called. A step that raises records nothing, and the attempt fails as usual. If the process dies after the
        function's effect and before the record, a later attempt calls it again.

        Args:
            name: one per step of the job, 1 to 200 characters; in a loop such as ``f"page {number}"``.
            function: a plain function; the arguments follow.

        Returns:
            What the function returns, read back from JSON as its annotation says.

        Raises:
            InvalidOption: the name is no name, or a step of this attempt has it; or an ``async def`` task calls this
                in place of :meth:`astep`.
            ConfigurationError: the function's annotation names a type that JSON cannot carry; it was not called.
            PayloadError: the result cannot be recorded, or the recorded one no longer fits the function.
            Superseded: this attempt no longer holds its job; nothing was recorded.
            JobError: :meth:`transaction` has completed the job.
        """
        return self._own_notes().step(name, function, args, kwargs)  # type: ignore[no-any-return]  # as annotated

    @overload
    def astep(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def astep(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @awaits
    def astep(  # noqa: D417 - the function's own
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run a part of an ``async def`` task once per job: ``await ctx.astep("charge", charge, order_id)``.

        All else is as for :meth:`step`.

        Args:
            name: one per step of the job.
            function: ``async def`` or plain; the arguments follow. A plain one is called in the event loop.

        Raises:
            InvalidOption: as for :meth:`step`; or a plain task calls this in place of :meth:`step`.
        """
        return self._own_notes().astep(name, function, args, kwargs)

    @blocks
    def checkpoint(self, value: object) -> None:
        """Record a value for later attempts, in place of the one before; :meth:`last_checkpoint` returns it.

        Args:
            value: what has a JSON form.

        Raises:
            PayloadError: it has none, or a too long one.
            Superseded: this attempt no longer holds its job; nothing was recorded.
            JobError: :meth:`transaction` has completed the job.
        """
        self._own_notes().checkpoint(value)

    @awaits
    async def acheckpoint(self, value: object) -> None:
        """As :meth:`checkpoint`, awaited."""
        await self._own_notes().acheckpoint(value)

    @blocks
    def last_checkpoint(self) -> Any:  # noqa: ANN401 - any JSON
        """The value that the last :meth:`checkpoint` of the job recorded, as plain JSON values; None: there is none."""
        return self._own_notes().last_checkpoint()

    @awaits
    async def alast_checkpoint(self) -> Any:  # noqa: ANN401 - any JSON
        """As :meth:`last_checkpoint`, awaited."""
        return await self._own_notes().alast_checkpoint()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the job is, for ``queue.progress(id)`` and ``pgqueue jobs show``.

        It waits for nothing: the worker writes the newest report of each job about once a second.

        Args:
            done: how much is done.
            total: of how much; None: that is not known.
            message: for people; its first 500 characters are kept.

        Raises:
            InvalidOption: a number is negative, not finite or over 10^15; or a value is of another type.
        """
        self._host.board.put(self.job, checked_report(done, total, message))

    def _own_notes(self) -> Notes:
        if self.completed:
            raise JobError(
                f"job {self.job.id}: ctx.transaction() has completed it, so no later attempt needs a record"
            )
        if self._notes is None:
            self._notes = Notes(self.job, self._host, self._lost)
        return self._notes

    def _lost(self, what: str) -> Superseded:
        """Note that the attempt no longer holds its job; return the error to raise. ``what`` says what was not done."""
        self._superseded = True
        self._host.observers.lost([self.job])
        return Superseded(f"job {self.job.id}: attempt {self.attempt} no longer holds it; {what}")


class JobTransaction:
    """A transaction of the task's writes and the job's completion: ``with`` in a plain task, ``async with`` in another."""

    __slots__ = ("_ctx", "_entered", "_forks", "_host")

    def __init__(self, ctx: Context, host: AttemptHost) -> None:
        self._ctx = ctx
        self._host = host
        self._forks = process.forks

    def __enter__(self) -> psycopg.Connection[Any]:
        require_blocking(self._ctx, "`with` a transaction()", "`async with`")
        self._entered: Any = self._blocking()
        return self._entered.__enter__()

    def __exit__(self, *raised: object) -> bool | None:
        # A copy would end the transaction of the process that it is forked from.
        end_if_forked(self._forks, raised[1])
        return self._entered.__exit__(*raised)  # type: ignore[no-any-return]  # what contextlib returns

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._entered = self._awaitable()
        return await self._entered.__aenter__()  # type: ignore[no-any-return]  # what contextlib returns

    async def __aexit__(self, *raised: object) -> bool | None:
        end_if_forked(self._forks, raised[1])
        return await self._entered.__aexit__(*raised)  # type: ignore[no-any-return]  # what contextlib returns

    @contextmanager
    def _blocking(self) -> Iterator[psycopg.Connection[Any]]:
        ends: Sequence[Verdict] = ()
        database = self._host.database
        with database.transaction() as connection:  # a psycopg.Rollback ends it before the completion
            with joinable(database.itself, connection):
                yield connection
            ends = self._ends()
            steps, plan = StepRunner(connection, database.catalogue), self._completion(ends)
            again = again_after_deadlock if plan.kind.transaction else _once
            self._require_held(again(lambda plan: run(plan, steps))(plan))
        self._note_completion(ends)

    @asynccontextmanager
    async def _awaitable(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        ends: Sequence[Verdict] = ()
        database = self._host.database
        async with database.atransaction() as connection:  # a psycopg.Rollback ends it, too
            with joinable(database.itself, connection):
                yield connection
            ends = self._ends()
            steps, plan = AsyncStepRunner(connection, database.catalogue), self._completion(ends)
            again = aagain_after_deadlock if plan.kind.transaction else _once
            self._require_held(await again(lambda plan: arun(plan, steps))(plan))
        self._note_completion(ends)

    def _ends(self) -> Sequence[Verdict]:
        job = self._ctx.job
        return [Succeeded(job, self._ctx.seconds, NOT_RETURNED if self._host.returns_value(job) else None)]

    def _completion(self, ends: Sequence[Verdict]) -> Plan[States]:
        keep, additions = self._host.keeps_history, self._ctx._additions  # noqa: SLF001 - for the worker alone
        if additions and isinstance(done := ends[0], Succeeded):
            return flow_growth.complete(done, additions, keep=keep)
        return finish.finish(self._ctx.job.worker_id, ends, keep=keep)

    def _require_held(self, done: States) -> None:
        if not done:
            raise self._ctx._lost("rolled back")  # noqa: SLF001 - of the same file

    def _note_completion(self, ends: Sequence[Verdict]) -> None:
        if ends:
            self._ctx.completed = True
            self._host.observers.ended(ends)


def _once(run: R) -> R:
    """For a plan without a savepoint: a deadlock in it rolls back the task's own writes, too."""
    return run
