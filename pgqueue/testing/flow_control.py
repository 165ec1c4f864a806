"""Flows in memory: how they are cancelled, and run again.

Each public method of :class:`FlowControl` answers the plan of its name in :mod:`pgqueue.store.flows.flow_control`. What a retry
changes is decided in :mod:`pgqueue.values.flows.retry`.
"""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from pgqueue.testing.flows import RELEASED, WAITING, FlowRow, NodeRow
from pgqueue.values.flows.flow import NodeState
from pgqueue.values.flows.retry import (
    NAMED,
    Rerun,
    StoredEdge,
    StoredNode,
    What,
    not_ended,
    not_found,
    not_retried,
    out_of_turn,
    rerun,
    spoken_node,
    why_missing,
)
from pgqueue.values.jobs.job import JobState

if TYPE_CHECKING:
    from pgqueue.testing.table import JobTable


class FlowControl:
    """Cancels and retries the flows of a queue."""

    def __init__(self, table: "JobTable") -> None:
        self._table = table
        self._flows = table.flows

    def begin_cancel(self, flow_id: int) -> bool:
        """Mark a flow as cancelled; False: it had ended."""
        flow = self._flow(flow_id)
        if flow.ended_at is None:
            flow.state = "cancelled"
        return flow.ended_at is None

    def ask(self, flow_id: int) -> None:
        """Ask a flow's running jobs to stop."""
        for node in self._flow(flow_id).nodes:
            if node.job is not None and node.job.state is JobState.RUNNING:
                node.job.cancel_requested = True

    def cancel_portion(
        self,
        flow_id: int,
        after: tuple[int, int],  # noqa: ARG002 - all at once
        *,
        now: datetime,
    ) -> tuple[bool, None]:
        """End the nodes of a flow except its running jobs and the groups that these are in."""
        root, *nodes = self._flow(flow_id).nodes
        ended = [node for node in nodes if node.state is WAITING or _is_due(node)]
        for node in ended:
            self._flows.abandon(node, now)
        for group in [root, *nodes]:
            self._flows.close(group, now)
        self._flows.follow_events(now)
        return False, None

    def end_root(self, flow_id: int, *, now: datetime) -> None:
        """End a cancelled flow that waited for its turn."""
        root = self._flow(flow_id).nodes[0]
        if root.state is WAITING:
            self._flows.abandon(root, now)
            self._flows.follow_events(now)

    def retry(self, flow_id: int, what: What, *, now: datetime) -> int:
        """Run parts of a flow again; how many jobs do."""
        flow = self._flow(flow_id)
        if flow.ended_at is None and (flow.state == "cancelled" or what == "all"):
            raise not_ended(flow_id, flow.state)
        rival = next(self._flows.unended(flow.new.key), None) if flow.ended_at is not None else None
        if rival is not None:
            raise out_of_turn(flow_id, rival.id, str(flow.new.key))
        changes = rerun(*_load_graph(flow), what)
        if not changes.states and not changes.skipped:
            return 0
        back = [flow.nodes[place] for place in changes.states if flow.nodes[place].job is not None]
        self._require_jobs(back)
        flow.state, flow.ended_at = "running", None
        self._bring_back(back, now)
        _put(flow, changes)
        for place, state in changes.states.items():
            node = flow.nodes[place]
            if state is RELEASED and node.job is not None:
                node.job.admit(now)
            self._flows.close(node, now)
        self._flows.follow_events(now)
        return len(back)

    def _flow(self, flow_id: int) -> FlowRow:
        flow = self._flows.flow(flow_id)
        if flow is None:
            raise not_found(flow_id)
        return flow

    def _require_jobs(self, nodes: Collection[NodeRow]) -> None:
        reasons: list[str] = []
        for node in nodes:
            assert node.new.job is not None  # noqa: S101 - only given nodes that have one
            assert node.job is not None  # noqa: S101 - the same
            known = self._table.show(node.job.id) is not None
            twin = self._table.adding.holder(node.job.unique_key)
            if twin is not None or not known:
                said = spoken_node(node.new.name, node.new.job.task, node.place, node.job.id)
                reasons.append(
                    why_missing(said, known, node.job.unique_key, None if twin is None else twin.id)
                )
        if reasons:
            raise not_retried(reasons[:NAMED], others=len(reasons) - len(reasons[:NAMED]))

    def _bring_back(self, nodes: Collection[NodeRow], now: datetime) -> None:
        """Let these nodes' jobs wait again: a dead job under its id, any other as a new job."""
        for node in nodes:
            if node.state is NodeState.FAILED and node.job is not None:
                node.job.revive(JobState.BLOCKED, now)
                self._table.mailbox.revive(node.job.id)
            else:
                self._flows.renew(node, now)


def _is_due(node: NodeRow) -> bool:
    return node.state is RELEASED and node.job is not None and node.job.state is not JobState.RUNNING


def _load_graph(flow: FlowRow) -> tuple[list[StoredNode], list[StoredEdge]]:
    places = {id(node): place for place, node in enumerate(flow.nodes)}
    nodes = [
        StoredNode(
            place,
            None if node.parent is None else places[id(node.parent)],
            node.place,
            node.new.kind,
            node.state,
            node.waits_for,
        )
        for place, node in enumerate(flow.nodes)
    ]
    edges = [
        StoredEdge(places[id(edge.before)], places[id(edge.after)], edge.rule, edge.met)
        for node in flow.nodes
        for edge in node.edges
    ]
    return nodes, edges


def _put(flow: FlowRow, changes: Rerun) -> None:
    places = {id(node): place for place, node in enumerate(flow.nodes)}
    for place, state in [*changes.states.items(), *((one, NodeState.SKIPPED) for one in changes.skipped)]:
        flow.nodes[place].state, flow.nodes[place].result = state, None
    for place, waits_for in changes.waits_for.items():
        flow.nodes[place].waits_for = waits_for
    for node in flow.nodes:
        for edge in node.edges:
            edge.met = changes.met.get((places[id(edge.before)], places[id(edge.after)]), edge.met)
    for (group, _), (opened, failed) in changes.counts.items():
        flow.nodes[group].open += opened
        flow.nodes[group].failed += failed
