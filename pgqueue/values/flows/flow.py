"""Flows as values: the parts of a chain, a group or a workflow, and the list of nodes that they make.

A flow is a tree of groups with jobs as leaves; edges stand between members of one group only, so a part can be a flow by
itself. :func:`nodes_of` makes the list that is stored; the root is its first node.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

import msgspec

from pgqueue.errors import FlowRefused, InvalidOption
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.job import JobFlags, NewJob
from pgqueue.values.jobs.options import LONGEST_NAME, JobOptions, check_text

MAP = "pgqueue.map"
"""The task that fills a group with a job for each item of a list."""
WAIT = "pgqueue.wait"
"""The task that waits for a signal to a flow."""
WAIT_ATTEMPTS = 3
BUILTIN = frozenset({MAP, WAIT})
PORTION = 512
"""Members of a group that are counted, and released, together."""
LARGEST_FLOW = 1_000_000
"""Nodes of one flow."""
DEEPEST = 50
"""Levels of groups in groups."""


class NodeKind(StrEnum):
    """What a node is. Between the members of a workflow there are edges; of a group, many members succeed at a time."""

    JOB = "job"
    GROUP = "group"
    WORKFLOW = "workflow"

    @property
    def is_group(self) -> bool:
        """Whether it has members."""
        return self is not NodeKind.JOB


class NodeState(StrEnum):
    """Where a node stands."""

    WAITING = "waiting"
    RELEASED = "released"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    FAILING = "failing"
    """Not stored: the first member of a group failed, and the group has not ended."""

    @property
    def is_failure(self) -> bool:
        """Whether what waits for it cannot go on as if it had succeeded."""
        return self in {NodeState.FAILED, NodeState.CANCELLED}


class EdgeRule(StrEnum):
    """What happens to a node if the node that it waits for fails."""

    CANCEL = "cancel"
    CONTINUE = "continue"
    WAIT = "wait"
    FAILURE = "failure"
    """It runs only in that case, at the first failure; else it is skipped."""


class EdgeEffect(StrEnum):
    """What the end of a node means for a node that waits for it."""

    MEET = "meet"
    """It does not wait for this one any more."""
    SKIP = "skip"
    CANCEL = "cancel"


def effect_of(rule: EdgeRule, state: NodeState) -> EdgeEffect | None:
    """What an edge means when the node that it comes from has ended, or is failing; None: nothing yet.

    PostgreSQL decides the same in ``sql/flows/follow.sql``.
    """
    if state in {NodeState.SUCCEEDED, NodeState.SKIPPED}:
        return EdgeEffect.SKIP if rule is EdgeRule.FAILURE else EdgeEffect.MEET
    if state is NodeState.FAILING:
        return EdgeEffect.MEET if rule is EdgeRule.FAILURE else None
    return {EdgeRule.CANCEL: EdgeEffect.CANCEL, EdgeRule.WAIT: None}.get(rule, EdgeEffect.MEET)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        what: a job, or a group.
        name: what it is called; None: its place is enough.
        after: the members for which it waits, by their places, and what happens if they fail.
        spec: what else is stored with it.
    """

    what: "NewJob | NodeGroup"
    name: str | None = None
    after: Sequence[tuple[int, EdgeRule]] = ()
    spec: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group: its members, in order.

    Attributes:
        kind: a group, or a workflow.
        steps: the members.
    """

    kind: NodeKind
    steps: Sequence[GroupMember]


@dataclass(frozen=True, slots=True)
class NewFlow:
    """A flow to be enqueued.

    Attributes:
        kind: ``chain``, ``group`` or ``workflow``.
        name: what people call it.
        parts: what it is made of.
        key: no two flows of one key run at a time; None: no limit.
        in_turn: whether it waits while another flow of its key runs; else it is refused.
    """

    kind: str
    name: str
    parts: NodeGroup
    key: str | None = None
    in_turn: bool = False

    @property
    def jobs(self) -> list[NewJob]:
        """Its jobs, in the order of their ids; made from its parts each time."""
        return [node.job for node in nodes_of(self.parts) if node.job is not None]

    def with_jobs(self, made: Callable[[NewJob], NewJob]) -> "NewFlow":
        """The same flow, with each job as ``made`` returns it."""
        nodes_of(self.parts)  # refuses groups that are nested too deeply
        return replace(self, parts=_with_jobs(self.parts, made))


def _with_jobs(parts: NodeGroup, made: Callable[[NewJob], NewJob]) -> NodeGroup:
    steps = [
        replace(one, what=_with_jobs(one.what, made) if isinstance(one.what, NodeGroup) else made(one.what))
        for one in parts.steps
    ]
    return replace(parts, steps=steps)


@dataclass(slots=True)
class NewNode:
    """A node to be stored.

    Attributes:
        kind: what it is.
        parent: the group that it is in, by its index; None: it is the root.
        place: which one in its group, from 0.
        name: what it is called, or None.
        job: its job, or None.
        after: the nodes for which it waits, by their indexes, and what happens if they fail.
        spec: what else is stored with it.
        followed: whether another node waits for it.
    """

    kind: NodeKind
    parent: int | None
    place: int
    name: str | None
    job: NewJob | None
    after: Sequence[tuple[int, EdgeRule]] = ()
    spec: Mapping[str, Any] | None = None
    followed: bool = False


Nodes: TypeAlias = list[NewNode]


def nodes_of(parts: NodeGroup) -> Nodes:
    """All nodes of a flow, each behind the group that it is in, in the order in which they were given.

    Raises:
        InvalidOption: there are too many, or groups are nested too deeply.
    """
    nodes: Nodes = [NewNode(parts.kind, None, 0, None, None)]
    _add_members(nodes, parts, parent=0, depth=1)
    return nodes


def _add_members(nodes: Nodes, group: NodeGroup, *, parent: int, depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidOption(f"flows are nested at most {DEEPEST} levels deep")
    members: list[NewNode] = []
    indexes: list[int] = []
    for place, step in enumerate(group.steps):
        inner = step.what if isinstance(step.what, NodeGroup) else None
        job = None if isinstance(step.what, NodeGroup) else step.what
        node = NewNode(
            NodeKind.JOB if inner is None else inner.kind, parent, place, step.name, job, (), step.spec
        )
        indexes.append(len(nodes))
        members.append(node)
        nodes.append(node)
        if inner is not None:
            _add_members(nodes, inner, parent=indexes[-1], depth=depth + 1)
        if len(nodes) > LARGEST_FLOW:
            raise InvalidOption(f"a flow has at most {LARGEST_FLOW:,} nodes; enqueue several")
    for node, step in zip(members, group.steps, strict=True):
        node.after = [(indexes[before], rule) for before, rule in step.after]
        for before, _ in step.after:
            members[before].followed = True


def flags_of(node: NewNode, nodes: Nodes) -> int:
    """What the end of a node's job concerns: bits of :class:`JobFlags`."""
    found: int = JobFlags.FLOW
    if node.parent is not None and nodes[node.parent].kind is NodeKind.GROUP and not node.followed:
        found |= JobFlags.MEMBER
    if node.spec is not None and "skip_if" in node.spec:
        found |= JobFlags.ASKS
    return found


def check_node_name(name: str) -> str:
    """Check the name of a node.

    Raises:
        InvalidOption: it is empty or too long, or PostgreSQL cannot hold it.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise InvalidOption(f"name={name!r:.80}: use 1 to {LONGEST_NAME} characters")
    return check_text("name", name)


def check_acyclic(after: Mapping[str, Sequence[str]]) -> None:
    """Check that no node waits for itself.

    Args:
        after: for which nodes each node waits, by their names.

    Raises:
        InvalidOption: the message names the nodes of one cycle.
    """
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        raise InvalidOption(
            f"these nodes wait for each other: {' -> '.join(reversed(error.args[1]))}"
        ) from None


def unknown_node(name: str, known: Sequence[str], *, of: str) -> InvalidOption:
    """What to raise where a node is named that there is not."""
    return InvalidOption(f"{of}: there is no node {name!r} in this workflow{did_you_mean(name, known)}")


def flow_key_taken(key: str) -> FlowRefused:
    """What to raise where another flow of a key has not ended."""
    return FlowRefused(
        f"key={key!r}: another flow of this key has not ended; wait for it, cancel it, or give in_turn=True "
        "and this one starts when it has ended"
    )


def job_key_taken(key: str | None) -> FlowRefused:
    """What to raise where a live job has the unique key of a flow's job."""
    return FlowRefused(
        f"unique_key={key!r}: a live job has this key, so the flow was not added; "
        f"queue.insight.search(unique_key={key!r}) finds that job"
    )


def map_job(task: str, over: str, options: JobOptions) -> NewJob:
    """The job that fills a group: a job of a task for each item of the list that a node returned.

    Args:
        task: the name of the task.
        over: the name of the node.
        options: how the jobs are queued, and this one.

    Raises:
        InvalidOption: all jobs would have one unique key.
    """
    if options.unique_key is not None:
        raise InvalidOption(
            f"map over {over!r}: all jobs would have the unique key {options.unique_key!r}; use Unique(by=...)"
        )
    given = {
        "queue": options.queue,
        "priority": options.priority,
        "max_attempts": options.max_attempts,
        "run_at": options.run_at,
        "delay": None if options.delay is None else options.delay.total_seconds(),
        "meta": None if options.meta is None else msgspec.Raw(options.meta),
    }
    kept = {name: value for name, value in given.items() if value is not None}
    args = msgspec.json.encode({"task": task, "over": over, "options": kept})
    return NewJob(MAP, args, options.queue, options.priority, options.max_attempts, meta=options.meta)


def wait_job(signal: str, timeout: timedelta | None, queue: str) -> NewJob:
    """The job that waits for a signal to its flow.

    Args:
        signal: which.
        timeout: how long, from its first attempt on; None: as long as it takes.
        queue: in which queue it is.
    """
    seconds = None if timeout is None else timeout.total_seconds()
    return NewJob(WAIT, msgspec.json.encode({"signal": signal, "timeout": seconds}), queue, 0, WAIT_ATTEMPTS)


def spec_of(node: NewNode) -> Mapping[str, Any] | None:
    """What else is stored with a node: also what was sent along with its job, which a codec may need to read its result."""
    if node.job is None or node.job.meta is None:
        return node.spec
    return {**(node.spec or {}), "meta": msgspec.Raw(node.job.meta)}


def spec_text(spec: Mapping[str, Any]) -> str:
    """What else is stored with a node, as JSON."""
    return msgspec.json.encode(spec).decode()
