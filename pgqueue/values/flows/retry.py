"""What a retry of a flow changes in its graph: which nodes run again, which of them wait, and what is counted again.

Pure rules over loaded nodes and edges. How jobs come back is decided in :mod:`pgqueue.store.flows.flow_control`.

A node that runs again is as if it had not run: what waits for it waits again, unless that has run already. A node that does
not run again stays as it is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from pgqueue.errors import FlowNotFound, FlowRefused
from pgqueue.values.flows.flow import PORTION, EdgeRule, NodeKind, NodeState

What: TypeAlias = Literal["failed", "downstream", "all"]
WHAT: tuple[What, ...] = ("failed", "downstream", "all")
OPEN = frozenset({NodeState.WAITING, NodeState.RELEASED})
DONE = frozenset({NodeState.SUCCEEDED, NodeState.SKIPPED})
FAILURES = frozenset({NodeState.FAILED, NodeState.CANCELLED})
NAMED = 5
"""Parts that an error names, at most."""


class StoredNode(msgspec.Struct, frozen=True):
    """A node as it is stored. The id of a group is lower than those of its members."""

    id: int
    parent: int | None
    place: int
    kind: NodeKind
    state: NodeState
    waits_for: int = 0


class StoredEdge(msgspec.Struct, frozen=True):
    """An edge as it is stored."""

    before: int
    after: int
    rule: EdgeRule
    met: bool = False


class Rerun(msgspec.Struct, frozen=True):
    """What a retry changes.

    Attributes:
        states: the new states of the nodes that run again: waiting or released.
        skipped: failed nodes that are not to run: they were for the failure of a part that has succeeded since.
        waits_for: for how many others these nodes wait.
        met: which edges are met now, where that changes.
        counts: by group and portion, how many more members are open, and how many more have failed.
    """

    states: Mapping[int, NodeState]
    skipped: frozenset[int]
    waits_for: Mapping[int, int]
    met: Mapping[tuple[int, int], bool]
    counts: Mapping[tuple[int, int], tuple[int, int]]


def rerun(nodes: Sequence[StoredNode], edges: Sequence[StoredEdge], what: What) -> Rerun:
    """What a retry changes.

    Args:
        nodes: all nodes of the flow, in the order of their ids.
        edges: all its edges.
        what: ``failed``: the failed jobs; ``downstream``: also what was cancelled or skipped because of them; ``all``.
    """
    graph = _Graph(nodes, edges)
    again = graph.chosen(what)
    skipped = graph.not_needed(again)
    again -= skipped | graph.inside(skipped)
    failed = graph.still_failed(again)
    met = {
        (edge.before, edge.after): now
        for edge in edges
        if (edge.before in again or edge.after in again)
        and (now := graph.is_met(edge, again, failed)) != edge.met
    }
    waits_for = graph.waits_for(again, met)
    states: dict[int, NodeState] = {}
    for node in nodes:
        if node.id in again:
            above = NodeState.RELEASED if node.parent is None else graph.state(node.parent, states)
            free = above is NodeState.RELEASED and not waits_for[node.id]
            states[node.id] = NodeState.RELEASED if free else NodeState.WAITING
    return Rerun(states, frozenset(skipped), waits_for, met, graph.counts(again, skipped))


class _Graph:
    def __init__(self, nodes: Sequence[StoredNode], edges: Sequence[StoredEdge]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.edges_to: dict[int, list[StoredEdge]] = defaultdict(list)
        self.edges_from: dict[int, list[StoredEdge]] = defaultdict(list)
        self.members: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            if node.parent is not None:
                self.members[node.parent].append(node.id)
        for edge in edges:
            self.edges_to[edge.after].append(edge)
            self.edges_from[edge.before].append(edge)

    def chosen(self, what: What) -> set[int]:
        if what == "all":
            return {*self.nodes}
        unused = self.inside(node.id for node in self.nodes.values() if node.state is NodeState.SKIPPED)
        candidates = [node for node in self.nodes.values() if node.id not in unused]
        if what == "failed":
            jobs = [one for one in candidates if one.state is NodeState.FAILED and one.kind is NodeKind.JOB]
            return {one.id for one in jobs} | {above for one in jobs for above in self._failed_above(one)}
        again = {one.id for one in candidates if one.state in FAILURES}
        todo = [*again]
        while todo:
            for edge in self.edges_from[todo.pop()]:
                skipped = self.nodes[edge.after].state is NodeState.SKIPPED
                if skipped and edge.rule is not EdgeRule.FAILURE and edge.after not in again:
                    more = {edge.after} | self.inside([edge.after])
                    again |= more
                    todo += more
        return again

    def not_needed(self, again: Iterable[int]) -> set[int]:
        """Return the nodes that were for the failure of a part that has succeeded, and that does not run again."""
        kept = {*self.nodes} - {*again}
        return {
            node
            for node in again
            for edge in self.edges_to[node]
            if edge.rule is EdgeRule.FAILURE and edge.before in kept and self.nodes[edge.before].state in DONE
        }

    def inside(self, groups: Iterable[int]) -> set[int]:
        """Return all members of these groups, at any depth."""
        found: set[int] = set()
        todo = [*groups]
        while todo:
            members = self.members.get(todo.pop(), ())
            found.update(members)
            todo += members
        return found

    def still_failed(self, again: set[int]) -> set[int]:
        """The groups that have a member which failed and does not run again."""
        return {
            node.parent
            for node in self.nodes.values()
            if node.parent is not None and node.state in FAILURES and node.id not in again
        }

    def is_met(self, edge: StoredEdge, again: set[int], failed: set[int]) -> bool:
        """Whether an edge is met if these nodes run again, and these groups stay failed."""
        before = self.nodes[edge.before]
        if edge.before not in again and before.state in OPEN:
            return edge.met
        if edge.before in again:
            return edge.rule is EdgeRule.FAILURE and before.id in failed
        if before.state in DONE:
            return edge.rule is not EdgeRule.FAILURE
        return edge.rule is not EdgeRule.WAIT

    def waits_for(self, again: set[int], met: Mapping[tuple[int, int], bool]) -> dict[int, int]:
        """Return for how many others nodes wait: those that run again, and those that wait and have a changed edge."""
        waiting = {after for _, after in met if self.nodes[after].state is NodeState.WAITING}
        return {
            node: sum(not met.get((edge.before, edge.after), edge.met) for edge in self.edges_to[node])
            for node in sorted(again | waiting)
        }

    def counts(self, again: set[int], skipped: set[int]) -> dict[tuple[int, int], tuple[int, int]]:
        opened: Counter[tuple[int, int]] = Counter()
        failed: Counter[tuple[int, int]] = Counter()
        for node in map(self.nodes.__getitem__, again | skipped):
            if node.parent is not None:
                group = node.parent, node.place // PORTION
                opened[group] += node.id in again and node.state not in OPEN
                failed[group] -= node.state in FAILURES
        return {group: (opened[group], failed[group]) for group in sorted(opened)}

    def state(self, node: int, states: Mapping[int, NodeState]) -> NodeState:
        return states.get(node, self.nodes[node].state)

    def _failed_above(self, node: StoredNode) -> Iterable[int]:
        while node.parent is not None and (node := self.nodes[node.parent]).state in FAILURES:
            yield node.id


def spoken_node(name: str | None, task: str | None, place: int, job: int | None) -> str:
    """The node of a job, in words."""
    return f"{repr(name) if name is not None else f'{task} at place {place}'} (job {job})"


def why_missing(node: str, known: bool, key: str | None, twin: int | None) -> str:  # noqa: FBT001 - a column
    """Why the job of a node does not come back: a live job has its key, or there is no record of it."""
    if twin is not None:
        said = f"live job {twin} has its unique key {key!r}; cancel that job, or wait until it has ended"
    elif not known:
        said = "there is no record of its job any more; enqueue the flow again"
    else:
        said = "its arguments were not kept, or its key was taken meanwhile; retry again, or enqueue the flow again"
    return f"{node}: {said}"


def not_retried(reasons: Sequence[str], *, others: int) -> FlowRefused:
    """What to raise where jobs of a flow do not come back."""
    more = f"; and {others} others" if others else ""
    return FlowRefused("the flow was not retried: " + "; ".join(reasons) + more)


def not_ended(flow_id: int, state: str) -> FlowRefused:
    """What to raise where a flow cannot be retried yet."""
    remedy = "wait until its running jobs have ended" if state == "cancelled" else "cancel it first"
    return FlowRefused(f"flow {flow_id} has not ended; {remedy}, and retry again")


def out_of_turn(flow_id: int, rival: int, key: str) -> FlowRefused:
    """What to raise where another flow of the same key has not ended."""
    return FlowRefused(
        f"flow {flow_id} cannot be retried: flow {rival} of the same key {key!r} has not ended; "
        "wait for it, or cancel it, and retry again"
    )


def not_found(flow_id: int) -> FlowNotFound:
    """What to raise where there is no such flow."""
    return FlowNotFound(f"no record of flow {flow_id}: not committed (yet), rolled back, or deleted")
