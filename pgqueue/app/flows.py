"""Chains, groups and workflows: jobs that wait for other jobs, built here and enqueued as a whole.

What they are made of is in :mod:`pgqueue.values.flow`, how the queue adds them in
:mod:`pgqueue.app.enqueuing`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias, Union

from pgqueue.app.enqueuing import Enqueuing
from pgqueue.app.flow_handle import FlowHandle
from pgqueue.app.flow_nodes import (
    After,
    IfFailed,
    Node,
    check_condition,
    checked_part,
    rule_of,
    rules_of,
    spec_of,
)
from pgqueue.app.task import Call, Task
from pgqueue.errors import Duration, InvalidOption, as_limit
from pgqueue.values.condition import Condition
from pgqueue.values.flow import (
    EdgeRule,
    NewFlow,
    NodeKind,
    Parts,
    Step,
    check_acyclic,
    check_node_name,
    map_job,
    unknown_node,
    wait_job,
)
from pgqueue.values.job import NewJob
from pgqueue.values.options import check_key, check_name
from pgqueue.values.signal import check_signal

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
        added = queue._add_flow(self._prepared(), connection)  # noqa: SLF001 - the queue's own side of it
        return FlowHandle(added.id, queue, added.jobs)

    async def aenqueue(self, *, connection: object = None) -> FlowHandle:
        """As :meth:`enqueue`, awaited."""
        queue = self._queue()
        added = await queue._aadd_flow(self._prepared(), connection)  # noqa: SLF001 - the queue's own side of it
        return FlowHandle(added.id, queue, added.jobs)

    @abstractmethod
    def as_part(self) -> Parts:
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

    def _queue(self) -> Enqueuing:
        found = {id(call.queue): call.queue for call in self.calls() if call.queue is not None}
        if len(found) != 1:
            what = "it has no call" if not found else f"its calls are of tasks of {len(found)} queues"
            raise InvalidOption(f"{self._kind} {self.name!r} cannot be enqueued: {what}")
        return found.popitem()[1]

    def _prepared(self) -> NewFlow:
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

    def as_part(self) -> Parts:
        """As :meth:`Flow.as_part`."""
        steps = [
            Step(part.as_part(), str(place + 1), [(place - 1, EdgeRule.CANCEL)] if place else ())
            for place, part in enumerate(self._chained)
        ]
        return Parts(NodeKind.WORKFLOW, steps)


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

    def as_part(self) -> Parts:
        """As :meth:`Flow.as_part`."""
        members = Parts(NodeKind.GROUP, [Step(part.as_part()) for part in self._grouped])
        if not self._callbacks:
            return members
        after = [Step(part.as_part(), name, [(0, rule)]) for name, (part, rule) in self._callbacks.items()]
        return Parts(NodeKind.WORKFLOW, [Step(members, "members"), *after])


class _Map(Flow):
    """A group of one job, which adds a job for each item of a list."""

    _kind = "map"

    def __init__(self, task: Task[..., Any], over: str | Node) -> None:
        self.name = task.name
        source = over.name if isinstance(over, Node) else over
        self._call: Call[Any] = Call(map_job(task.name, source, task.options), task._queue)  # noqa: SLF001 - the task's own side of it

    def _members(self) -> Iterable[Part]:
        return [self._call]

    def as_part(self) -> Parts:
        """As :meth:`Flow.as_part`."""
        return Parts(NodeKind.GROUP, [Step(self._call.as_part(), spec={"expands": True})])


class _Wait(NamedTuple):
    """A job that waits for a signal."""

    job: NewJob


class Workflow(Flow):
    """Named parts of which each may wait for others: a directed graph without cycles."""

    _kind = "workflow"

    def __init__(
        self,
        name: str = "workflow",
        *,
        key: str | None = None,
        in_turn: bool = False,
        if_failed: IfFailed = "cancel",
    ) -> None:
        """A workflow without nodes.

        Args:
            name: what people call it.
            key: at most one flow of a key runs at a time: 1 to 1,000 characters.
            in_turn: whether it waits while another flow of its key has not ended; else its enqueue is refused.
            if_failed: what happens to a node if one that it waits for fails, where ``add`` does not say it.

        Raises:
            InvalidOption: a value is out of its range.
        """
        self.name = check_node_name(name)
        check_key(key)
        if in_turn and key is None:
            raise InvalidOption("in_turn=True needs a key: flows of which key take turns?")
        self.key = key
        self.in_turn = in_turn
        self._if_failed = rule_of(if_failed)
        self._nodes: dict[str, tuple[Part | _Wait, dict[str, EdgeRule], Condition | None]] = {}

    def add(
        self,
        name: str,
        part: Part,
        *,
        after: After = (),
        if_failed: IfFailed | None = None,
        skip_if: Condition | None = None,
    ) -> Node:
        """Add a node.

        Args:
            name: what it is called; once in this workflow.
            part: a call of a task, or a chain, group or workflow that becomes one node.
            after: the nodes that have to succeed before, by name or as ``add`` returned them; a mapping says for each
                what happens if it fails: ``cancel`` cancels this node, too; ``continue`` runs it all the same;
                ``wait`` lets it wait until the failed one was retried.
            if_failed: the same, for all of ``after``; None: as the workflow says.
            skip_if: the node is skipped, and what waits for it goes on, if this holds when it is about to start.

        Returns:
            The node, to name it in ``after``.

        Raises:
            InvalidOption: the name is taken, or a value is out of its range.
        """
        check_condition(skip_if, name, of_job=not isinstance(part, Flow))
        return self._put(name, checked_part(part, name), self._rules(after, if_failed), skip_if)

    def map(
        self,
        name: str,
        task: Task[..., Any],
        *,
        over: str | Node,
        after: After = (),
        if_failed: IfFailed | None = None,
    ) -> Node:
        """Add a group that is filled when it starts: one job of a task for each item of the list that a node returned.

        What follows the group waits for all these jobs, and finds their results as a list, in the order of the items.

        Args:
            name: what the group is called.
            task: the task, or ``task.using(...)``; it is given one item.
            over: the node that returns the list. An empty list makes an empty group.
            after: other nodes for which the group waits.
            if_failed: as for :meth:`add`.

        Raises:
            InvalidOption: the name is taken, or a value is out of its range.
        """
        return self._put(name, _Map(task, over), self._rules(over, if_failed) | self._rules(after, if_failed))

    def wait(
        self,
        name: str,
        *,
        signal: str | None = None,
        timeout: Duration | None = None,
        queue: str = "default",
        after: After = (),
        if_failed: IfFailed | None = None,
    ) -> Node:
        """Add a node that waits for a signal to the workflow, holding no worker. Its result is what came with the signal.

        Args:
            name: what it is called.
            signal: the name of the signal; by default the node's name. ``handle.signal(name, payload)`` sends it.
            timeout: seconds, or a timedelta, from the time when it begins to wait; after that it fails.
            queue: in which queue its job is, which a worker runs when it begins and when it ends to wait.
            after: as for :meth:`add`.
            if_failed: as for :meth:`add`.

        Raises:
            InvalidOption: the name is taken, or a value is out of its range.
        """
        limit = as_limit("timeout", timeout)
        job = wait_job(check_signal(signal or name), limit, check_name("queue", queue))
        return self._put(name, _Wait(job), self._rules(after, if_failed))

    def _put(
        self, name: str, part: Part | _Wait, rules: dict[str, EdgeRule], skip_if: Condition | None = None
    ) -> Node:
        check_node_name(name)
        if name in self._nodes:
            raise InvalidOption(
                f"name={name!r}: workflow {self.name!r} has this node already; use another name"
            )
        self._nodes[name] = part, rules, skip_if
        return Node(name)

    def _rules(self, after: After, if_failed: IfFailed | None) -> dict[str, EdgeRule]:
        return rules_of(after, self._if_failed if if_failed is None else rule_of(if_failed))

    def _members(self) -> Iterable[Part]:
        return [part for part, _, _ in self._nodes.values() if not isinstance(part, _Wait)]

    def as_part(self) -> Parts:
        """As :meth:`Flow.as_part`."""
        places = {name: place for place, name in enumerate(self._nodes)}
        for name, (_, after, skip_if) in self._nodes.items():
            named = [*after, *(skip_if.names if skip_if is not None else ())]
            for other in named:
                if other not in places:
                    raise unknown_node(other, [*places], of=f"{self.name}, node {name!r}")
        check_acyclic({name: [*after] for name, (_, after, _) in self._nodes.items()})
        queue = cache(self._queue)  # looked for once, and only if a node waits for a signal
        steps = [
            Step(
                Call(part.job, queue()).as_part() if isinstance(part, _Wait) else part.as_part(),
                name,
                [(places[other], rule) for other, rule in after.items()],
                spec_of(skip_if),
            )
            for name, (part, after, skip_if) in self._nodes.items()
        ]
        return Parts(NodeKind.WORKFLOW, steps)


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
