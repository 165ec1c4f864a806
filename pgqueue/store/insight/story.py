"""The plan that reads what surrounds a job: its place in a flow, and what its attempts noted."""

from collections.abc import Sequence

from pgqueue.store.arrays import numbers
from pgqueue.store.jobs.control import is_id
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.workers import stacks
from pgqueue.values.flows.flow import EdgeRule, NodeState
from pgqueue.values.flows.record import FlowState
from pgqueue.values.insight.story import FlowPlace, JobWorker, Neighbour, NoteLine, Story

NEAR = 50
"""Nodes that are named before and behind a job."""
NOTES = 200


@plan(reads=True)
def story(job_id: int) -> Steps[Story]:
    """What surrounds a job; of one that does not exist, nothing does."""
    if not is_id(job_id):
        return Story(None, ())
    notes = yield Statement("insight/notes", {"id": job_id, "limit": NOTES})
    around = yield Statement("insight/place", {"id": job_id})
    place = (yield from _place(around)) if around else None
    stack = yield from stacks.look(job_id)
    ran = yield Statement("insight/job_workers", {"id": job_id, "now": None})
    workers = tuple(
        JobWorker(worker, host if pid is None else f"{host}:{pid}", alive) for worker, host, pid, alive in ran
    )
    return Story(place, tuple(NoteLine(*row) for row in notes), stack, workers)


def _place(around: Sequence[Row]) -> Steps[FlowPlace]:
    params = {"nodes": numbers([row[4] for row in around]), "limit": NEAR + 1}
    found = yield Statement("insight/neighbours", params)
    before, after = ([_neighbour(row) for row in found if row[0] is first] for first in (True, False))
    flow_id, kind, name, state, _, node, node_state, _ = around[0]
    return FlowPlace(
        flow_id,
        kind,
        name,
        FlowState(state),
        node,
        NodeState(node_state),
        tuple(row[5] for row in reversed(around[1:]) if not row[7]),
        tuple(before[:NEAR]),
        tuple(after[:NEAR]),
        complete=max(len(before), len(after)) <= NEAR,
    )


def _neighbour(row: Row) -> Neighbour:
    _, label, state, job_id, rule, met = row
    return Neighbour(label, state, job_id, EdgeRule(rule), met)
