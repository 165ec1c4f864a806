"""Looks at flows in memory: lists, one with its nodes, the members of a group, results, and the nodes before a job's own.

Each public method of :class:`FlowAnswers` answers the plan of its name in :mod:`pgqueue.store.flows.flow_queries` or
:mod:`pgqueue.store.flows.flow_queries`. Why a node waits is said in :mod:`pgqueue.values.flows.record`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from pgqueue.store.flows.flow_queries import MOST_COUNTED, MOST_SHOWN, StoredResult
from pgqueue.testing.flows import FlowBook, FlowRow, NodeRow
from pgqueue.values.flows.flow import MAP, PORTION, NodeState
from pgqueue.values.flows.record import EdgeRecord, FlowRecord, FlowState, NodeRecord, explain_nodes
from pgqueue.values.flows.results import LARGEST_RESULTS, EarlierNode, FlowPosition


class FlowAnswers:
    """Tells callers and jobs what they ask about the flows of a queue."""

    def __init__(self, flows: FlowBook) -> None:
        self._flows = flows

    def flows(
        self,
        *,
        states: Collection[FlowState] | None,
        kind: str | None,
        name: str | None,
        key: str | None,
        before: int | None,
        limit: int,
    ) -> list[FlowRecord]:
        """Flows that match every filter given, newest first, without their nodes."""
        found = [
            flow
            for flow in self._flows.newest_first
            if (states is None or flow.state in states)
            and kind in {None, flow.new.kind}
            and name in {None, flow.new.name}
            and key in {None, flow.new.key}
            and (before is None or flow.id < before)
        ]
        return [_record(flow, counts=len(flow.nodes) <= MOST_COUNTED) for flow in found[:limit]]

    def flow(self, flow_id: int) -> FlowRecord:
        """A flow, and its nodes except the members of large groups."""
        flow = self._flows.require(flow_id)
        nodes = sorted(_shown_nodes(flow.nodes[0])[:MOST_SHOWN], key=lambda node: node.id)
        return _record(flow, counts=True, nodes=_explain_nodes(flow, nodes, self._behind(flow), counted=True))

    def nodes(
        self, flow_id: int, *, parent: int, states: Collection[NodeState] | None, after: int, limit: int
    ) -> tuple[NodeRecord, ...]:
        """Members of a group of a flow, in order."""
        flow = self._flows.require(flow_id)
        members = (member for node in flow.nodes if node.id == parent for member in node.members)
        found = [one for one in members if one.place > after and (states is None or one.state in states)]
        return _explain_nodes(flow, found[:limit], self._behind(flow), counted=False)

    def state(self, flow_id: int) -> tuple[FlowState, bool]:
        """The state of a flow, and whether it has ended."""
        flow = self._flows.require(flow_id)
        return FlowState(flow.state), flow.ended_at is not None

    def results(self, flow_id: int) -> list[StoredResult]:
        """What the named jobs of a flow returned, in their order."""
        return [
            StoredResult(
                node.new.name,
                node.new.job.task,
                node.result_text,
                None if node.new.job.meta is None else node.new.job.meta.decode(),
            )
            for node in self._flows.require(flow_id).nodes[0].members
            if node.new.job is not None and node.new.name is not None and node.state is NodeState.SUCCEEDED
        ]

    def facts(self, job_id: int) -> FlowPosition | None:
        """The place of a job in its flow; None: it is in none."""
        node = self._flows.of_job(job_id)
        if node is None:
            return None
        before = [_before(one, depth) for one, depth in _nodes_before(node).items()]
        skip_if = None if node.new.spec is None else node.new.spec.get("skip_if")
        return FlowPosition(node.flow.id, node.flow.new.name, node.new.name, skip_if, before)

    def _behind(self, flow: FlowRow) -> int | None:
        """Return the flow of the same key for which a flow waits; None: it waits for none."""
        if flow.state != "waiting":
            return None
        return min(
            (other.id for other in self._flows.unended(flow.new.key) if other.id < flow.id), default=None
        )


def _record(flow: FlowRow, *, counts: bool, nodes: tuple[NodeRecord, ...] = ()) -> FlowRecord:
    return FlowRecord(
        flow.id,
        flow.new.kind,
        flow.new.name,
        flow.new.key,
        FlowState(flow.state),
        flow.created_at,
        flow.ended_at,
        _counts(node for node in flow.nodes if node.job is not None) if counts else None,
        nodes,
    )


def _counts(nodes: Iterable[NodeRow]) -> dict[NodeState, int]:
    # A job by which pgqueue has filled a group is left out.
    found = Counter(
        node.state for node in nodes if not (node.task == MAP and node.state is NodeState.SUCCEEDED)
    )
    return {state: found[state] for state in NodeState if found[state]}


def _shown_nodes(root: NodeRow) -> list[NodeRow]:
    """Return a group, its members, and their members, except those of groups of more than one portion."""
    found = [root]
    for node in found:  # which grows
        if not any(member.place >= PORTION for member in node.members):
            found += node.members
    return found


def _explain_nodes(
    flow: FlowRow, nodes: Sequence[NodeRow], behind: int | None, *, counted: bool
) -> tuple[NodeRecord, ...]:
    """Return the records of nodes of a flow; ``counted``: with how many members groups have in which state."""
    after: dict[NodeRow, list[EdgeRecord]] = {}
    for before in flow.nodes:
        for edge in before.edges:
            said = EdgeRecord(before.id, before.label, _stands(before), edge.rule, edge.met)
            after.setdefault(edge.after, []).append(said)
    records = [_node_record(node, after.get(node, []), counted=counted) for node in nodes]
    return explain_nodes(records, _record(flow, counts=False), behind=behind)


def _node_record(node: NodeRow, after: Iterable[EdgeRecord], *, counted: bool) -> NodeRecord:
    live = None if node.job is None or node.job.state.ended else node.job
    return NodeRecord(
        node.id,
        None if node.parent is None else node.parent.id,
        node.place,
        node.new.name,
        node.new.kind,
        node.state,
        node.task,
        None if node.job is None else node.job.id,
        None if live is None else live.state,
        None if live is None else live.attempts,
        None if live is None else live.new.max_attempts,
        None if live is None else live.run_at,
        None if live is None else live.new.queue,
        None if live is None else live.cancel_requested,
        tuple(sorted(after, key=lambda edge: edge.node)),
        _counts(node.members) if counted else {},
    )


def _stands(node: NodeRow) -> str:
    """Return the state of a node's job if the job is live, else the node's own."""
    return node.state if node.job is None or node.job.state.ended else node.job.state


def _nodes_before(node: NodeRow) -> dict[NodeRow, int | None]:
    """The nodes before one, and before the groups that it is in; 0 where it waits for one itself, more for those groups."""
    waited_for: dict[NodeRow, list[NodeRow]] = {}
    for one in node.flow.nodes:
        for edge in one.edges:
            waited_for.setdefault(edge.after, []).append(one)
    found: dict[NodeRow, int | None] = {}
    around: NodeRow | None = node
    depth = 0
    while around is not None:
        for one in waited_for.get(around, ()):
            found.setdefault(one, depth)
        around, depth = around.parent, depth + 1
    todo = [*found]
    while todo:
        for one in waited_for.get(todo.pop(), ()):
            if one not in found:
                found[one] = None
                todo.append(one)
    return found


def _before(node: NodeRow, depth: int | None) -> EarlierNode:
    members = [one for one in node.members if "expands" not in (one.new.spec or {})]
    results = [one.result_text for one in members]
    size = sum(len(one) for one in results if one is not None)
    return EarlierNode(
        node.new.name,
        node.new.kind,
        node.state,
        node.task,
        depth,
        node.result_text,
        [one.new.name for one in members],
        [one.task for one in members],
        results if size <= LARGEST_RESULTS else None,
        size,
        _meta(node),
        [_meta(one) for one in members],
    )


def _meta(node: NodeRow) -> str | None:
    return None if node.new.job is None or node.new.job.meta is None else node.new.job.meta.decode()
