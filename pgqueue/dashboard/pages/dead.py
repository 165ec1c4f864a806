"""The dead jobs by task and error, and one by one; what is done to all that match a filter."""

from functools import partial
from typing import Any, Final

import msgspec

from pgqueue.app.bulk import DeadSelection
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import chosen_filter, dead_criteria, search_page, spoken_filter
from pgqueue.dashboard.many import begin_operation, count_text, preview_table, query
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction
from pgqueue.dashboard.visit import Visit
from pgqueue.values.insight.now import ErrorGroup
from pgqueue.values.jobs.job import JobState

SHOWN: Final = 25
GROUPS: Final = 20


def read(visit: Visit) -> Content:
    """The groups, and a page of dead jobs."""
    wanted = chosen_filter(visit)
    errors = visit.queue.insight.errors(queue=wanted.queue, task=wanted.task, limit=GROUPS)
    found = search_page(visit, wanted, state=JobState.DEAD, limit=SHOWN)
    return {
        "groups": [_find_group(visit, one) for one in errors.groups],
        "counted": errors.jobs,
        "complete": errors.complete,
        **found,
        "filter": wanted,
        "tasks": sorted(visit.queue.tasks),
        "queues": sorted(visit.queue.queues or ()),
    }


def _find_group(visit: Visit, group: ErrorGroup) -> ErrorGroup:
    message = visit.redaction.message(visit.chosen, group.last_job, group.message, visit.queue.job)
    return msgspec.structs.replace(group, message=message)


def _ask(
    visit: Visit, *, verb: str, text: str, destroys: bool, fields: tuple[Field, ...] = ()
) -> ActionQuestion:
    found = visit.redaction.preview(_selection(visit).preview())
    return ActionQuestion(
        title=f"{verb} {count_text(found.count)}?",
        text=text,
        button=verb,
        back=visit.url("dead", **query(visit)),
        destroys=destroys,
        fields=fields,
        facts=(("Which", spoken_filter(visit, "dead jobs")),),
        groups=preview_table(found),
        jobs=found.sample,
        possible=found.count > 0,
    )


def _retry(visit: Visit) -> ActionResult:
    chosen, without_key = _selection(visit), bool(visit.field("without_key"))
    return _begin(
        visit,
        lambda progress: chosen.retry(without_key=without_key, by=visit.by, progress=progress),
        "ready again",
    )


def _purge(visit: Visit) -> ActionResult:
    chosen = _selection(visit)
    return _begin(visit, lambda progress: chosen.purge(by=visit.by, progress=progress), "deleted")


def _begin(visit: Visit, run: Any, done: str) -> ActionResult:  # noqa: ANN401 - an operation
    return begin_operation(visit, run, done=done, back=visit.url("dead", **query(visit)))


def _selection(visit: Visit) -> DeadSelection:
    return visit.queue.control.dead(**dead_criteria(visit))


PAGE = Page(name="dead", path="/dead", title="Dead", read=read, place=40)
ACTIONS = (
    PageAction(
        name="dead-retry",
        path="/dead/retry",
        right=Right.RETRY,
        ask=partial(
            _ask,
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
            _ask,
            verb="Delete",
            text="They are deleted for ever, with their arguments and errors.",
            destroys=True,
        ),
        do=_purge,
        under="dead",
    ),
)
