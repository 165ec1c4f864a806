"""Chains, groups and workflows in memory: how they are added and cancelled, and what follows in them when their jobs end.

:class:`FlowBook` answers the plans that add and cancel a flow. When a job ends it does, all at once, what
:mod:`pgqueue.store.flows.flow_progress` does in portions. What an edge means is decided in :func:`pgqueue.values.flows.flow.effect_of`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from pgqueue.store.flows.flow_progress import NODE_STATES
from pgqueue.store.flows.flows import AddedFlow
from pgqueue.testing.row import JobRow
from pgqueue.values.flows.flow import (
    EdgeEffect,
    EdgeRule,
    NewFlow,
    NewNode,
    Nodes,
    NodeState,
    effect_of,
    flags_of,
    flow_key_taken,
    job_key_taken,
    nodes_of,
)
from pgqueue.values.flows.retry import not_found
from pgqueue.values.jobs.job import JobState, NewJob

WAITING, RELEASED, CANCELLED = NodeState.WAITING, NodeState.RELEASED, NodeState.CANCELLED


@dataclass(slots=True, eq=False)
class FlowRow:
    """A flow: what was enqueued, where it stands, and its nodes, the root first."""

    id: int
    new: NewFlow
    state: str
    created_at: datetime
    nodes: "list[NodeRow]" = field(default_factory=list)
    ended_at: datetime | None = None


@dataclass(slots=True, eq=False)
class EdgeRow:
    """A node waits for another one."""

    before: "NodeRow"
    after: "NodeRow"
    rule: EdgeRule
    met: bool = False


@dataclass(slots=True, eq=False)
class NodeRow:
    """A node of a flow: a job, or a group of nodes; ``new.parent`` and ``new.place`` are those among what was added with it."""

    id: int
    new: NewNode
    flow: FlowRow
    parent: "NodeRow | None"
    place: int
    job: JobRow | None
    waits_for: int
    state: NodeState = WAITING
    result: bytes | None = None
    members: "list[NodeRow]" = field(default_factory=list)
    open: int = 0
    failed: int = 0
    edges: list[EdgeRow] = field(default_factory=list)
    """To the nodes that wait for this one."""

    @property
    def task(self) -> str | None:
        """The task of its job; None: it is a group."""
        return None if self.new.job is None else self.new.job.task

    @property
    def label(self) -> str:
        """What it is called: its name, else its task, else what kind of node it is."""
        return self.new.name or self.task or self.new.kind

    @property
    def result_text(self) -> str | None:
        """What its job returned, as it is stored; None: nothing."""
        return None if self.result is None else self.result.decode()


class FlowBook:
    """All flows of a queue."""

    def __init__(
        self,
        insert: Callable[[NewJob, datetime], JobRow],
        holder: Callable[[str | None], JobRow | None],
        require_rooms: Callable[[Iterable[NewJob]], None],
    ) -> None:
        """``insert`` adds a blocked job. ``holder`` returns the live job that has a unique key.

        ``require_rooms`` refuses jobs for which a queue has no room.
        """
        self._insert = insert
        self._holder = holder
        self._require_rooms = require_rooms
        self._flows: list[FlowRow] = []
        self._of_job: dict[int, NodeRow] = {}
        self._ids = count(1)
        self._events: deque[tuple[NodeRow, NodeState]] = deque()

    def add(self, flow: NewFlow, *, now: datetime) -> AddedFlow:
        """Add a flow and all its jobs."""
        nodes = nodes_of(flow.parts)
        self._require_rooms(flow.jobs)
        runs = next(self.unended(flow.key), None) is None
        if flow.key is not None and not runs and not flow.in_turn:
            raise flow_key_taken(flow.key)
        added = FlowRow(len(self._flows) + 1, flow, "running" if runs else "waiting", now)
        self._make_nodes(added, nodes, now)
        self._flows.append(added)
        self._release(added.nodes[0], now)
        self._follow_events(now)
        return AddedFlow(added.id, [node.job.id for node in added.nodes if node.job is not None])

    def ended(self, row: JobRow, now: datetime, *, skipped: bool = False) -> None:
        """Do what follows from the end of a job; ``skipped``: a condition kept it from running."""
        if (node := self._of_job.get(row.id)) is not None:
            node.result = row.result
            self._end(node, NodeState.SKIPPED if skipped else NODE_STATES[row.state], now)
            self._follow_events(now)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._of_job

    def of_job(self, job_id: int) -> NodeRow | None:
        """The node of a job."""
        return self._of_job.get(job_id)

    def flow(self, flow_id: int) -> FlowRow | None:
        """One flow."""
        return self._flows[flow_id - 1] if 1 <= flow_id <= len(self._flows) else None

    def begin_cancel(self, flow_id: int) -> bool:
        """Mark a flow as cancelled; False: it had ended."""
        flow = self.require(flow_id)
        if flow.ended_at is None:
            flow.state = "cancelled"
        return flow.ended_at is None

    def ask(self, flow_id: int) -> None:
        """Ask a flow's running jobs to stop."""
        for node in self.require(flow_id).nodes:
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
        root, *nodes = self.require(flow_id).nodes
        for node in [node for node in nodes if node.state is WAITING or _is_due(node)]:
            self._abandon(node, now)
        for group in [root, *nodes]:
            self._close(group, now)
        self._follow_events(now)
        return False, None

    def end_root(self, flow_id: int, *, now: datetime) -> None:
        """End a cancelled flow that waited for its turn."""
        root = self.require(flow_id).nodes[0]
        if root.state is WAITING:
            self._abandon(root, now)
            self._follow_events(now)

    def require(self, flow_id: int) -> FlowRow:
        """One flow, which has to be there."""
        flow = self.flow(flow_id)
        if flow is None:
            raise not_found(flow_id)
        return flow

    def _abandon(self, node: NodeRow, now: datetime) -> None:
        """End a node of a cancelled flow, and its job. What waits for it is not told."""
        if node.job is not None and not node.job.state.ended:
            node.job.end(JobState.CANCELLED, now)
        node.state = CANCELLED
        if node.parent is None:
            self._end_flow(node.flow, CANCELLED, now)
        else:
            node.parent.open -= 1
            node.parent.failed += 1

    def bars(self, job_id: int) -> bool:
        """Whether a dead job must not run: its flow has ended, and another flow of its key has not."""
        node = self._of_job.get(job_id)
        return node is not None and node.flow.ended_at is not None and any(self.unended(node.flow.new.key))

    def reopen(self, job_id: int) -> None:
        """Note that a dead job runs again: its node, the groups that it is in, and its flow have not ended."""
        node = self._of_job.get(job_id)
        while node is not None and node.state is NodeState.FAILED:
            node.state, node.result = RELEASED, None
            if node.parent is None:
                node.flow.state, node.flow.ended_at = "running", None
            else:
                node.parent.open += 1
                node.parent.failed -= 1
            node = node.parent

    @property
    def newest_first(self) -> Iterator[FlowRow]:
        """All flows."""
        return reversed(self._flows)

    @property
    def states(self) -> list[str]:
        """The states of all flows, the oldest first."""
        return [flow.state for flow in self._flows]

    @property
    def nodes(self) -> list[NodeRow]:
        """All nodes, those of the oldest flow first."""
        return [node for flow in self._flows for node in flow.nodes]

    def _require_free_keys(self, nodes: Nodes) -> None:
        keys = sorted(node.job.unique_key for node in nodes if node.job and node.job.unique_key)
        for place, key in enumerate(keys):
            if key in keys[:place] or self._holder(key) is not None:
                raise job_key_taken(key)

    def _make_nodes(self, flow: FlowRow, given: Nodes, now: datetime) -> None:
        """Make the nodes of a flow and their jobs, all waiting; the first one is the root."""
        self._require_free_keys(given)
        nodes = flow.nodes
        for new in given:
            parent = None if new.parent is None else nodes[new.parent]
            job = None if new.job is None else self._insert(new.job, now)
            node = NodeRow(next(self._ids), new, flow, parent, new.place, job, len(new.after))
            nodes.append(node)
            if parent is not None:
                parent.members.append(node)
                parent.open += 1
            if job is not None:
                job.flags = flags_of(new, given)
                self._of_job[job.id] = node
        for node, new in zip(nodes, given, strict=True):
            for before, rule in new.after:
                nodes[before].edges.append(EdgeRow(nodes[before], node, rule))

    def unended(self, key: str | None) -> Iterator[FlowRow]:
        """The flows of a key that have not ended."""
        return (flow for flow in self._flows if key is not None and flow.new.key == key and not flow.ended_at)

    def _release(self, node: NodeRow, now: datetime) -> None:
        """Release a node that waits for no other, if its group is: its job is admitted; what members do is an event."""
        parent = RELEASED if node.parent is None else node.parent.state
        if node.state is not WAITING or parent is not RELEASED or node.flow.state != "running":
            return
        node.state = RELEASED
        if node.job is None:
            self._events.append((node, RELEASED))
        else:
            node.job.admit(now)

    def _end(self, node: NodeRow, state: NodeState, now: datetime) -> None:
        """Note how a node ended. Its job does not run if it waits; what else that means is an event."""
        if node.state is WAITING and node.job is not None and not node.job.state.ended:
            node.job.end(JobState.CANCELLED, now)
        if node.state in {WAITING, RELEASED}:
            node.state = state
            self._events.append((node, state))

    def _follow_events(self, now: datetime) -> None:
        """Do what follows from events, until nothing follows any more."""
        while self._events:
            node, state = self._events.popleft()
            if state is RELEASED:
                for member in node.members:
                    if not member.waits_for:
                        self._release(member, now)
                self._close(node, now)
                continue
            self._follow_edges(node, state, now)
            if state is not NodeState.FAILING:
                self._leave(node, now)

    def _follow_edges(self, node: NodeRow, state: NodeState, now: datetime) -> None:
        for edge in node.edges:
            effect = None if edge.met else effect_of(edge.rule, state)
            if effect is EdgeEffect.MEET:
                edge.met = True
                edge.after.waits_for -= 1
                if not edge.after.waits_for:
                    self._release(edge.after, now)
            elif effect is not None and edge.after.state is WAITING:
                self._end(edge.after, CANCELLED if effect is EdgeEffect.CANCEL else NodeState.SKIPPED, now)

    def _leave(self, node: NodeRow, now: datetime) -> None:
        """Tell the group that a node is in of its end; cancel the node's own members that have not run."""
        for member in node.members:
            if member.state is WAITING:
                self._end(member, CANCELLED, now)
        if node.parent is None:
            self._end_flow(node.flow, node.state, now)
            return
        node.parent.open -= 1
        if node.state.is_failure:
            node.parent.failed += 1
            self._events.append((node.parent, NodeState.FAILING))
        self._close(node.parent, now)

    def _close(self, group: NodeRow, now: datetime) -> None:
        """End a node if it is a released group whose members have all ended."""
        if group.job is None and group.state is RELEASED and not group.open:
            self._end(group, NodeState.FAILED if group.failed else NodeState.SUCCEEDED, now)

    def _end_flow(self, flow: FlowRow, state: NodeState, now: datetime) -> None:
        """End a flow whose root has ended, and start the next one of its key."""
        flow.state = flow.state if flow.state == CANCELLED else state
        flow.ended_at = now
        following = next(self.unended(flow.new.key), None)
        if following is not None and following.state == "waiting":
            following.state = "running"
            self._release(following.nodes[0], now)


def _is_due(node: NodeRow) -> bool:
    return node.state is RELEASED and node.job is not None and node.job.state is not JobState.RUNNING
