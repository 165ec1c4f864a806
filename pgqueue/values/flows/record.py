"""What is recorded of a flow and its nodes, and why a node waits: pure rules, and a sentence for people."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from pgqueue.values.flows.flow import EdgeRule, NodeKind, NodeState
from pgqueue.values.jobs.job import JobState

MOST_NAMED = 5
"""Nodes that a sentence names, at most."""
IN_PROGRESS = "in progress"
LONGEST_NAMED = 60
"""Characters of such a name."""


class FlowState(StrEnum):
    """Where a flow stands. A cancelled one ends when its running jobs have ended."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EdgeRecord(msgspec.Struct, frozen=True):
    """That a node waits for another one.

    Attributes:
        node: the id of the other node.
        label: what that is called: its name, else its task, else what kind of node it is.
        state: the state of its job if that is live, else its own.
        rule: what happens if it fails.
        met: whether there is nothing left to wait for.
    """

    node: int
    label: str
    state: str
    rule: EdgeRule
    met: bool


class NodeRecord(msgspec.Struct, frozen=True):
    """All that is recorded of a node.

    Attributes:
        id: the node's id.
        parent: the id of the group that it is in; None: it is the flow's root.
        place: which one in its group, from 0.
        name: what it is called, or None.
        kind: what it is.
        state: where it stands.
        task: the task of its job; None: it has none.
        job_id: its job's id; None: it has none.
        job_state: where that stands if it is live.
        attempts: how many attempts of a live job were begun.
        max_attempts: the number of attempts after which that job is dead.
        run_at: when that job is due.
        queue: the queue of that job.
        cancel_requested: whether the worker of that job has been asked to stop it.
        after: the nodes for which it waits.
        members: of a group, how many members are in which state, without the job by which pgqueue has filled it.
        why: why it does not run, or what it does; None: it has ended.
    """

    id: int
    parent: int | None
    place: int
    name: str | None
    kind: NodeKind
    state: NodeState
    task: str | None = None
    job_id: int | None = None
    job_state: JobState | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    run_at: datetime | None = None
    queue: str | None = None
    cancel_requested: bool | None = None
    after: tuple[EdgeRecord, ...] = ()
    members: Mapping[NodeState, int] = {}
    why: str | None = None

    @property
    def label(self) -> str:
        """What it is called: its name, else its task or what kind of node it is."""
        return self.name or self.task or self.kind.value

    @property
    def said(self) -> str:
        """Where it stands, in a word of the field: the state of its job where that may run, else its own."""
        if self.state is not NodeState.RELEASED:
            return self.state.value
        if self.kind.is_group:
            return "running"
        return IN_PROGRESS if self.job_state is None else self.job_state.value


class FlowRecord(msgspec.Struct, frozen=True):
    """All that is recorded of a flow.

    Attributes:
        id: the flow's id.
        kind: ``chain``, ``group`` or ``workflow``.
        name: what people call it.
        key: at most one flow of a key runs at a time; None: no limit.
        state: where it stands.
        created_at: when it was enqueued.
        ended_at: when it ended; None: it has not.
        counts: how many of its jobs are in which state, without those by which pgqueue has filled groups; None: in a list, for a
            flow of more than 10,000 nodes.
        nodes: its nodes, each after the group that it is in; members of groups of more than 512 are left out, and in a
            list all are.
        behind: the flow of its key for which it waits; None: it waits for none, and in a list always.
    """

    id: int
    kind: str
    name: str
    key: str | None
    state: FlowState
    created_at: datetime
    ended_at: datetime | None
    counts: Mapping[NodeState, int] | None = None
    nodes: tuple[NodeRecord, ...] = ()
    behind: int | None = None


def explain_nodes(
    nodes: Sequence[NodeRecord], flow: FlowRecord, *, behind: int | None, around: NodeRecord | None = None
) -> tuple[NodeRecord, ...]:
    """Nodes with the reason why each waits.

    Args:
        nodes: some nodes of a flow.
        flow: the flow.
        behind: the flow of its key for which that waits.
        around: the group that they are in; None: it is one of them.
    """
    known = {node.id: node for node in nodes} | ({} if around is None else {around.id: around})
    return tuple(
        msgspec.structs.replace(
            node, why=_why(node, known.get(node.parent) if node.parent is not None else None, flow, behind)
        )
        for node in nodes
    )


def describe_counts(members: Mapping[NodeState, int]) -> str:
    """How many are in which state, in words."""
    return ", ".join(f"{members[state]:,} {state_word(state)}" for state in NodeState if members.get(state))


def state_word(state: NodeState) -> str:
    """Where nodes stand, in a word of the field: those that were released wait in a queue, or run."""
    return IN_PROGRESS if state is NodeState.RELEASED else state.value


def _why(node: NodeRecord, parent: NodeRecord | None, flow: FlowRecord, behind: int | None) -> str | None:
    match node.state:
        case NodeState.RELEASED if node.kind.is_group:
            return f"its parts: {describe_counts(node.members)}"
        case NodeState.RELEASED:
            return _runs(node)
        case NodeState.WAITING:
            return _waits(node, parent, flow, behind)
        case _:
            return None


def _runs(node: NodeRecord) -> str:
    see = f"see `pgqueue jobs show {node.job_id}`"
    match node.job_state:
        case JobState.RUNNING:
            asked = "; its worker has been asked to stop it" if node.cancel_requested else ""
            return f"running: attempt {node.attempts} of {node.max_attempts}{asked}"
        case JobState.SCHEDULED if node.run_at is not None:
            failed = f", after {node.attempts} failed attempts" if node.attempts else ""
            return f"due at {node.run_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC{failed}"
        case JobState.READY:
            return f"in queue {node.queue!r}; {see}"
        case None:
            return "its job has ended, or is gone"
        case state:
            return f"its job is {state}; {see}"


def _waits(node: NodeRecord, parent: NodeRecord | None, flow: FlowRecord, behind: int | None) -> str:
    if flow.state is FlowState.CANCELLED:
        return "its flow is being cancelled"
    if node.parent is None or (
        flow.state is FlowState.WAITING and parent is not None and parent.parent is None
    ):
        other = "another flow" if behind is None else f"flow {behind}"
        return f"waits for its turn, behind {other} of key {flow.key!r}"
    if unmet := [edge for edge in node.after if not edge.met]:
        named = [_edge_name(edge) for edge in unmet[:MOST_NAMED]]
        if len(unmet) > MOST_NAMED:
            named.append(f"{len(unmet) - MOST_NAMED:,} others")
        return "waits for " + " and ".join([", ".join(named[:-1]), named[-1]] if named[1:] else named)
    return (
        f"waits for the start of {shorten_text(parent.label)!r}"
        if parent is not None
        else "waits for the start of its group"
    )


def _edge_name(edge: EdgeRecord) -> str:
    retry = (
        "; waits for its retry"
        if edge.rule is EdgeRule.WAIT and edge.state in {"failed", "cancelled"}
        else ""
    )
    state = "running" if edge.state == NodeState.RELEASED else edge.state
    return f"{shorten_text(edge.label)!r} ({state}{retry})"


def shorten_text(text: str, most: int = LONGEST_NAMED) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
