"""Changes of flows in memory: how they are cancelled and run again, and what a running job adds to its own.

Each public method of :class:`FlowChanges` answers the plan of its name in :mod:`pgqueue.store.flows.flow_control` or
:mod:`pgqueue.store.flows.flow_growth`, with the same refusals. What a retry changes is decided in
:mod:`pgqueue.values.flows.retry`. As a transaction does, a completion with additions changes all or nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from datetime import datetime
from typing import Any

from pgqueue.store.jobs.ending import States
from pgqueue.testing.flows import RELEASED, WAITING, EdgeRow, FlowRow, NodeRow
from pgqueue.testing.row import JobRow
from pgqueue.testing.table import JobTable
from pgqueue.values.flows.addition import (
    Addition,
    check_names,
    check_place,
    has_started,
    in_no_flow,
    no_longer_held,
    would_wait_for_each_other,
)
from pgqueue.values.flows.flow import EdgeRule, NodeGroup, NodeState, nodes_of
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
from pgqueue.values.jobs.verdict import Succeeded


class FlowChanges:
    """Cancels, retries and extends the flows of a queue."""

    def __init__(self, table: JobTable) -> None:
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

    def complete(
        self, done: Succeeded, additions: Sequence[Addition], *, keep: bool, now: datetime
    ) -> States:
        """Complete a job, and add to its flow what it asked for: both, or nothing."""
        own = self._flows.of_job(done.claim.id)
        if own is None:
            raise in_no_flow(done.claim.id)
        with self._all_or_nothing(own.flow):
            for addition in additions:
                self._add(own, addition, now)
            states = self._table.claims.record(done.claim.worker_id, [done], keep=keep, now=now)
            if not states:
                raise no_longer_held(done.claim)
        return states

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

    def _add(self, own: NodeRow, addition: Addition, now: datetime) -> None:
        flow, group = own.flow, _group(own, addition.into)
        check_place(addition.into, flow.id, flow.state, None if group is None else group.state)
        assert group is not None  # noqa: S101 - just checked
        known = {one.new.name: one for one in group.members if one.new.name is not None}
        check_names(addition, group.new.kind, known)
        given = nodes_of(NodeGroup(group.new.kind, addition.steps))
        new = self._flows.made(flow, given, now, root=group)
        firsts = [node for node in new if node.parent is group]
        befores = [
            (own if name is None else known[name], rule) for name, rule in (addition.after or {}).items()
        ]
        for before, rule in befores:
            _wait(firsts, before, rule)
        held = [known[name] for name in addition.before]
        if any(node.state is not WAITING for node in held):
            raise has_started()
        if {before for before, _ in befores} & _behind(held):
            raise would_wait_for_each_other()
        for node in held:
            for one in firsts:
                _wait([node], one, EdgeRule.CANCEL)
        self._start(new, [before for before, _ in befores], now)

    def _start(self, new: Iterable[NodeRow], befores: Iterable[NodeRow], now: datetime) -> None:
        for node in new:
            if not node.waits_for:
                self._flows.release(node, now)
        for before in befores:
            self._flows.follow_again(before, now)
        self._flows.follow_events(now)

    @contextmanager
    def _all_or_nothing(self, flow: FlowRow) -> Iterator[None]:
        """If the block raises, put the flow and its jobs back as they were."""
        jobs = [node.job for node in flow.nodes if node.job is not None]
        edges = [edge for node in flow.nodes for edge in node.edges]
        changed: list[FlowRow | NodeRow | JobRow | EdgeRow] = [flow, *flow.nodes, *jobs, *edges]
        kept = [(one, _values(one)) for one in changed]
        count = len(flow.nodes)
        try:
            yield
        except BaseException:
            self._flows.forget(flow.nodes[count:])
            self._table.adding.forget([node.job.id for node in flow.nodes[count:] if node.job is not None])
            for one, values in kept:
                for name, value in values.items():
                    setattr(one, name, value)
            raise


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


def _group(own: NodeRow, into: str | None) -> NodeRow | None:
    """Return the group that a node is in, or the nearest one of a name beside or around it; None: there is none."""
    if into is None:
        return own.parent
    around: NodeRow | None = own
    while around is not None and around.parent is not None:
        for one in around.parent.members:
            if one.new.name == into and one.new.kind.is_group:
                return one
        around = around.parent
    return None


def _wait(nodes: Iterable[NodeRow], before: NodeRow, rule: EdgeRule) -> None:
    for node in nodes:
        before.edges.append(EdgeRow(before, node, rule))
        node.waits_for += 1


def _behind(nodes: Collection[NodeRow]) -> set[NodeRow]:
    """Return the nodes that wait, directly or not, for one of these."""
    found: set[NodeRow] = set()
    todo = [*nodes]
    while todo:
        more = {edge.after for edge in todo.pop().edges} - found
        found |= more
        todo += more
    return found


def _values(one: FlowRow | NodeRow | JobRow | EdgeRow) -> dict[str, Any]:
    held = {each.name: getattr(one, each.name) for each in fields(one)}
    return {name: copy(value) if isinstance(value, list) else value for name, value in held.items()}
