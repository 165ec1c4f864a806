"""The runs, which are DataFrames written under a name, and one of them: how far its jobs are; it is cancelled."""

from collections.abc import Mapping
from typing import Final

from werkzeug.exceptions import NotFound

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction, Visit
from pgqueue.dashboard.pages.audit import begin_operation
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.runs import Run
from pgqueue.values.workers.lease import duration_text

SHOWN: Final = 25
STATES: Final = (
    "succeeded",
    "ended",
    "running",
    "ready",
    "scheduled",
    "blocked",
    "dead",
    "cancelled",
    "gone",
)
"""The states in a bar, in the order in which they stand; ended: in a list it is not counted how."""
LISTED: Final = frozenset({"succeeded", "running", "ready", "scheduled", "blocked", "dead", "cancelled"})
"""States by which the list of jobs can be filtered."""


def read(visit: Visit) -> Content:
    """The latest runs."""
    found = visit.queue.insight.runs(limit=SHOWN)
    return {"runs": found, "by_state": {one.name: _by_state(one) for one in found}, "limit": SHOWN}


def read_one(visit: Visit) -> Content:
    """One run: its jobs by state, its rate, and the time that the others take."""
    run = _run(visit)
    return {
        "run": run,
        "states": _by_state(run),
        "listed": LISTED,
        "left": None if run.seconds_left is None else duration_text(run.seconds_left),
    }


def _run(visit: Visit) -> Run:
    try:
        return visit.queue.insight.run(visit.name)
    except InvalidOption as error:
        raise NotFound(str(error)) from None


def _by_state(run: Run) -> Mapping[str, int]:
    """How many jobs are in which state. In a list those that ended well and those that were cancelled count as done together."""
    counts = {name: getattr(run, name) or 0 for name in STATES}
    if run.succeeded is None:
        counts["succeeded"] = counts["ended"]
    return {name: count for name, count in counts.items() if count and name != "ended"}


def _ask_cancel(visit: Visit) -> ActionQuestion:
    run = _run(visit)
    return ActionQuestion(
        title=f"Cancel the {run.live:,} jobs of run {run.name} that have not ended?",
        text="Waiting jobs end at once. Workers are asked to stop running ones."
        if run.live
        else "All its jobs have ended.",
        button="Cancel",
        back=visit.url("run", name=run.name),
        facts=(("Waiting", f"{run.waiting:,}"), ("Running", f"{run.running:,}")),
        possible=run.live > 0,
    )


def _cancel(visit: Visit) -> ActionResult:
    run = _run(visit)
    chosen = visit.queue.control.jobs(run=run.name)
    return begin_operation(
        visit,
        lambda progress: chosen.cancel(by=visit.by, progress=progress),
        done="cancelled",
        back=visit.url("run", name=run.name),
        count=run.live,
    )


PAGES = (
    Page(name="runs", path="/runs", title="Runs", read=read, place=75),
    Page(name="run", path="/run", title="Run", read=read_one, under="runs", every=10),
)
ACTIONS = (
    PageAction(
        name="run-cancel", path="/run/cancel", right=Right.CANCEL, ask=_ask_cancel, do=_cancel, under="runs"
    ),
)
