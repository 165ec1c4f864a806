"""Plans that look at flows: a list, one of them, the members of a group, results; and what a job may know of its flow."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pgqueue.store.arrays import numbers
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.flows.flow import EdgeRule, NodeKind, NodeState
from pgqueue.values.flows.record import EdgeRecord, FlowRecord, FlowState, NodeRecord, explain_nodes
from pgqueue.values.flows.results import LARGEST_RESULTS, EarlierNode, FlowPosition
from pgqueue.values.flows.retry import not_found
from pgqueue.values.jobs.job import JobState
from pgqueue.values.payloads.storable import value_of

MOST_COUNTED = 10_000
"""Nodes of a flow that a list counts."""
MOST_SHOWN = 5_000
"""Nodes that are shown of one flow."""
NEWEST = (1 << 63) - 1


class StoredResult(NamedTuple):
    """What a node returned, as it is stored, and of which job.

    Attributes:
        name: the node's name.
        task: its job's task.
        text: JSON; None: it returned nothing.
        meta: what was sent along with the job, as JSON.
    """

    name: str
    task: str
    text: str | None
    meta: str | None


@plan(reads=True)
def flows(
    *,
    states: Collection[FlowState] | None = None,
    kind: str | None = None,
    name: str | None = None,
    key: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Steps[list[FlowRecord]]:
    """Flows that match every filter given, newest first, without their nodes."""
    params = {
        "states": None if states is None else [str(state) for state in states],
        "kind": kind,
        "name": name,
        "key": key,
        "before": NEWEST if before is None else max(0, min(before, NEWEST)),
        "limit": limit,
        "most": MOST_COUNTED,
    }
    rows = yield Statement("flows/list", params)
    return [_flow(row, None if row[7] is None else value_of(row[7])) for row in rows]


@plan(reads=True)
def flow(flow_id: int) -> Steps[FlowRecord]:
    """A flow, and its nodes except the members of large groups.

    Raises:
        FlowNotFound: there is no record of it.
    """
    row = yield from _row(flow_id)
    counts = yield Statement("flows/show_counts", {"flow": flow_id})
    jobs: Counter[str] = Counter()
    members: dict[int, Counter[NodeState]] = defaultdict(Counter)
    for parent, is_job, state, count in counts:
        members[parent][NodeState(state)] += count
        jobs[state] += count if is_job else 0
    found = _flow(row, jobs)
    rows = yield Statement("flows/show_nodes", {"flow": flow_id, "limit": MOST_SHOWN})
    nodes = yield from _nodes(rows, members)
    return msgspec.structs.replace(found, nodes=explain_nodes(nodes, found, behind=row[7]), behind=row[7])


@plan(reads=True)
def nodes(
    flow_id: int,
    *,
    parent: int,
    states: Collection[NodeState] | None = None,
    after: int = -1,
    limit: int = 100,
) -> Steps[tuple[NodeRecord, ...]]:
    """Members of a group of a flow, in order.

    Args:
        flow_id: which flow.
        parent: the id of the group's node.
        states: in any of these states.
        after: behind this place.
        limit: at most how many.
    """
    row = yield from _row(flow_id)
    params = {
        "flow": flow_id,
        "parent": parent,
        "states": None if states is None else [str(state) for state in states],
        "after": after,
        "limit": limit,
    }
    rows = yield Statement("flows/page_nodes", params)
    found = yield from _nodes(rows, {})
    return explain_nodes(found, _flow(row, None), behind=row[7])


@plan
def state(flow_id: int) -> Steps[tuple[FlowState, bool]]:
    """The state of a flow, and whether it has ended."""
    row = yield from _row(flow_id)
    return FlowState(row[4]), row[6] is not None


@plan
def results(flow_id: int) -> Steps[list[StoredResult]]:
    """What the named jobs of a flow returned, in their order."""
    yield from _row(flow_id)
    return [StoredResult(*row) for row in (yield Statement("flows/results", {"flow": flow_id}))]


def _row(flow_id: int) -> Steps[Row]:
    rows = yield Statement("flows/show", {"flow": flow_id})
    if not rows:
        raise not_found(flow_id)
    return rows[0]


def _flow(row: Row, counts: Mapping[str, int] | None) -> FlowRecord:
    by_state = None if counts is None else {one: counts[one] for one in NodeState if counts.get(one)}
    flow_id, kind, name, key, its_state, created_at, ended_at, *_ = row
    return FlowRecord(flow_id, kind, name, key, FlowState(its_state), created_at, ended_at, by_state)


def _node(row: Row, members: Mapping[int, Mapping[NodeState, int]]) -> NodeRecord:
    values = dict(
        zip(NodeRecord.__struct_fields__, row, strict=False)
    )  # the edges and the members come apart
    values["kind"], values["state"] = NodeKind(values["kind"]), NodeState(values["state"])
    values["job_state"] = None if values["job_state"] is None else JobState(values["job_state"])
    return NodeRecord(**values, members=members.get(row[0], {}))


def _nodes(
    rows: Iterable[Row], members: Mapping[int, Mapping[NodeState, int]]
) -> Steps[Sequence[NodeRecord]]:
    found = [_node(row, members) for row in rows]
    edges: dict[int, list[EdgeRecord]] = defaultdict(list)
    if found:
        shown = yield Statement("flows/show_edges", {"nodes": numbers([node.id for node in found])})
        for node, before, label, its_state, rule, met in shown:
            edges[node].append(EdgeRecord(before, label, its_state, EdgeRule(rule), met))
    return [
        msgspec.structs.replace(node, after=tuple(edges[node.id])) if edges[node.id] else node
        for node in found
    ]


@plan
def facts(job_id: int) -> Steps[FlowPosition | None]:
    """The place of a job in its flow; None: it is in none."""
    rows = yield Statement("flows/facts", {"job": job_id, "bytes": LARGEST_RESULTS})
    if not rows:
        return None
    flow_id, flow_name, name, skip_if = rows[0][:4]
    before = [
        EarlierNode(own, NodeKind(kind), NodeState(state), *rest)
        for own, kind, state, *rest in (row[4:] for row in rows)
        if kind is not None
    ]
    return FlowPosition(flow_id, flow_name, name, skip_if, before)
