"""The flow that a canvas becomes: a flat list of nodes, and what each part of the canvas added to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from pgqueue.app.flows.chains import Flow, Part
from pgqueue.moving.celery.following import Shape
from pgqueue.moving.celery.result import AsyncResult, GroupResult
from pgqueue.values.flows.flow import EdgeRule, GroupMember, NodeGroup, NodeKind

Result: TypeAlias = AsyncResult[Any] | GroupResult


class Stage(NamedTuple):
    """What was added to a graph, for what follows it.

    Attributes:
        places: of the nodes that have to succeed first.
        shape: whose results what follows gets.
        results: makes the result of the stage, of the ids of the flow and of all its jobs.
    """

    places: Sequence[int]
    shape: Shape
    results: Callable[[str, Sequence[int]], Result]


class Graph(Flow):
    """The flow that a canvas becomes."""

    _kind = "workflow"

    def __init__(self, name: str) -> None:
        """Empty."""
        self.name = name[:200]
        self.steps: list[tuple[Part, list[tuple[int, EdgeRule]]]] = []
        self.jobs = 0

    def add(self, part: Part, after: Sequence[int], rule: EdgeRule = EdgeRule.CANCEL) -> int:
        """Add a node; return its place."""
        self.steps.append((part, [(place, rule) for place in after]))
        self.jobs += sum(1 for _ in part.calls()) if isinstance(part, Flow) else 1
        return len(self.steps) - 1

    def _members(self) -> Iterable[Part]:
        return [part for part, _ in self.steps]

    def as_part(self) -> NodeGroup:
        """As :meth:`Flow.as_part`."""
        return NodeGroup(
            NodeKind.WORKFLOW,
            [
                GroupMember(part.as_part(), str(place + 1), after)
                for place, (part, after) in enumerate(self.steps)
            ],
        )


class Start(NamedTuple):
    """More arguments and options for the tasks of a canvas that start first."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
