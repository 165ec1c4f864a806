"""What is known of flows in memory: by a job, of the nodes before its own; by callers, how a flow stands.

Each public method of :class:`FlowFacts` answers the plan of its name in :mod:`pgqueue.store.flow_facts` or
:mod:`pgqueue.store.flow_looking`.
"""

from collections.abc import Iterator

from pgqueue.store.flow_looking import StoredResult
from pgqueue.testing.flows import Flow, Flows, Node
from pgqueue.values.flow import NodeState
from pgqueue.values.flow_record import FlowState
from pgqueue.values.flow_retry import not_found
from pgqueue.values.results import LARGEST_RESULTS, Before, Facts


class FlowFacts:
    """Looks at the flows of a queue."""

    def __init__(self, flows: Flows) -> None:
        """Begin.

        Args:
            flows: the flows.
        """
        self._flows = flows

    def facts(self, job_id: int) -> Facts | None:
        """The place of a job in its flow; None: it is in none."""
        node = self._flows.of_job(job_id)
        if node is None:
            return None
        before = [_before(one, depth) for one, depth in _nodes_before(node).items()]
        skip_if = None if node.new.spec is None else node.new.spec.get("skip_if")
        return Facts(node.flow.id, node.flow.new.name, node.new.name, skip_if, before)

    def state(self, flow_id: int) -> tuple[FlowState, bool]:
        """The state of a flow, and whether it has ended."""
        flow = self._flow(flow_id)
        return FlowState(flow.state), flow.ended_at is not None

    def results(self, flow_id: int) -> list[StoredResult]:
        """What the named jobs of a flow returned, in their order."""
        root = self._flow(flow_id).nodes[0]
        return [*_results(root)]

    def _flow(self, flow_id: int) -> Flow:
        flow = self._flows.flow(flow_id)
        if flow is None:
            raise not_found(flow_id)
        return flow


def _nodes_before(node: Node) -> dict[Node, int | None]:
    """The nodes before one, and before the groups that it is in; 0 where it waits for one itself, more for those groups."""
    waited_for: dict[Node, list[Node]] = {}
    for one in node.flow.nodes:
        for edge in one.edges:
            waited_for.setdefault(edge.after, []).append(one)
    found: dict[Node, int | None] = {}
    around: Node | None = node
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


def _before(node: Node, depth: int | None) -> Before:
    members = [one for one in node.members if "expands" not in (one.new.spec or {})]
    results = [_text(one) for one in members]
    size = sum(len(one) for one in results if one is not None)
    return Before(
        node.new.name,
        node.new.kind,
        node.state,
        _task(node),
        depth,
        _text(node),
        [one.new.name for one in members],
        [_task(one) for one in members],
        results if size <= LARGEST_RESULTS else None,
        size,
    )


def _results(root: Node) -> Iterator[StoredResult]:
    for node in root.members:
        if node.new.job is not None and node.new.name is not None and node.state is NodeState.SUCCEEDED:
            meta = None if node.new.job.meta is None else node.new.job.meta.decode()
            yield StoredResult(node.new.name, node.new.job.task, _text(node), meta)


def _task(node: Node) -> str | None:
    return None if node.new.job is None else node.new.job.task


def _text(node: Node) -> str | None:
    return None if node.result is None else node.result.decode()
