"""Flows in memory, as their jobs see them: the nodes before a job's own.

:class:`FlowFactsAnswers` answers the plan of :mod:`pgqueue.store.flows.flow_facts`.
"""

from pgqueue.testing.flows import FlowBook, NodeRow
from pgqueue.values.flows.results import LARGEST_RESULTS, EarlierNode, FlowPosition


class FlowFactsAnswers:
    """Tells jobs what came before them."""

    def __init__(self, flows: FlowBook) -> None:
        self._flows = flows

    def facts(self, job_id: int) -> FlowPosition | None:
        """The place of a job in its flow; None: it is in none."""
        node = self._flows.of_job(job_id)
        if node is None:
            return None
        before = [_before(one, depth) for one, depth in _nodes_before(node).items()]
        skip_if = None if node.new.spec is None else node.new.spec.get("skip_if")
        return FlowPosition(node.flow.id, node.flow.new.name, node.new.name, skip_if, before)


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
