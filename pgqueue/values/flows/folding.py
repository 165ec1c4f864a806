"""A flow with its crowds folded: jobs of one task that stand side by side become one node that counts them. Pure.

A person who looks at a workflow of 1,000 jobs wants to see "load: 22 of 30", and not 30 equal boxes. The jobs of a group are
folded into the group's node, if they are all of one task; of a workflow, the jobs of one task that wait for the same nodes, and for
which the same nodes wait. The job by which pgqueue itself fills a group is left out once it has succeeded.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pgqueue.values.flows.drawing import members_of
from pgqueue.values.flows.flow import MAP, WAIT, NodeKind, NodeState
from pgqueue.values.flows.record import EdgeRecord, FlowRecord, NodeRecord, state_word
from pgqueue.values.jobs.job import JobState

FILLS = "make a job for each item"
"""What people call the node of a job by which pgqueue fills a group."""
CROWD = 4
"""Jobs of a workflow that are folded, at least."""
ORDER = (
    "failed", "dead", "cancelled", "running", "in progress", "ready", "scheduled", "blocked", "waiting", "skipped", "succeeded",
)  # fmt: skip
"""The states of jobs as people read them: what is wrong first, what is done last."""


class FoldedFlow(NamedTuple):
    """A flow with its crowds folded.

    Attributes:
        flow: the flow; each crowd is one of its nodes, of the kind ``group``, without members.
        counts: of each crowd, by the id of its node: how many of its jobs are in which state.
        jobs: the jobs of each crowd, in their order; of a large group, whose members were only counted, there are none.
    """

    flow: FlowRecord
    counts: Mapping[int, Mapping[str, int]]
    jobs: Mapping[int, Sequence[NodeRecord]]


def fold(flow: FlowRecord) -> FoldedFlow:
    """Fold the crowds of a flow.

    Args:
        flow: the flow with its nodes, as :meth:`pgqueue.app.flows.flows.Flows.get` returns it.
    """
    nodes = [
        _named(node) for node in flow.nodes if not (node.task == MAP and node.state is NodeState.SUCCEEDED)
    ]
    children = members_of(nodes)
    counts: dict[int, Mapping[str, int]] = {}
    jobs: dict[int, Sequence[NodeRecord]] = {}
    kept: list[NodeRecord] = []
    for node in nodes:
        members = children.get(node.id, [])
        if node.kind.is_group and (not members or (node.kind is NodeKind.GROUP and _is_crowd(members))):
            jobs[node.id] = members
            counts[node.id] = _counted(members) if members else _by_word(node.members)
            node = msgspec.structs.replace(node, task=members[0].task if members else None)  # noqa: PLW2901 - with its task
        kept.append(node)
    inside = {node.id for members in jobs.values() for node in members}
    kept = [node for node in kept if node.id not in inside]
    stands_for: dict[int, NodeRecord] = {}
    for crowd in _crowds(kept):
        first = crowd[0]
        jobs[first.id], counts[first.id] = crowd, _counted(crowd)
        stands_for |= {node.id: first for node in crowd}
    folded = [
        _as_node(node, counts, stands_for) for node in kept if stands_for.get(node.id, node).id == node.id
    ]
    return FoldedFlow(msgspec.structs.replace(flow, nodes=tuple(folded)), counts, jobs)


def _named(node: NodeRecord) -> NodeRecord:
    """A job of pgqueue's own is named for what it does."""
    if node.task == MAP:
        return msgspec.structs.replace(node, name=FILLS)
    if node.task == WAIT and node.job_state is JobState.BLOCKED:
        return msgspec.structs.replace(node, why="waits for its signal")
    return node


def words_in_order(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """How many jobs are in which state, what is wrong first."""
    return [(state, counts[state]) for state in sorted(counts, key=_place) if counts[state]]


def _place(state: str) -> int:
    return ORDER.index(state) if state in ORDER else len(ORDER)


def _is_crowd(members: Sequence[NodeRecord]) -> bool:
    first = members[0]
    return all(one.kind is NodeKind.JOB and one.task == first.task and not one.after for one in members)


def _crowds(nodes: Iterable[NodeRecord]) -> list[list[NodeRecord]]:
    """Jobs of one task in one workflow, between the same nodes."""
    behind: dict[int, list[int]] = defaultdict(list)
    nodes = [*nodes]
    for node in nodes:
        for edge in node.after:
            behind[edge.node].append(node.id)
    alike: dict[object, list[NodeRecord]] = defaultdict(list)
    for node in nodes:
        if node.kind is NodeKind.JOB:
            before = tuple(sorted((edge.node, edge.rule) for edge in node.after))
            alike[node.parent, node.task, before, tuple(behind[node.id])].append(node)
    return [some for some in alike.values() if len(some) >= CROWD]


def _as_node(
    node: NodeRecord, counts: Mapping[int, Mapping[str, int]], stands_for: Mapping[int, NodeRecord]
) -> NodeRecord:
    after: dict[int, EdgeRecord] = {}
    for edge in node.after:
        crowd = stands_for.get(edge.node)
        if crowd is not None:
            edge = msgspec.structs.replace(edge, node=crowd.id, label=crowd.task or edge.label)  # noqa: PLW2901 - to the crowd
        after.setdefault(edge.node, edge)
    node = msgspec.structs.replace(node, after=tuple(after.values()))
    if node.id not in stands_for:
        return node
    (state, _), *_ = words_in_order(counts[node.id])
    return msgspec.structs.replace(
        node,
        name=None,
        kind=NodeKind.GROUP,
        job_id=None,
        job_state=None,
        why=None,
        state=NodeState(state) if state in {*NodeState} else NodeState.RELEASED,
    )


def _counted(members: Iterable[NodeRecord]) -> Mapping[str, int]:
    return Counter(one.said for one in members)


def _by_word(members: Mapping[NodeState, int]) -> Mapping[str, int]:
    return {state_word(state): count for state, count in members.items()}
