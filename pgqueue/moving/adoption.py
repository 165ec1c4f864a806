"""Turns a job that waits in another queue's table into a job of pgqueue, or says why it stays there.

Pure rules; :mod:`pgqueue.store.adopt` applies them. In doubt a job stays: the other queue still runs it, and the user
reads the reason and can decide.
"""

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import ConfigurationError, PayloadNotDecodable, PayloadNotEncodable
from pgqueue.store.adopt import WaitingJob
from pgqueue.values.hints import nearest
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import PRIORITIES, JobOptions, check_name
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.payloads.codec import encoded_job
from pgqueue.values.payloads.storable import refuse_unstorable

PayloadKind = Literal["json", "text", "base64"]
LOCKED = "it has a lock, and pgqueue does not adopt locks (--without-locks moves the job and drops the lock)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The rules for waiting jobs of another queue.

    Attributes:
        queue: the queue to move them to.
        unique: how long a unique key is held.
        tasks: the registered tasks; None: unknown, so any name is taken.
        any_task: take names that are not among ``tasks``, too.
        rename: new names of tasks, by the old ones.
        into: the queue for all jobs; None: the queue of the same name, or the task's own.
        max_attempts: after how many attempts the jobs are dead; None: the task's own number, or 25.
        without_locks: take jobs that have a lock, and drop the lock.
        payload_as: the parameter that gets the payload; None: the payload is the arguments, a JSON object.
        payload_is: how the payload of such a parameter is read.
    """

    queue: PgQueue
    unique: Unique
    tasks: Mapping[str, Task[..., Any]] | None = None
    any_task: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    into: str | None = None
    max_attempts: int | None = None
    without_locks: bool = False
    payload_as: str | None = None
    payload_is: PayloadKind = "json"

    def __call__(self, waiting: WaitingJob) -> NewJob | str:
        """Return the job to add, or the reason why the waiting job stays."""
        name = self.rename.get(waiting.task, waiting.task)
        task = (self.tasks or {}).get(name)
        if waiting.lock is not None and not self.without_locks:
            return LOCKED
        if task is None and self.tasks is not None and not self.any_task:
            return f"no task {name!r} is registered{_near(name, self.tasks)}"
        try:
            job = self._job(check_name("task", name), waiting, JobOptions() if task is None else task.options)
        except (ConfigurationError, PayloadNotDecodable) as error:
            return str(error)
        try:
            if task is not None:
                task.signature.decode(job.args, None)
        except PayloadNotDecodable as error:
            return f"its arguments do not fit the task: {error}"
        return job if self.queue.codec is None else encoded_job(self.queue.codec, job)

    def _job(self, name: str, waiting: WaitingJob, defaults: JobOptions) -> NewJob:
        options = JobOptions(
            queue=self.into or waiting.queue or defaults.queue,
            priority=min(max(waiting.priority, PRIORITIES[0]), PRIORITIES[-1]),
            max_attempts=self.max_attempts or defaults.max_attempts,
            unique_key=waiting.unique_key,
            run_at=waiting.run_at,
        )
        self.queue.require_queue(options.queue)
        return NewJob(
            name,
            arguments(waiting.payload, self.payload_as, self.payload_is),
            options.queue,
            options.priority,
            options.max_attempts,
            waiting.run_at,
            None,
            options.unique_key,
            self.unique,
        )


def arguments(payload: bytes | None, name: str | None, kind: PayloadKind) -> bytes:
    """The arguments of a task as a JSON object.

    Args:
        payload: the stored payload; None: there is none.
        name: the parameter that gets it; None: the payload is the JSON object of arguments.
        kind: how the payload for one parameter is read.

    Raises:
        PayloadNotDecodable: the payload cannot be read in this way, or cannot be stored.
    """
    try:
        found = _object(payload, name, kind)
        text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode()
    except (ValueError, RecursionError) as error:
        raise PayloadNotDecodable(
            f"its payload cannot be read as {kind} (--payload-as NAME with --payload-is base64 takes any bytes)"
        ) from error
    try:
        refuse_unstorable(data)
    except PayloadNotEncodable as error:
        raise PayloadNotDecodable(f"its payload cannot be stored: {error}") from error
    return data


def _object(payload: bytes | None, name: str | None, kind: PayloadKind) -> dict[str, object]:
    if name is not None:
        return {name: None if payload is None else _read(payload, kind)}
    found = {} if payload is None else _read(payload, "json")
    if not isinstance(found, dict):
        raise PayloadNotDecodable(
            "its payload is no JSON object (--payload-as NAME gives it to one parameter)"
        )
    return found


def _read(payload: bytes, kind: PayloadKind) -> object:
    match kind:
        case "json":
            return json.loads(payload.decode())
        case "text":
            return payload.decode()
        case "base64":
            return base64.b64encode(payload).decode()


def _near(name: str, known: Collection[str]) -> str:
    return f" (--rename {name}={nearest(name, known) or 'NEW'}, or --any-task)"
