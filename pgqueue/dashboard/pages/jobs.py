"""The jobs that match a filter, newest first; and what is done to all live jobs that match it."""

import re
from functools import partial
from typing import Any, Final

from pgqueue.app.bulk import LiveSelection, OnProgress
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import chosen_filter, live_criteria, search_page, spoken_filter
from pgqueue.dashboard.many import begin_operation, count_text, preview_table, query
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction
from pgqueue.dashboard.visit import Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.bulk.operation import BulkAction as Deed
from pgqueue.values.bulk.operation import BulkResult
from pgqueue.values.jobs.job import JobState

SHOWN: Final = 50
"""Jobs on a page."""
_PRIORITY: Final = re.compile(r"[+-]?[0-9]{1,10}")


def read(visit: Visit) -> Content:
    """A page of jobs."""
    wanted = chosen_filter(visit)
    found = search_page(visit, wanted, state=wanted.states or None, limit=SHOWN)
    return {
        **found,
        "filter": wanted,
        "states": [*JobState],
        "tasks": sorted(visit.queue.tasks),
        "queues": sorted(visit.queue.queues or ()),
    }


def _ask(visit: Visit, *, deed: Deed, verb: str, text: str, fields: tuple[Field, ...] = ()) -> ActionQuestion:
    found = visit.redaction.preview(_selection(visit).preview())
    alone = [("Running, left alone", found.left_alone)] if found.left_alone else []
    return ActionQuestion(
        title=f"{verb} {count_text(found.count)}?",
        text=text,
        button=verb,
        back=visit.url("jobs", **query(visit)),
        destroys=deed in {Deed.CANCEL, Deed.PURGE},
        fields=fields,
        facts=(("Which", spoken_filter(visit, "live jobs")), *alone),
        groups=preview_table(found),
        jobs=found.sample,
        possible=found.count > 0,
    )


def _do(visit: Visit, *, deed: Deed, done: str) -> ActionResult:
    chosen, given = _selection(visit), _form_values(visit, deed)

    def run(progress: OnProgress) -> BulkResult:
        match deed:
            case Deed.CANCEL:
                return chosen.cancel(by=visit.by, progress=progress)
            case Deed.MOVE:
                return chosen.move(**given, by=visit.by, progress=progress)
            case _:
                return chosen.reprioritise(**given, by=visit.by, progress=progress)

    return begin_operation(visit, run, done=done, back=visit.url("jobs", **query(visit)))


def _selection(visit: Visit) -> LiveSelection:
    return visit.queue.control.jobs(**live_criteria(visit))


def _form_values(visit: Visit, deed: Deed) -> dict[str, Any]:
    if deed is Deed.MOVE:
        return {"to": visit.field("to")}
    if deed is not Deed.REPRIORITISE:
        return {}
    typed = visit.field("priority")
    if not _PRIORITY.fullmatch(typed):
        raise InvalidOption("priority: give a whole number, -100…100")
    return {"priority": int(typed)}


def _action(name: Deed, right: Right, done: str, **asked: Any) -> PageAction:  # noqa: ANN401 - as for _ask
    return PageAction(
        name=f"jobs-{name}",
        path=f"/jobs/{name}",
        right=right,
        ask=partial(_ask, deed=name, **asked),
        do=partial(_do, deed=name, done=done),
        under="jobs",
    )


PAGE = Page(name="jobs", path="/jobs", title="Jobs", read=read, place=30)
ACTIONS = (
    _action(
        Deed.CANCEL,
        Right.CANCEL,
        "cancelled",
        verb="Cancel",
        text="Waiting jobs end at once, and their flows with them. Workers are asked to stop running ones.",
    ),
    _action(
        Deed.MOVE,
        Right.MOVE,
        "moved",
        verb="Move",
        text="Waiting jobs go into another queue. Running ones stay.",
        fields=(Field(name="to", label="Into queue", required=True),),
    ),
    _action(
        Deed.REPRIORITISE,
        Right.MOVE,
        "got their priority",
        verb="Reprioritise",
        text="Waiting jobs get another priority. Running ones keep theirs.",
        fields=(
            Field(
                name="priority",
                label="Priority",
                kind="number",
                value="0",
                hint="-100…100, higher runs sooner",
                required=True,
            ),
        ),
    ),
)
