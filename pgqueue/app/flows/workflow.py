"""Workflows: named jobs, chains and groups, each of which may wait for others.

What a flow is, and how it is enqueued, is in :mod:`pgqueue.app.flows.chains`; the options of a node are checked in
:mod:`pgqueue.app.flows.nodes`.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from pgqueue.app.context import Context
from pgqueue.app.flows.chains import Flow, Part
from pgqueue.app.flows.nodes import (
    After,
    IfFailed,
    Node,
    check_condition,
    checked_part,
    rule_of,
    rules_of,
    spec_of,
)
from pgqueue.app.registry import Registry
from pgqueue.app.signals.waits import signal_of_flow
from pgqueue.app.task import Call, Task
from pgqueue.errors import Dead, Duration, InvalidOption, Snooze, UnknownTask, as_limit
from pgqueue.values.flows.condition import Condition
from pgqueue.values.flows.flow import (
    MAP,
    WAIT,
    EdgeRule,
    GroupMember,
    NodeGroup,
    NodeKind,
    check_acyclic,
    check_node_name,
    map_job,
    unknown_node,
    wait_job,
)
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import JobOptions, check_key, check_one_queue
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.signals import check_signal


class _Map(Flow):
    """A group of one job, which adds a job for each item of a list."""

    _kind = "map"

    def __init__(self, task: Task[..., Any], over: str | Node) -> None:
        self.name = task.name
        source = over.name if isinstance(over, Node) else over
        self._call: Call[Any] = Call(map_job(task.name, source, task.options), task._queue)  # noqa: SLF001 - the task's own side of it

    def _members(self) -> Iterable[Part]:
        return [self._call]

    def as_part(self) -> NodeGroup:
        return NodeGroup(NodeKind.GROUP, [GroupMember(self._call.as_part(), spec={"expands": True})])


class _SignalNode(NamedTuple):
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
        self._nodes: dict[str, tuple[Part | _SignalNode, dict[str, EdgeRule], Condition | None]] = {}

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
        job = wait_job(check_signal(signal or name), limit, check_one_queue("queue", queue))
        return self._put(name, _SignalNode(job), self._rules(after, if_failed))

    def _put(
        self,
        name: str,
        part: Part | _SignalNode,
        rules: dict[str, EdgeRule],
        skip_if: Condition | None = None,
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
        return [part for part, _, _ in self._nodes.values() if not isinstance(part, _SignalNode)]

    def as_part(self) -> NodeGroup:
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
            GroupMember(
                Call(part.job, queue()).as_part() if isinstance(part, _SignalNode) else part.as_part(),
                name,
                [(places[other], rule) for other, rule in after.items()],
                spec_of(skip_if),
            )
            for name, (part, after, skip_if) in self._nodes.items()
        ]
        return NodeGroup(NodeKind.WORKFLOW, steps)


UNKNOWN_FOR = timedelta(seconds=15)


def register(queue: Registry) -> None:
    """Make these tasks known to a queue, unless they are."""

    def expand(ctx: Context, task: str, over: str, options: dict[str, Any]) -> None:
        """Add a job for each item of the result of a node to the group that this job is in."""
        try:
            target = queue.find_task(task)
        except UnknownTask as error:
            raise Snooze(UNKNOWN_FOR) from error  # another worker may know it
        items = ctx.results[over]
        if not isinstance(items, list):
            raise Dead(f"map over {over!r}: its result is {items!r:.80}, and not a list")
        if "run_at" in options:
            options["run_at"] = datetime.fromisoformat(options["run_at"])
        target = target.using(**options)
        ctx.flow.extend(target.call(item) for item in items)

    def wait(ctx: Context, signal: str, timeout: float | None) -> Any:  # noqa: ANN401 - any JSON
        """Wait for a signal to the flow, holding no worker; return what came with it."""
        return signal_of_flow(ctx, ctx.flow.id, signal, timeout)

    for name, function in ((MAP, expand), (WAIT, wait)):
        if name not in queue.tasks:
            queue._add_builtin(name, function, JobOptions(), Retry())  # noqa: SLF001 - the queue's own side of it
