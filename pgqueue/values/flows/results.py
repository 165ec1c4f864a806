"""The results of the nodes before a job in its flow, as the job sees them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol, TypeVar

import msgspec

from pgqueue.errors import ResultNotKept
from pgqueue.values.flows.flow import NodeKind, NodeState
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.verdict import NOT_RETURNED
from pgqueue.values.payloads.result import ReturnType
from pgqueue.values.payloads.storable import value_of

R_co = TypeVar("R_co", covariant=True)
LARGEST_RESULTS = 64_000_000
"""Bytes of results, as PostgreSQL stores them, that an attempt is given: of each group's members, and of all single jobs."""


class NamedTask(Protocol[R_co]):
    """A task, as far as its result is concerned."""

    name: str

    @property
    def returns(self) -> ReturnType:
        """What it says that it returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the task's own
        """Call its function."""


class EarlierNode(msgspec.Struct, frozen=True):
    """A node before the job's own.

    Attributes:
        name: what it is called, or None.
        kind: what it is.
        state: where it stands.
        task: the task of its job; None: it is a group.
        depth: 0 for a node that the job itself waits for, more for one that a group around it waits for, None for others.
        result: what its job returned, as it is stored; None: nothing, or too much.
        names: of a group, the names of the members.
        tasks: of a group, the tasks of the members.
        results: of a group, what they returned; None: too much.
        bytes: the size of the result, or of those of a group's members.
        meta: what was sent along with its job, as JSON, or None.
        metas: of a group, the same of the members.
    """

    name: str | None
    kind: NodeKind
    state: NodeState
    task: str | None
    depth: int | None
    result: str | None
    names: Sequence[str | None] | None
    tasks: Sequence[str | None] | None
    results: Sequence[str | None] | None
    bytes: int | None
    meta: str | None
    metas: Sequence[str | None] | None


class FlowPosition(msgspec.Struct, frozen=True):
    """What is known of a job's place in its flow.

    Attributes:
        flow_id: which flow.
        flow_name: what people call it.
        name: what the job's node is called, or None.
        skip_if: the condition under which the job does not run, or None.
        before: the nodes before it.
    """

    flow_id: int
    flow_name: str
    name: str | None
    skip_if: list[Any] | None
    before: Sequence[EarlierNode]


class Results(Mapping[str, Any]):
    """What the nodes before a job returned, by their names.

    The value of a job that returned nothing, was skipped, failed or was cancelled is None; of a group, a list in the order
    of its members; of a chain or a workflow, a dictionary by the names of its parts. The value of a job that has succeeded and whose
    result was not kept is an error, and so is that of a group with such a job.
    """

    __slots__ = ("_clear", "_named", "_nodes")

    def __init__(self, nodes: Sequence[EarlierNode], clear: Callable[[str, str, str | None], str]) -> None:
        """Made by the worker. ``clear`` decodes a stored result to JSON, given the task's name, the result and ``meta``."""
        self._nodes = nodes
        self._named = {node.name: node for node in nodes if node.name is not None}
        self._clear = clear

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """The result of a node, as plain JSON values.

        Raises:
            KeyError: no node before this job has this name.
            ResultNotKept: its job has succeeded, and the result was not kept; or it is a group, and its results are too large
                to be read at once.
        """
        if name not in self._named:
            known = ", ".join(sorted(self._named)) or "none"
            raise KeyError(
                f"no node {name!r} comes before this job{did_you_mean(name, self._named)}; there are: {known}"
            )
        return self._value(self._named[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    @property
    def previous(self) -> Any:  # noqa: ANN401 - any JSON
        """The result of the one node that the job waited for; the list of theirs if there are several.

        Raises:
            ResultNotKept: as for an item.
        """
        depths = [node.depth for node in self._nodes if node.depth is not None]
        direct = [node for node in self._nodes if depths and node.depth == min(depths)]
        return self._value(direct[0]) if len(direct) == 1 else [self._value(node) for node in direct]

    def of(self, task: NamedTask[Any], name: str | None = None) -> Any:  # noqa: ANN401 - as annotated
        """The result of the job of a task, as the task's annotation says.

        Args:
            task: which task.
            name: the name of its node, where several nodes before this job are jobs of the task.

        Raises:
            LookupError: none or several of the nodes before this job are of this task.
            ResultNotKept: as for an item.
            PayloadNotDecodable: the result does not fit the annotation.
        """
        found = [node for node in self._nodes if node.task == task.name and name in {None, node.name}]
        if len(found) != 1:
            raise LookupError(
                f"{len(found)} nodes before this job are of task {task.name}; "
                + ("give name=... to say which" if found else "ctx.results shows what there is")
            )
        (node,) = found
        text = self._text(repr(node.name), node.task, _result_of_node(node), node.meta)
        return None if text is None else task.returns.decode(text)

    def state(self, name: str) -> str:
        """How a node before the job ended: ``succeeded``, ``failed``, ``cancelled`` or ``skipped``.

        Args:
            name: which node.

        Raises:
            KeyError: no node before this job has this name.
        """
        return str(self._named[name].state)

    def _value(self, node: EarlierNode) -> Any:  # noqa: ANN401 - any JSON
        if not node.kind.is_group:
            return self._decoded(repr(node.name), node.task, _result_of_node(node), node.meta)
        if node.results is None and node.bytes:
            raise _not_kept(
                f"the results of node {node.name!r} take {node.bytes:,} bytes, over the limit of {LARGEST_RESULTS:,}; "
                "store large results elsewhere and return references"
            )
        places = (f"{node.name!r}, member {place}" for place in count(1))
        stored = zip(places, node.tasks or (), node.results or (), node.metas or (), strict=False)
        values = [self._decoded(*one) for one in stored]
        return values if node.kind is NodeKind.GROUP else dict(zip(node.names or (), values, strict=True))

    def _decoded(self, which: str, task: str | None, stored: str | None, meta: str | None) -> Any:  # noqa: ANN401 - any JSON
        text = self._text(which, task, stored, meta)
        return None if text is None else value_of(text)

    def _text(self, which: str, task: str | None, stored: str | None, meta: str | None) -> str | None:
        if stored is None or task is None:
            return None
        if stored == NOT_RETURNED.decode():
            raise _not_kept(
                f"the result of node {which}, a job of task {task}, was not kept: queue.result(id) of that job says why"
            )
        return self._clear(task, stored, meta)


def _not_kept(why: str) -> ResultNotKept:
    error = ResultNotKept(why)
    error.final = True
    return error


def _result_of_node(node: EarlierNode) -> str | None:
    if node.result is None and node.bytes:
        raise _not_kept(
            f"the result of node {node.name!r}, {node.bytes:,} bytes, was not read: with those of the nodes between it and "
            f"this job it is over the limit of {LARGEST_RESULTS:,}; store large results elsewhere and return references"
        )
    return node.result
