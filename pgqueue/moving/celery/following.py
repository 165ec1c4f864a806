"""How a job gets what Celery passes as first arguments: the result of the tasks before it, or the error of one that failed.

A job that follows others is stored without these arguments. In their place its arguments have the key ``$previous``, which says
what to pass: ``["result", SHAPE]``, where SHAPE is the name of a node of the flow or a list of shapes; or ``["error", SCOPE, NODE,
COUNT]``: of the failure of this node's task, or of any in the ``chain`` or ``chord`` that it ends, the id or three arguments.
It is part of the arguments, so a codec encrypts it, a retry keeps it, and any worker of the app reads it. The results are read
from the flow when an attempt starts, so they are those that the jobs before have committed.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption, JobFailed
from pgqueue.moving.celery.exceptions import ChordError
from pgqueue.values.flows.flow import NodeState
from pgqueue.values.flows.record import FlowRecord, NodeRecord
from pgqueue.values.payloads.signature import Signature

PREVIOUS = "$previous"
ERROR_ARGUMENTS = 3
"""What an error callback is given if it has more than one parameter: ``request``, ``exc``, ``traceback``; else the id of the task."""
NOTHING_FAILED = object()
"""The first argument of an error callback that has nothing to tell: what it was told of was cancelled."""
Shape: TypeAlias = str | list["Shape"]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FillingSignature(Signature):
    """The parameters of a task; a worker fills in those that a job of a flow was stored without."""

    def __init__(self, function: Callable[..., Any], queue: PgQueue, *, task: str) -> None:
        """``queue`` is asked for the error of a job."""
        super().__init__(function, Context, task=task)
        self._queue = queue
        self._rest: dict[int, tuple[Callable[..., Any], FollowerSignature]] = {}

    def decode(self, data: str | bytes, injected: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """As :meth:`Signature.decode`."""
        text = data if isinstance(data, str) else data.decode()
        if PREVIOUS not in text or not isinstance(injected, Context):
            return super().decode(text, injected)
        stored = msgspec.json.decode(text)
        match stored.pop(PREVIOUS, None):
            case ["result", shape]:
                self._fill(stored, [_shaped(injected, shape)])
                return super().decode(msgspec.json.encode(stored), injected)
            case ["error", scope, node, int(count)]:
                pass
            case _:  # no chain has written it: if it is the name of an argument, the error names it
                return super().decode(text, injected)
        failed = _failure(self._queue, injected, scope, node)
        if failed is None:
            return (injected, NOTHING_FAILED), {}
        values: tuple[Any, ...] = failed if count == ERROR_ARGUMENTS else (failed[0].id,)
        self._fill(stored, [failed[0].id, *[None] * (count - 1)])
        args, kwargs = super().decode(msgspec.json.encode(stored), injected)
        return (args[0], *values, *args[1 + count :]), kwargs

    def follower(self, count: int) -> "tuple[Callable[..., Any], FollowerSignature]":
        """A function with the parameters without the first ``count``, and its signature.

        Raises:
            InvalidOption: the function does not take as many positional arguments.
        """
        if count not in self._rest:
            first, open_ended = self._positional(count)
            if len(first) < count and not open_ended:
                raise InvalidOption(
                    f"{self._name}: it takes no argument for the result of the task before it; "
                    "write .si(...) in place of .s(...) if it does not need the result"
                )
            kept = [one for one in self._parameters if one not in first]
            rest = _function_of(kept)
            self._rest[count] = rest, FollowerSignature(rest, Context, task=self._name)
        return self._rest[count]

    def _positional(self, count: int) -> tuple[list[inspect.Parameter], bool]:
        found = [one for one in self._payload if one.kind in _POSITIONAL]
        return found[:count], any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in self._payload)

    def _fill(self, stored: dict[str, Any], values: list[Any]) -> None:
        first, _ = self._positional(len(values))
        stored.update(zip((one.name for one in first), values, strict=False))
        for one in self._payload:
            if one.kind is inspect.Parameter.VAR_POSITIONAL and len(first) < len(values):
                stored[one.name] = [*values[len(first) :], *stored.get(one.name, ())]


class FollowerSignature(Signature):
    """The parameters that a job of a flow is stored with; ``previous`` says what is filled in for the others."""

    previous: Any = None

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], **options: Any) -> bytes:
        """As :meth:`Signature.encode`."""
        stored = msgspec.json.decode(super().encode(args, kwargs, **options))
        return msgspec.json.encode({**stored, PREVIOUS: self.previous})

    def decode(self, data: str | bytes, injected: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """As :meth:`Signature.decode`."""
        stored = msgspec.json.decode(data)
        del stored[PREVIOUS]
        return super().decode(msgspec.json.encode(stored), injected)


def following(task: Task[..., Any], previous: list[Any]) -> Task[..., Any]:
    """A task whose calls leave out the first arguments, which ``previous`` describes.

    Args:
        task: the task, or ``task.using(...)``.
        previous: what stands under ``$previous``; see the module's docstring.

    Raises:
        InvalidOption: the function does not take as many positional arguments.
    """
    assert isinstance(task.signature, FillingSignature)  # noqa: S101 - for the type checker
    found = copy.copy(task)
    found.function, signature = task.signature.follower(previous[3] if previous[0] == "error" else 1)
    signature = copy.copy(signature)
    signature.previous = previous
    found.signature = signature
    return found


def _failure(queue: PgQueue, ctx: Context, scope: str, node: str) -> tuple[Any, Exception, str] | None:
    flow = queue.flows.get(ctx.flow.id)
    failed = [one for one in flow.nodes if one.state is NodeState.FAILED and one.job_id]
    own = [one for one in failed if one.name == node]
    found = own or (failed or _in_large_groups(queue, flow) if scope != "task" else [])
    if not found or found[0].job_id is None:
        return None
    job, of = queue.job(found[0].job_id), next(one for one in flow.nodes if one.name == node)
    last = job.errors[-1] if job.errors else None
    said = f"{last.type}: {last.message}" if last else "no error was recorded"
    text = (last and last.traceback) or ""
    if scope == "chord" and not own:  # it is the body that has failed, as Celery tells it
        request = FailedRequest(str(of.job_id), str(of.task))
        return request, ChordError(f"Dependency {job.id} raised {said}"), text
    return FailedRequest(str(job.id), job.task), JobFailed(said, job=job, error=last), text


class FailedRequest(NamedTuple):
    """The ``request`` that an error callback is told: which task failed."""

    id: str
    task: str


def _in_large_groups(queue: PgQueue, flow: FlowRecord) -> list[NodeRecord]:
    # The record of a flow leaves out the members of large groups.
    groups = [one for one in flow.nodes if one.kind.is_group]
    return [
        failed
        for group in groups
        for failed in queue.flows.nodes(flow.id, parent=group.id, state="failed", limit=1)
        if failed.job_id
    ]


def _shaped(ctx: Context, shape: Shape) -> Any:
    return ctx.results[shape] if isinstance(shape, str) else [_shaped(ctx, one) for one in shape]


def _function_of(parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    def rest(*args: object, **kwargs: object) -> None:
        """Is never called: its parameters are read."""

    rest.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect reads first
    rest.__annotations__ = {one.name: one.annotation for one in parameters}
    return rest
