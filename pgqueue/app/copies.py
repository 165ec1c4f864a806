"""A new job with the task, the arguments and the options of a former one, whatever became of that."""

from collections.abc import Mapping
from typing import Any, Unpack

from pgqueue.app.handle import JobHandle
from pgqueue.app.named import NamedOptions, aenqueue_named, enqueue_named
from pgqueue.app.registry import Registry
from pgqueue.values.jobs.job import Job
from pgqueue.values.payloads.storable import COPY_OF, UNREADABLE, require_args


def enqueue_copy(  # noqa: D417 - a method of the queue, with its options
    self: Registry,
    job_id: int,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    by: str | None = None,
    **options: Unpack[NamedOptions],
) -> JobHandle[Any]:
    """Enqueue a job like a former one: of its task, with its queue, priority, number of attempts and meta, due at once.

    The former job is left as it is, and options as for :meth:`enqueue_named` take the place of its own; ``meta`` names it as ``pgqueue_copy_of``. The new one has no unique key, and is part of no
    chain, group or workflow, so ``ctx.results`` is empty.

    Args:
        job_id: of the former job, live or ended.
        arguments: in place of its own.
        by: who enqueues it, for the audit; None: the audit has no line.

    Raises:
        JobNotFound: there is no record of the former job.
        InvalidOption: its arguments are not kept, or cannot be read; or an option is out of its range.
        PayloadNotEncodable: the arguments do not fit the task, or have no JSON form.
    """
    job = self.job(job_id)
    given, said = _like(job, arguments, options)
    return enqueue_named(self, job.task, given, by=by, **said)


async def aenqueue_copy(
    self: Registry,
    job_id: int,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    by: str | None = None,
    **options: Unpack[NamedOptions],
) -> JobHandle[Any]:
    """As :meth:`enqueue_copy`, awaited."""
    job = await self.ajob(job_id)
    given, said = _like(job, arguments, options)
    return await aenqueue_named(self, job.task, given, by=by, **said)


def _like(
    job: Job, arguments: Mapping[str, Any] | None, options: NamedOptions
) -> tuple[Mapping[str, Any], NamedOptions]:
    if arguments is None:
        require_args(job)
        arguments = job.args
    meta = {} if job.meta is None or set(job.meta) == {UNREADABLE} else job.meta
    like: NamedOptions = {
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "meta": {**meta, COPY_OF: job.id},
    }
    return arguments, {**like, **options}
