"""What a running task may know and do: its job, its attempt, its logger, its transaction.

A task that wants its context names it by annotation::

    @queue.task
    def bill(ctx: Context, order_id: int) -> None:
        with ctx.transaction() as connection:
            connection.execute("update orders set billed = true where id = %s", [order_id])

The job's completion commits in that same transaction: either both happen or neither does.
"""

import logging
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg

from pgqueue.app.observer import Observers
from pgqueue.errors import Superseded
from pgqueue.store import finish
from pgqueue.store.connection import Awaiting, Blocking
from pgqueue.store.database import Database
from pgqueue.store.ending import States
from pgqueue.store.joining import joinable
from pgqueue.store.plan import Plan, arun, run
from pgqueue.values.codec import object_of
from pgqueue.values.job import Claim
from pgqueue.values.meta import SCHEDULED_FOR
from pgqueue.values.result import NOT_RETURNED
from pgqueue.values.verdict import Died, Succeeded, Verdict

logger = logging.getLogger("pgqueue.task")


class Host(Protocol):
    """What runs attempts, as their contexts see it.

    Attributes:
        database: where ``transaction`` takes connections from.
        keeps_history: whether completion writes history.
        observers: told if ``transaction`` completes the job, or finds it lost.
    """

    database: Database
    keeps_history: bool
    observers: Observers

    def returns_value(self, claim: Claim) -> bool:
        """Whether the claim's task says that it returns something."""

    def verdict(self, ctx: "Context", error: BaseException) -> Verdict:
        """What becomes of the job if its attempt ends with this error."""


class Context:
    """The surroundings of one attempt.

    Attributes:
        job: the claim: id, queue, task, priority, attempt, max_attempts, run_at, created_at.
        attempt: which attempt this is, from 1.
        logger: a logger whose records carry the job's id, task and attempt.
        cancelled: whether this attempt has been told to stop (a caller cancelled the job, the worker stops,
            or the lease is lost). An ``async def`` task is cancelled besides; a plain one may look here.
        completed: whether :meth:`transaction` has completed the job.
    """

    __slots__ = (
        "_host",
        "_judged",
        "_started",
        "_superseded",
        "cancelled",
        "completed",
        "job",
    )

    def __init__(self, job: Claim, host: Host) -> None:
        """Made by the worker, for one attempt.

        Args:
            job: the claim.
            host: what runs the attempt.
        """
        self.job = job
        self.cancelled = False
        self.completed = False
        self._superseded = False
        self._host = host
        self._judged: tuple[BaseException, Verdict] | None = None
        self._started = time.monotonic()

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
    def seconds(self) -> float:
        """How long this attempt has been running."""
        return time.monotonic() - self._started

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


class JobTransaction:
    """A transaction of the task's writes and the job's completion: ``with`` in a plain task, ``async with`` in another."""

    __slots__ = ("_ctx", "_entered", "_host")

    def __init__(self, ctx: Context, host: Host) -> None:
        """Prepare; nothing is connected yet."""
        self._ctx = ctx
        self._host = host

    def __enter__(self) -> psycopg.Connection[Any]:
        """Begin, on a connection of the blocking pool."""
        self._entered: Any = self._blocking()
        return self._entered.__enter__()

    def __exit__(self, *raised: object) -> bool | None:
        """Complete the job and commit, or roll back."""
        return self._entered.__exit__(*raised)  # type: ignore[no-any-return]  # what contextlib returns

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        """Begin, on a connection of the awaitable pool."""
        self._entered = self._awaitable()
        return await self._entered.__aenter__()  # type: ignore[no-any-return]  # what contextlib returns

    async def __aexit__(self, *raised: object) -> bool | None:
        """Complete the job and commit, or roll back."""
        return await self._entered.__aexit__(*raised)  # type: ignore[no-any-return]  # what contextlib returns

    @contextmanager
    def _blocking(self) -> Iterator[psycopg.Connection[Any]]:
        done: Succeeded | None = None
        database = self._host.database
        with database.transaction() as connection:  # a psycopg.Rollback ends it before the completion
            with joinable(database.itself, connection):
                yield connection
            done = self._success()
            self._require_held(run(self._completion(done), Blocking(connection, database.catalogue)))
        self._note_completion(done)

    @asynccontextmanager
    async def _awaitable(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        done: Succeeded | None = None
        database = self._host.database
        async with database.atransaction() as connection:  # a psycopg.Rollback ends it, too
            with joinable(database.itself, connection):
                yield connection
            done = self._success()
            self._require_held(await arun(self._completion(done), Awaiting(connection, database.catalogue)))
        self._note_completion(done)

    def _success(self) -> Succeeded:
        job = self._ctx.job
        return Succeeded(job, self._ctx.seconds, NOT_RETURNED if self._host.returns_value(job) else None)

    def _completion(self, done: Succeeded) -> Plan[States]:
        return finish.finish(done.claim.worker_id, [done], keep=self._host.keeps_history)

    def _require_held(self, done: States) -> None:
        if not done:
            job = self._ctx.job
            self._ctx._superseded = True  # noqa: SLF001 - for the worker alone
            self._host.observers.lost([job])
            raise Superseded(f"job {job.id}: attempt {job.attempt} no longer holds it; rolled back")

    def _note_completion(self, done: Succeeded | None) -> None:
        if done is not None:
            self._ctx.completed = True
            self._host.observers.ended([done])


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to every record, beside the ``extra`` of a call."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Merge the fields."""
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs
