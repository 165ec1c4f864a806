"""The chains, groups and workflows, and one of them as a graph; they are cancelled and retried."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.flow_picture import picture
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction, Visit
from pgqueue.values.flows.drawing import members_of
from pgqueue.values.flows.flow import NodeKind, NodeState
from pgqueue.values.flows.folding import FoldedFlow, fold, words_in_order
from pgqueue.values.flows.record import FlowRecord, FlowState, NodeRecord, state_word

SHOWN: Final = 25
DRAWN: Final = 300
"""Nodes of a workflow that is drawn, where crowds of jobs are one node; a larger one is a list alone."""
LISTED: Final = 200
READ: Final = 2_000
"""Nodes that are read of a large workflow."""
MEMBERS: Final = 100
"""Jobs of a crowd in a page."""
PATH: Final = "/workflows/<int:flow_id>"


def read(visit: Visit) -> Content:
    """A page of workflows, newest first."""
    state, name = visit.text("state"), visit.text("called")
    found = visit.queue.flows.list(state=state, name=name, before=visit.number("below"), limit=SHOWN + 1)
    return {
        "flows": found[:SHOWN],
        "jobs_by_state": {
            one.id: {state_word(state): jobs for state, jobs in (one.counts or {}).items()}
            for one in found[:SHOWN]
        },
        "older": found[SHOWN - 1].id if len(found) > SHOWN else None,
        "states": [*FlowState],
        "state": state,
        "called": name,
    }


def read_one(visit: Visit, *, flow_id: int) -> Content:
    """One workflow: its nodes, crowds of jobs folded, why each of them waits, and the jobs of the crowd that is unfolded."""
    folded = fold(_whole(visit, flow_id))
    children = members_of(folded.flow.nodes)
    root, *inside = _in_order(children[None][0], children, depth=-1)
    nodes = inside or [(root[0], 0)]
    unfolded = visit.number("open")
    members = [] if unfolded is None else _members(visit, folded, unfolded)
    counts = _summed(folded, nodes)

    def address(node: NodeRecord) -> str | None:
        if node.id in folded.counts:
            return visit.here(open=node.id, only=None, after=None) + f"#node-{node.id}"
        return None if node.job_id is None else visit.url("job", job_id=node.job_id)

    label = f"Drawing of {folded.flow.kind} {flow_id}: its nodes are links to their jobs"
    return {
        "flow": folded.flow,
        "nodes": nodes[:LISTED],
        "more": max(0, len(nodes) - LISTED),
        "crowds": folded.counts,
        "all": counts,
        "states": [state for state, _ in words_in_order(counts)],
        "open": unfolded if unfolded in folded.counts else None,
        "only": visit.text("only"),
        "members": members[:MEMBERS],
        "next_place": members[MEMBERS - 1].place if len(members) > MEMBERS else None,
        "picture": picture(folded, address, label) if len(folded.flow.nodes) <= DRAWN else None,
    }


def _whole(visit: Visit, flow_id: int) -> FlowRecord:
    """A workflow with its nodes; also of a large one, whose nodes are read in a second look."""
    flow = visit.without_secrets(visit.queue.flows.get(flow_id))  # before it is drawn
    if len(flow.nodes) > 1 or flow.nodes[0].kind is not NodeKind.WORKFLOW:
        return flow
    nodes = visit.without_secrets(visit.queue.flows.nodes(flow_id, parent=flow.nodes[0].id, limit=READ))
    return msgspec.structs.replace(flow, nodes=(*flow.nodes, *nodes))


def _in_order(
    node: NodeRecord, children: Mapping[int | None, Sequence[NodeRecord]], depth: int
) -> Iterator[tuple[NodeRecord, int]]:
    """A node and what is in it, each with how deep it is, in the order in which they can run."""
    yield node, depth
    for member in children.get(node.id, ()):
        yield from _in_order(member, children, depth + 1)


def _members(visit: Visit, folded: FoldedFlow, crowd: int) -> Sequence[NodeRecord]:
    """A page of the jobs of a crowd, and one more if there are more."""
    if crowd not in folded.counts:
        return []
    state, after = visit.text("only"), visit.number("after")
    listed = folded.jobs[crowd]
    if not listed:
        found = visit.queue.flows.nodes(
            folded.flow.id,
            parent=crowd,
            state=_stored(state),
            after=-1 if after is None else after,
            limit=MEMBERS + 1,
        )
        return [one for one in found if state is None or one.said == state]
    return [
        one for one in listed if (state is None or one.said == state) and (after is None or one.place > after)
    ][: MEMBERS + 1]


def _stored(state: str | None) -> NodeState | None:
    """The stored state of nodes that people read as this one."""
    if state is None:
        return None
    return NodeState(state) if state in {*NodeState} else NodeState.RELEASED


def _summed(folded: FoldedFlow, nodes: Sequence[tuple[NodeRecord, int]]) -> Counter[str]:
    """How many jobs of a workflow are in which state."""
    found: Counter[str] = Counter()
    for node, _ in nodes:
        found.update(folded.counts.get(node.id) or ({} if node.kind.is_group else {node.said: 1}))
    return found


def _ask(visit: Visit, *, flow_id: int, verb: str, text: str, destroys: bool) -> ActionQuestion:
    flow = visit.queue.flows.get(flow_id)
    possible = flow.ended_at is None if verb == "Cancel" else flow.state in _FAILED
    return ActionQuestion(
        title=f"{verb} {flow.kind} {flow.id}?",
        text=text if possible else f"It is {flow.state}, so this cannot be done.",
        button=verb,
        back=visit.url("workflow", flow_id=flow_id),
        destroys=destroys,
        facts=(("Name", flow.name), ("State", str(flow.state))),
        possible=possible,
    )


_FAILED: Final = (FlowState.FAILED, FlowState.CANCELLED)


def _ask_cancel(visit: Visit, *, flow_id: int) -> ActionQuestion:
    text = "All that has not ended in it is cancelled; workers are asked to stop the jobs that run."
    return _ask(visit, flow_id=flow_id, verb="Cancel", text=text, destroys=True)


def _ask_retry(visit: Visit, *, flow_id: int) -> ActionQuestion:
    text = "Its failed nodes run again, and so does what waits for them."
    return _ask(visit, flow_id=flow_id, verb="Retry", text=text, destroys=False)


def _cancel(visit: Visit, *, flow_id: int) -> ActionResult:
    done = visit.queue.flows.cancel(flow_id, by=visit.by)
    said = "is cancelled" if done else "had ended already"
    return ActionResult(
        f"Workflow {flow_id} {said}.", visit.url("workflow", flow_id=flow_id), well=bool(done)
    )


def _retry(visit: Visit, *, flow_id: int) -> ActionResult:
    nodes = visit.queue.flows.retry(flow_id, by=visit.by)
    return ActionResult(
        f"Workflow {flow_id}: {nodes:,} nodes run again.",
        visit.url("workflow", flow_id=flow_id),
        well=nodes > 0,
    )


PAGES = (
    Page(name="workflows", path="/workflows", title="Workflows", read=read, place=70),
    Page(name="workflow", path=PATH, title="Workflow", read=read_one, under="workflows", every=7),
)
ACTIONS = (
    PageAction(
        name="workflow-cancel",
        path=f"{PATH}/cancel",
        right=Right.CANCEL,
        ask=_ask_cancel,
        do=_cancel,
        under="workflows",
    ),
    PageAction(
        name="workflow-retry",
        path=f"{PATH}/retry",
        right=Right.RETRY,
        ask=_ask_retry,
        do=_retry,
        under="workflows",
    ),
)
