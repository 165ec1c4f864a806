"""Jobs of tasks whose code this program does not have: enqueued by the task's name.

Workers store the queue of each of their tasks and the types of its arguments; :mod:`pgqueue.values.payloads.schema` compares.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import msgspec

from pgqueue.app.adding import aadd, add
from pgqueue.app.handle import JobHandle
from pgqueue.app.job_methods import JobMethods
from pgqueue.app.registry import Registry
from pgqueue.app.task import Task
from pgqueue.errors import (
    Duration,
    InvalidOption,
    PayloadNotDecodable,
    PayloadNotEncodable,
    PayloadTooLarge,
    UnknownTask,
)
from pgqueue.store.jobs import enqueue, known_tasks
from pgqueue.store.jobs.known_tasks import KnownTask, NamedJob
from pgqueue.store.plan import Plan
from pgqueue.values.flows.flow import BUILTIN
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob
from pgqueue.values.jobs.options import JobOptions, check_name
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.payloads.contract import TaskContract, contract_of
from pgqueue.values.payloads.schema import misfit
from pgqueue.values.payloads.signature import encode_plain
from pgqueue.values.payloads.storable import encode_meta

NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


class NamedOptions(TypedDict, total=False):
    """The options of :meth:`pgqueue.PgQueue.enqueue_named`: those of :meth:`pgqueue.Task.using`."""

    queue: str | None
    priority: int | None
    delay: Duration | None
    run_at: datetime | None
    max_attempts: int | None
    unique_key: str | None
    unique: Unique | None
    meta: Mapping[str, Any] | None
    expires_at: datetime | None
    expires_in: Duration | None


def enqueue_named(  # noqa: D417 - a method of the queue
    self: Registry,
    task: str,
    arguments: Mapping[str, Any] = NO_ARGUMENTS,
    /,
    *,
    known: bool = False,
    connection: object = None,
    by: str | None = None,
    **options: Unpack[NamedOptions],
) -> JobHandle[Any]:
    """Enqueue a job of a task by its name, from a program that may not have its code.

    Workers store what their tasks take when they start: where one has, the names and JSON types of the arguments are checked, and
    the job gets the task's queue, priority, number of attempts and limits. A task that is registered here checks all of it.

    Args:
        task: the task's name, as jobs say it in the database.
        arguments: by the names of the parameters; plain JSON values.
        known: refuse a task of which no worker has said anything. Else its arguments are not checked.
        connection: as for :meth:`Task.using`, as are the options.
        by: who enqueues it, for the audit; None: the audit has no line.

    Raises:
        InvalidOption: a name or an option is out of its range.
        PayloadNotEncodable: the arguments do not fit the task, or have no JSON form.
        PayloadTooLarge: their JSON form is over the limit.
        UnknownTask: ``known`` is asked for, and the task is not.
        DatabaseError: the database cannot be reached, or its schema is missing.
    """
    job = named_job(self, task, arguments, options, known=known, connection=connection)
    return add(self, [job], connection, _adding(by))[0]


def named_job(
    queue: Registry,
    task: str,
    arguments: Mapping[str, Any],
    options: NamedOptions,
    *,
    known: bool,
    connection: object = None,
) -> NewJob:
    """The job of a task by its name, checked; arguments and errors are those of :func:`enqueue_named`."""
    job = _job_of_registered(queue, task, arguments, options)
    if job is not None:
        return job
    named = NamedEnqueue(queue, task, arguments, options)
    return named.job(queue.database.run(named.look(), connection), known=known)


async def aenqueue_named(
    self: Registry,
    task: str,
    arguments: Mapping[str, Any] = NO_ARGUMENTS,
    /,
    *,
    known: bool = False,
    connection: object = None,
    by: str | None = None,
    **options: Unpack[NamedOptions],
) -> JobHandle[Any]:
    """As :meth:`enqueue_named`, awaited."""
    job = _job_of_registered(self, task, arguments, options)
    if job is None:
        named = NamedEnqueue(self, task, arguments, options)
        job = named.job(await self.database.arun(named.look(), connection), known=known)
    return (await aadd(self, [job], connection, _adding(by)))[0]


def _adding(by: str | None) -> Callable[..., Plan[EnqueueAnswer]]:
    return enqueue.add if by is None else partial(known_tasks.enqueue_noted, by=by)


class NamedEnqueue:
    """One enqueue by name: what to ask the database first, and the job that its answer makes."""

    def __init__(
        self, queue: JobMethods, task: str, arguments: Mapping[str, Any], options: NamedOptions
    ) -> None:
        """The options are checked here.

        Raises:
            InvalidOption: an option is out of its range.
            PayloadNotEncodable: the arguments have no JSON form.
            PayloadTooLarge: it is over the limit.
        """
        self._task = task
        given: dict[str, Any] = {**options}
        if given.get("meta") is not None:
            given["meta"] = encode_meta(given["meta"])
        self._names_queue = given.get("queue") is not None
        self._options = JobOptions().but(**given)
        self._arguments = dict(arguments)
        self._data = encode_plain(self._arguments, f"{task}: arguments") or b"{}"
        if len(self._data) > queue.max_payload:
            raise PayloadTooLarge(
                f"{task}: the arguments take {len(self._data):,} bytes as JSON, over the limit of {queue.max_payload:,}"
            )

    def look(self) -> Plan[NamedJob]:
        """What workers have said of the task."""
        return known_tasks.find(self._task, self._data)

    def job(self, found: NamedJob, *, known: bool) -> NewJob:
        """The job.

        Args:
            found: the answer of :meth:`look`.
            known: whether the task has to be known.

        Raises:
            PayloadNotEncodable: the arguments do not fit what workers have said.
            UnknownTask: no worker has said anything of the task, and ``known`` asks for that.
        """
        task, options = found.task, self._options
        if known and task.queue is None:
            raise UnknownTask(
                f"no task {self._task!r} is registered here, and no worker that has started runs it"
            )
        if task.arguments is not None and (why := misfit(_decoded(task.arguments), _decoded(self._data))):
            raise PayloadNotEncodable(f"{self._task}: {why}")
        said = _said(task)
        return NewJob(
            self._task,
            self._data,
            options.queue if self._names_queue else said.queue,
            said.priority if options.priority is None else options.priority,
            said.max_attempts if options.max_attempts is None else options.max_attempts,
            options.run_at,
            options.delay,
            options.unique_key,
            options.unique,
            options.meta,
            options.expires_at,
            options.expires_in,
            found.lane,
            found.cost,
        )


def _job_of_registered(
    queue: Registry, task: str, arguments: Mapping[str, Any], options: NamedOptions
) -> NewJob | None:
    """The job, whose arguments have the names and the JSON forms that are stored; None: the task is not registered here."""
    check_name("task", task)
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise PayloadNotEncodable(f"{task}: give the arguments as a mapping, by the names of the parameters")
    if task not in queue.tasks:
        return None
    chosen = queue.find_task(task).using(**options)
    data = encode_plain(dict(arguments), f"{task}: arguments") or b"{}"
    try:
        args, kwargs = chosen.signature.given(data)
    except PayloadNotDecodable as error:
        raise PayloadNotEncodable(str(error)) from error
    return chosen.call(*args, **kwargs).job


def _said(task: KnownTask) -> JobOptions:
    """What a stored row says of the jobs of a task; where it makes no sense, it says nothing."""
    given = {"queue": task.queue, "priority": task.priority, "max_attempts": task.max_attempts}
    try:
        return JobOptions().but(**given)
    except InvalidOption:
        return JobOptions()


def _decoded(data: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):  # a stored row may hold anything
        return None


def contracts_of(tasks: Mapping[str, Task[..., Any]]) -> dict[str, TaskContract | None]:
    """The contract of each task, under each of its names; None: its schemas are too long, or cannot be stored."""
    found: dict[str, TaskContract | None] = {}
    for name, task in sorted(tasks.items()):
        if name in BUILTIN:
            continue
        try:
            found[name] = contract_of(name, task.signature.schema, task.returns.schema)
        except Exception:  # noqa: BLE001 - reading the code of an app's types may raise anything
            found[name] = None
    return found


def known_tasks_of(
    tasks: Mapping[str, Task[..., Any]], contracts: Mapping[str, TaskContract | None] | None = None
) -> list[KnownTask]:
    """What a worker says of its tasks, each under each of its names.

    Args:
        tasks: the tasks.
        contracts: of these; None: they are read here.
    """
    said = contracts_of(tasks) if contracts is None else contracts
    return [
        KnownTask(
            name,
            tasks[name].options.queue,
            tasks[name].options.priority,
            tasks[name].options.max_attempts,
            None if contract is None else contract.arguments,
            None if contract is None else contract.result,
        )
        for name, contract in said.items()
    ]
