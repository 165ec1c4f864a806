"""Flows: jobs that wait for other jobs, enqueued as a whole; two kinds of them, chains and groups.

The third kind is in :mod:`pgqueue.app.flows.workflow`. What flows are made of is in :mod:`pgqueue.values.flows.flow`, and how the queue
adds them in :mod:`pgqueue.app.adding`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, Union

from pgqueue.app.adding import aadd_flow, add_flow
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.flows.nodes import checked_part
from pgqueue.app.job_methods import JobMethods
from pgqueue.app.task import Call
from pgqueue.errors import InvalidOption
from pgqueue.values.flows.flow import EdgeRule, GroupMember, NewFlow, NodeGroup, NodeKind, check_node_name

Part: TypeAlias = Union[Call[Any], "Flow"]


class Flow(ABC):
    """Jobs that wait for other jobs: a chain, a group or a workflow. A flow can be a part of another one."""

    _kind: str
    name: str
    key: str | None = None
    in_turn: bool = False

    def enqueue(self, *, connection: object = None) -> FlowHandle:
        """Enqueue all jobs, in one transaction; those that wait for others are ``blocked`` until these have ended.

        Args:
            connection: enqueue on this connection, in its current transaction.

        Returns:
            A handle of the flow, which exists once the transaction commits.

        Raises:
            InvalidOption: there is nothing to enqueue, its parts are of several queues, nodes wait for each other, or
                a node waits for one that there is not.
            FlowRefused: another flow of its key runs, or a live job has the unique key of one of its jobs.
        """
        queue = self._queue()
        added = add_flow(queue, self._prepare(), connection)
        return FlowHandle(added.id, queue, added.jobs)

    async def aenqueue(self, *, connection: object = None) -> FlowHandle:
        """As :meth:`enqueue`, awaited."""
        queue = self._queue()
        added = await aadd_flow(queue, self._prepare(), connection)
        return FlowHandle(added.id, queue, added.jobs)

    @abstractmethod
    def as_part(self) -> NodeGroup:
        """What it is made of."""

    @abstractmethod
    def _members(self) -> Iterable[Part]:
        """Its parts, in any order."""

    def calls(self) -> Iterator[Call[Any]]:
        """All calls of tasks in it."""
        for part in self._members():
            if isinstance(part, Flow):
                yield from part.calls()
            else:
                yield part

    def _queue(self) -> JobMethods:
        # Each call of queue.shard() makes a copy of the queue, on the same database.
        found = {id(call.queue.database): call.queue for call in self.calls() if call.queue is not None}
        if len(found) != 1:
            what = "it has no call" if not found else f"its calls are of tasks of {len(found)} queues"
            raise InvalidOption(f"{self._kind} {self.name!r} cannot be enqueued: {what}")
        return found.popitem()[1]

    def _prepare(self) -> NewFlow:
        return NewFlow(self._kind, self.name, self.as_part(), self.key, in_turn=self.in_turn)


class Chain(Flow):
    """Parts that run one after the other."""

    _kind = "chain"

    def __init__(self, parts: Iterable[Part], *, name: str = "chain") -> None:
        """Made by :func:`chain`."""
        self.name = check_node_name(name)
        self._chained = [checked_part(part, "chain") for part in parts]

    def _members(self) -> Iterable[Part]:
        return self._chained

    def as_part(self) -> NodeGroup:
        """As :meth:`Flow.as_part`."""
        steps = [
            GroupMember(part.as_part(), str(place + 1), [(place - 1, EdgeRule.CANCEL)] if place else ())
            for place, part in enumerate(self._chained)
        ]
        return NodeGroup(NodeKind.WORKFLOW, steps)


class Group(Flow):
    """Parts that run side by side, and what runs after them."""

    _kind = "group"

    def __init__(
        self,
        parts: Iterable[Part],
        *,
        on_failure: Part | None = None,
        on_success: Part | None = None,
        on_end: Part | None = None,
        name: str = "group",
    ) -> None:
        """Made by :func:`group`."""
        self.name = check_node_name(name)
        self._grouped = [checked_part(part, "group") for part in parts]
        callbacks = {
            "on_failure": (on_failure, EdgeRule.FAILURE),
            "on_success": (on_success, EdgeRule.CANCEL),
            "on_end": (on_end, EdgeRule.CONTINUE),
        }
        self._callbacks = {
            name: (checked_part(part, name), rule)
            for name, (part, rule) in callbacks.items()
            if part is not None
        }

    def _members(self) -> Iterable[Part]:
        return [*self._grouped, *(part for part, _ in self._callbacks.values())]

    def as_part(self) -> NodeGroup:
        """As :meth:`Flow.as_part`."""
        members = NodeGroup(NodeKind.GROUP, [GroupMember(part.as_part()) for part in self._grouped])
        if not self._callbacks:
            return members
        after = [
            GroupMember(part.as_part(), name, [(0, rule)]) for name, (part, rule) in self._callbacks.items()
        ]
        return NodeGroup(NodeKind.WORKFLOW, [GroupMember(members, "members"), *after])


def chain(*parts: Part, name: str = "chain") -> Flow:
    """Parts that run one after the other: each is ready in the transaction that completes the one before.

    Args:
        parts: ``task.call(...)``, groups, workflows, or chains.
        name: what people call it.

    Raises:
        InvalidOption: one of them is something else.
    """
    return Chain(parts, name=name)


def group(
    parts: Iterable[Part],
    *,
    on_failure: Part | None = None,
    on_success: Part | None = None,
    on_end: Part | None = None,
    name: str = "group",
) -> Flow:
    """Parts that run side by side, and what runs after them. A group without parts has succeeded at once.

    Args:
        parts: ``task.call(...)``, or flows.
        on_failure: ready when the first member has failed for good; skipped if none does.
        on_success: ready when all have succeeded; cancelled if one has not.
        on_end: ready when all have ended, however that was.
        name: what people call it.

    Raises:
        InvalidOption: one of them is something else.
    """
    return Group(parts, on_failure=on_failure, on_success=on_success, on_end=on_end, name=name)
