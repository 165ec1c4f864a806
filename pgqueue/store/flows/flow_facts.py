"""What a job may know of its flow before it starts: its node, and the results of the nodes before it."""

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.flows.flow import NodeKind, NodeState
from pgqueue.values.flows.results import LARGEST_RESULTS, EarlierNode, FlowPosition


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
