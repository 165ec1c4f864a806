"""A registered function, and the calls of it that can be enqueued.

A task checks and encodes a call's arguments; the queue on which it was registered adds the job
(:mod:`pgqueue.app.adding`). What can be a task at all is decided in :mod:`pgqueue.app.naming`.
"""

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, cast

import msgspec
from typing_extensions import ParamSpec, TypeVar

from pgqueue.app.adding import aadd, add, checked_job
from pgqueue.app.context import Context
from pgqueue.app.handle import JobHandle
from pgqueue.app.job_methods import JobMethods
from pgqueue.app.middleware import Middleware, wrap_in_middleware
from pgqueue.app.naming import first_name, objection_to
from pgqueue.errors import Duration, InvalidOption, PayloadNotEncodable
from pgqueue.values.hints import CALL_METHODS, did_you_mean, suggest_methods, suggest_options
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import (
    DEFAULT_UNIQUE,
    SLOTS,
    AfterTimeout,
    BatchPolicy,
    JobOptions,
    check_number,
)
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.unique import Unique, as_names, derived_key
from pgqueue.values.limits.limit import as_arguments
from pgqueue.values.limits.task_limits import TaskLimits
from pgqueue.values.payloads.argument_check import is_filled_in
from pgqueue.values.payloads.result import ItemType, ReturnType
from pgqueue.values.payloads.signature import Signature
from pgqueue.values.payloads.storable import encode_meta
from pgqueue.values.workers.crashes import DEFAULT_CRASHES, Crashes

P = ParamSpec("P")
R = TypeVar("R")
C = ParamSpec("C", default=...)
T_co = TypeVar("T_co", covariant=True, default=Any)
Awaited: TypeAlias = Coroutine[Any, Any, R]


class Call(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A call of a task, checked and encoded, not yet enqueued: for ``enqueue_many``, ``chain``, ``group``, ``Workflow``."""

    job: NewJob
    queue: JobMethods

    def as_part(self) -> NewJob:
        """The job as a part of a chain, a group or a workflow.

        Raises:
            InvalidOption: its unique key or its limit has a policy that a job which waits for others cannot keep.
            UnknownQueue: its queue is not one of those declared.
        """
        job = self.job
        if job.unique_key is not None and (job.unique.period is not None or job.unique.collision != "reject"):
            raise InvalidOption(
                f"{job.task}: {job.unique} cannot be kept by a job that waits for others; leave out period and collision"
            )
        if job.when_full is not None:
            raise InvalidOption(
                f"{job.task}: Limit(when_full={job.when_full[0]!r}) decides at the enqueue, and a job that waits for others is limited "
                "later; leave it out"
            )
        return checked_job(self.queue, job)


suggest_methods(Call, CALL_METHODS)


@suggest_methods
class Task(Generic[P, R, C, T_co]):
    """A function that can be enqueued with its own arguments.

    Its types are ``P`` and ``R``, the parameters and the result of a job, and ``C`` and ``T_co``, those of a direct call: the function's
    own, with its ``Context``. ``Task[[int], str]`` names the first two alone.

    Attributes:
        name: what jobs of this task say in the database.
        aliases: former names, whose jobs it runs.
        first_name: the name that it had first: limits, unique keys and schedules that are named after the task have it.
        function: the function itself.
        middleware: what runs around each attempt, the outermost first.
        around: what a worker calls in place of the function, with the attempt's context; None: it calls the function.
        options: how its jobs are queued unless ``using`` says otherwise.
        retry: when failed jobs run again.
        timeout: how long an attempt may take; None: as long as it likes.
        batching: how its jobs are gathered; None: each runs by itself.
        limiting: which limits and which share its jobs have; None: they have none.
        crashes: what becomes of a job whose attempts end with their worker.
        process: whether its attempts run in child processes of the worker.
        in_thread: whether they run in threads of the worker: those of plain functions do, unless ``process`` is said.
        after_timeout: what becomes of a job while its function goes on after its timeout; None: it waits if a limit counts it.
        slots: how many slots of its worker an attempt takes.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:  # noqa: ANN401 - as Generic's
            """Python 3.13.0 does not fill in the defaults of type parameters that are left out."""
            whole = (*given, ..., Any) if isinstance(given, tuple) and len(given) == 2 else given  # noqa: PLR2004 - P and R
            return super().__class_getitem__(whole)

    def __init__(
        self,
        function: Callable[..., Any],
        queue: JobMethods,
        *,
        middleware: Sequence[Middleware],
        name: str,
        options: JobOptions,
        retry: Retry,
        timeout: timedelta | None,
        crashes: Crashes = DEFAULT_CRASHES,
        process: bool = False,
        after_timeout: AfterTimeout | None = None,
        slots: int = 1,
        item: Callable[..., Any] | None = None,
        batching: BatchPolicy | None = None,
        limiting: TaskLimits | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        """Made by :meth:`pgqueue.PgQueue.task` and :meth:`pgqueue.PgQueue.batch_task`.

        Raises:
            InvalidOption: a limit names a parameter that there is not; ``slots`` is out of its range; or ``process`` is said of an ``async def`` function.
        """
        self.function = function
        self._item = item
        self.batching = batching
        self.name = name
        self.aliases = aliases
        self.first_name = first_name(name, aliases)
        self.options = options
        self.retry = retry
        self.timeout = timeout
        self.crashes = crashes
        self.after_timeout = after_timeout
        check_number("slots", slots, SLOTS)
        self.slots = slots
        self.is_async = inspect.iscoroutinefunction(function)
        if process and self.is_async:
            raise InvalidOption(
                f"{name}: process=True is for plain functions; write def in place of async def"
            )
        self.process = process
        self.in_thread = not self.is_async and not process
        self.compose(middleware)
        self._queue = queue
        self._connection: object = None
        self.limiting = None if limiting is None else self._with_defaults(limiting)
        self.__doc__ = function.__doc__
        self._consider_options()

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> T_co:
        """Call the function here and now, as if it were no task."""
        return cast("T_co", self.function(*args, **kwargs))

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a call with these arguments.

        Returns:
            A handle of the job, which exists once the transaction commits.

        Raises:
            PayloadNotEncodable: the arguments do not fit the task, or have no JSON form.
            PayloadTooLarge: their JSON form is over the limit.
            DatabaseError: the database cannot be reached, or its schema is missing.
        """
        return add(self._queue, [self._job(args, kwargs)], self._connection)[0]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As :meth:`enqueue`, awaited."""
        return (await aadd(self._queue, [self._job(args, kwargs)], self._connection))[0]

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call to hand to ``enqueue_many``; checked now, enqueued there.

        Raises:
            InvalidOption: the task has a connection; it is ``enqueue_many`` that takes one.
            PayloadNotEncodable: the arguments do not fit the task, or have no JSON form.
            PayloadTooLarge: their JSON form is over the limit.
        """
        if self.has_connection:
            raise InvalidOption(
                f"{self.name}.using(connection=...).call(...): give the connection to enqueue_many instead"
            )
        return Call(self._job(args, kwargs), self._queue)

    @suggest_options
    def using(
        self,
        *,
        connection: object = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        unique_key: str | None = None,
        unique: Unique | None = None,
        meta: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
        expires_in: Duration | None = None,
    ) -> Self:
        """This task with other options, for one enqueue or many; None leaves an option as it is.

        Args:
            connection: enqueue on this connection, in its current transaction: one of psycopg or asyncpg, a
                SQLAlchemy connection or session, or Django's. :data:`pgqueue.OWN_CONNECTION`: one of the queue, committed at once,
                also inside ``ctx.transaction()`` and inside a framework's transaction.
            queue: the queue to stand in.
            priority: -100…100, higher runs sooner.
            delay: run no sooner than this long from now, by the database's clock; seconds, or a timedelta, up to ten years.
            run_at: run no sooner than this instant; with a time zone, in the years 1900 to 8999.
            max_attempts: after how many attempts the job is dead.
            unique_key: what no two live jobs may share: 1 to 1,000 characters, at most 2,600 bytes. Hash a longer one.
            unique: what happens when they would; ``Unique(by=...)`` makes the key from arguments.
            meta: what is sent along for other programs, such as tags: an object of JSON values, at most 8 kB.
            expires_at: no attempt starts at this instant or later, the job is dead then, as ``expired``; with a time zone.
            expires_in: the same, this long after the job may run: after the enqueue, or its ``delay`` or ``run_at``; seconds,
                or a timedelta.

        Raises:
            InvalidOption: a value is out of its range.
        """
        _ = self.signature  # read once here, not again by every copy
        changed = copy.copy(self)
        changed.options = self.options.but(
            queue=queue,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            unique_key=unique_key,
            unique=unique,
            meta=None if meta is None else encode_meta(meta),
            expires_at=expires_at,
            expires_in=expires_in,
        )
        changed._consider_options()  # noqa: SLF001 - of this same class
        if connection is not None:
            changed._connection = connection  # noqa: SLF001 - of this same class
        return changed

    @cached_property
    def signature(self) -> Signature:
        """How arguments travel; read from the annotations when first needed, for they may name what follows."""
        return Signature(self.item, Context, task=self.name)

    @cached_property
    def returns(self) -> ReturnType:
        """What the function says that it returns, for each job."""
        return ReturnType(self.function) if self.batching is None else ItemType(self.function)

    @property
    def item(self) -> Callable[..., Any]:
        """What is called with a job's arguments: the function; of a batch task, what makes an item of them."""
        return self.function if self._item is None else self._item

    @property
    def has_connection(self) -> bool:
        """Whether it enqueues on a connection of the caller's, by ``using(connection=...)``."""
        return self._connection is not None

    def _of_queue(self, queue: JobMethods) -> Self:
        """Return the task as one of this queue: a copy, if it is bound to another copy of the queue."""
        if self._queue is queue:
            return self
        _ = self.signature  # read once here, not again by every copy
        own = copy.copy(self)
        own._queue = queue  # noqa: SLF001 - made by this very class
        return own

    def compose(self, middleware: Sequence[Middleware]) -> None:
        """Have this middleware, and no other, around the attempts of this task from now on."""
        self.middleware = tuple(middleware)
        self.around = wrap_in_middleware(self.function, self.middleware, is_async=self.is_async)

    def _consider_options(self) -> None:
        """Find out once what each enqueue needs: why it is refused, and which arguments make its key."""
        options = self.options
        self._objection = objection_to(self.name)
        self._key_names = None if options.unique_key is not None else as_names(options.unique.by)
        self._exact = self._key_names
        if self.batching is not None and self.batching.by:
            self._require_parameters("by", self.batching.by)
            self._exact = (*self.batching.by, *(self._key_names or ()))
        if self.limiting is not None:
            self._exact = (*self.limiting.arguments, *(self._exact or ()))
        if self._key_names is not None:
            self._require_parameters(f"{type(options.unique).__name__}(by=...)", self._key_names)
        elif options.unique_key is None and options.unique is not DEFAULT_UNIQUE:
            self._objection = (
                f"{self.name}: {options.unique} has no key, so nothing would be unique; give "
                f"using(unique_key=...), or name the arguments that make one: {type(options.unique).__name__}(by=(...))"
            )

    def _with_defaults(self, limiting: TaskLimits) -> TaskLimits:
        for name, limit in limiting.limits.items():
            self._require_parameters(f"limit {name!r}: by", as_arguments("by", limit.by))
        self._require_parameters("fair_by", limiting.fair_by)
        self._require_parameters("cost", limiting.costs)
        names = (*limiting.arguments, *limiting.costs)
        parameters = inspect.signature(self.item).parameters
        defaults = {name: parameters[name].default for name in names}
        return replace(
            limiting,
            defaults={name: one for name, one in defaults.items() if one is not inspect.Parameter.empty},
        )

    def _require_parameters(self, option: str, names: Iterable[str]) -> None:
        known = inspect.signature(self.item).parameters
        for name in names:
            if name not in known:
                raise InvalidOption(
                    f"{option}: task {self.name} has no parameter {name!r}{did_you_mean(name, known)}"
                )
            if is_filled_in(known[name].annotation, Context):
                raise InvalidOption(f"{option}: {name!r} of task {self.name} is filled in by the worker")

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[NewJob, object]:
        return self._job(args, kwargs), self._connection

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        if self._objection is not None:
            raise InvalidOption(self._objection)
        options, names = self.options, self._key_names
        data = self.signature.encode(args, kwargs, limit=self._queue.max_payload, exact=self._exact)
        return NewJob(
            self.name,
            data,
            options.queue,
            options.priority,
            options.max_attempts,
            options.run_at,
            options.delay,
            options.unique_key if names is None else self._derived_key(data, names),
            options.unique,
            options.meta,
            options.expires_at,
            options.expires_in,
            None if self.limiting is None else self._lane(self.limiting, data),
            None if self.limiting is None else self.limiting.cost_of(data),
            None if self.limiting is None else self.limiting.when_full,
        )

    def _lane(self, limiting: TaskLimits, data: bytes) -> str:
        try:
            return limiting.lane(data)
        except InvalidOption:
            raise
        except ValueError as error:
            raise PayloadNotEncodable(f"{self.name}: {error}") from error

    def _derived_key(self, data: bytes, names: tuple[str, ...]) -> str:
        try:
            return derived_key(self.first_name, data, names)
        except ValueError as error:
            raise PayloadNotEncodable(f"{self.name}: {error}") from error


class TaskLoader(Mapping[str, Task[..., Any]]):
    """The registered tasks of a framework's queue, which registers others when jobs name them."""

    @abstractmethod
    def load(self, name: str) -> bool:
        """As :meth:`Registry.load_task`."""
