"""The chains, groups and workflows, and one of them as a graph; they are cancelled and retried."""

from typing import Final

from markupsafe import Markup

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction, Visit
from pgqueue.values.flows.drawing import svg
from pgqueue.values.flows.record import FlowState

SHOWN: Final = 25
DRAWN: Final = 600
"""Nodes of a workflow that is drawn; a larger one is a list alone."""
LISTED: Final = 200
PATH: Final = "/workflows/<int:flow_id>"


def read(visit: Visit) -> Content:
    """A page of workflows, newest first."""
    state, name = visit.text("state"), visit.text("called")
    found = visit.queue.flows.list(state=state, name=name, before=visit.number("below"), limit=SHOWN + 1)
    return {
        "flows": found[:SHOWN],
        "older": found[SHOWN - 1].id if len(found) > SHOWN else None,
        "states": [*FlowState],
        "state": state,
        "called": name,
    }


def read_one(visit: Visit, *, flow_id: int) -> Content:
    """One workflow, its nodes, and why each of them waits."""
    flow = visit.queue.flows.get(flow_id)
    nodes = [one for one in flow.nodes if one.parent is not None]
    return {
        "flow": flow,
        "nodes": nodes[:LISTED],
        "more": max(0, len(nodes) - LISTED),
        "picture": _picture(svg(flow)) if len(flow.nodes) <= DRAWN else None,
    }


def _picture(drawn: str) -> str:
    return Markup(drawn.replace("<svg ", '<svg role="img" class="flow" ', 1))  # noqa: S704 - its texts are escaped


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
    Page(name="workflow", path=PATH, title="Workflow", read=read_one, under="workflows", every=4),
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
