"""Live and dead jobs that match a filter, newest first; and what is done to all that match it.

Dead jobs are grouped by error first: each group by task, type and message, with the job that died last.
"""

import re
from functools import partial
from typing import Any, Final

import msgspec

from pgqueue.app.bulk import DeadSelection, LiveSelection, OnProgress
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import (
    ChosenFilters,
    chosen_filter,
    dead_criteria,
    live_criteria,
    search_page,
    spoken_filter,
)
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.dashboard.pages.audit import begin_operation, count_text, preview_table, query
from pgqueue.errors import InvalidOption
from pgqueue.values.bulk.operation import BulkAction as Deed
from pgqueue.values.bulk.operation import BulkResult, Preview
from pgqueue.values.insight.now import ErrorGroup
from pgqueue.values.jobs.job import JobState

SHOWN: Final = 50
"""Jobs on a page."""
DEAD_SHOWN: Final = 25
GROUPS: Final = 20
_PRIORITY: Final = re.compile(r"[+-]?[0-9]{1,10}")


def _read_jobs(visit: Visit) -> Content:
    wanted = chosen_filter(visit)
    return {**_read(visit, wanted, wanted.states or None, SHOWN), "states": [*JobState]}


def _read_dead(visit: Visit) -> Content:
    wanted = chosen_filter(visit)
    errors = visit.queue.insight.errors(queue=wanted.queue, task=wanted.task, limit=GROUPS)
    return {
        **_read(visit, wanted, JobState.DEAD, DEAD_SHOWN),
        "groups": [_find_group(visit, one) for one in errors.groups],
        "counted": errors.jobs,
        "complete": errors.complete,
    }


def _read(visit: Visit, wanted: ChosenFilters, state: Any, limit: int) -> dict[str, Any]:  # noqa: ANN401 - as for search_page
    return {
        **search_page(visit, wanted, state=state, limit=limit),
        "filter": wanted,
        "tasks": sorted(visit.queue.tasks),
        "queues": sorted(visit.queue.queues or ()),
    }


def _find_group(visit: Visit, group: ErrorGroup) -> ErrorGroup:
    message = visit.redaction.message(visit.chosen, group.last_job, group.message, visit.queue.job)
    return msgspec.structs.replace(group, message=message)


def _ask_live(visit: Visit, *, deed: Deed, **asked: Any) -> ActionQuestion:  # noqa: ANN401 - as for _ask
    found = _live(visit).preview()
    alone = [("Running, left alone", found.left_alone)] if found.left_alone else []
    return _ask(visit, found, "jobs", *alone, destroys=deed is Deed.CANCEL, **asked)


def _ask(
    visit: Visit,
    found: Preview,
    page: str,
    *facts: tuple[str, object],
    verb: str,
    text: str,
    destroys: bool,
    fields: tuple[Field, ...] = (),
) -> ActionQuestion:
    found = visit.redaction.preview(found)
    which = spoken_filter(visit, "dead jobs" if page == "dead" else "live jobs")
    return ActionQuestion(
        title=f"{verb} {count_text(found.count)}?",
        text=text,
        button=verb,
        back=visit.url(page, **query(visit)),
        destroys=destroys,
        fields=fields,
        facts=(("Which", which), *facts),
        groups=preview_table(found),
        jobs=found.sample,
        possible=found.count > 0,
    )


def _ask_dead(visit: Visit, **asked: Any) -> ActionQuestion:  # noqa: ANN401 - as for _ask
    return _ask(visit, _dead(visit).preview(), "dead", **asked)


def _do(visit: Visit, *, deed: Deed, done: str) -> ActionResult:
    chosen, given = _live(visit), _form_values(visit, deed)

    def run(progress: OnProgress) -> BulkResult:
        match deed:
            case Deed.CANCEL:
                return chosen.cancel(by=visit.by, progress=progress)
            case Deed.MOVE:
                return chosen.move(**given, by=visit.by, progress=progress)
            case _:
                return chosen.reprioritise(**given, by=visit.by, progress=progress)

    return begin_operation(visit, run, done=done, back=visit.url("jobs", **query(visit)))


def _form_values(visit: Visit, deed: Deed) -> dict[str, Any]:
    if deed is Deed.MOVE:
        return {"to": visit.field("to")}
    if deed is not Deed.REPRIORITISE:
        return {}
    typed = visit.field("priority")
    if not _PRIORITY.fullmatch(typed):
        raise InvalidOption("priority: give a whole number, -100…100")
    return {"priority": int(typed)}


def _live(visit: Visit) -> LiveSelection:
    return visit.queue.control.jobs(**live_criteria(visit))


def _dead(visit: Visit) -> DeadSelection:
    return visit.queue.control.dead(**dead_criteria(visit))


def _action(name: Deed, right: Right, done: str, **asked: Any) -> PageAction:  # noqa: ANN401 - as for _ask
    return PageAction(
        name=f"jobs-{name}",
        path=f"/jobs/{name}",
        right=right,
        ask=partial(_ask_live, deed=name, **asked),
        do=partial(_do, deed=name, done=done),
        under="jobs",
    )


def _retry(visit: Visit) -> ActionResult:
    chosen, without_key = _dead(visit), bool(visit.field("without_key"))
    return _begin(
        visit,
        lambda progress: chosen.retry(without_key=without_key, by=visit.by, progress=progress),
        "ready again",
    )


def _purge(visit: Visit) -> ActionResult:
    chosen = _dead(visit)
    return _begin(visit, lambda progress: chosen.purge(by=visit.by, progress=progress), "deleted")


def _begin(visit: Visit, run: Any, done: str) -> ActionResult:  # noqa: ANN401 - an operation
    return begin_operation(visit, run, done=done, back=visit.url("dead", **query(visit)))


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
    PageAction(
        name="dead-retry",
        path="/dead/retry",
        right=Right.RETRY,
        ask=partial(
            _ask_dead,
            verb="Retry",
            text="They become ready at once, with all their attempts. A job stays dead while a live job has its unique key.",
            destroys=False,
            fields=(
                Field(
                    name="without_key",
                    label="Without their unique keys",
                    kind="checkbox",
                    hint="so that they also run while live jobs have the keys",
                ),
            ),
        ),
        do=_retry,
        under="dead",
    ),
    PageAction(
        name="dead-purge",
        path="/dead/purge",
        right=Right.PURGE,
        ask=partial(
            _ask_dead,
            verb="Delete",
            text="They are deleted for ever, with their arguments and errors.",
            destroys=True,
        ),
        do=_purge,
        under="dead",
    ),
)
PAGES = (
    Page(name="jobs", path="/jobs", title="Jobs", read=_read_jobs, place=30),
    Page(name="dead", path="/dead", title="Dead", read=_read_dead, place=40),
)
