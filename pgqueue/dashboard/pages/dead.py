"""The dead jobs by task and error, and one by one; what is done to all that match a filter."""

from functools import partial
from typing import Any, Final

import msgspec

from pgqueue.app.bulk import DeadSelection
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import chosen_filter, dead_criteria, searched, spoken_filter
from pgqueue.dashboard.many import begun, counted, grouped, query
from pgqueue.dashboard.page import Action, Content, Done, Field, Page, Question
from pgqueue.dashboard.visit import Visit
from pgqueue.values.insight.now import ErrorGroup
from pgqueue.values.jobs.job import JobState

SHOWN: Final = 25
GROUPS: Final = 20


def read(visit: Visit) -> Content:
    """The groups, and a page of dead jobs."""
    wanted = chosen_filter(visit)
    errors = visit.queue.insight.errors(queue=wanted.queue, task=wanted.task, limit=GROUPS)
    found = searched(visit, wanted, state=JobState.DEAD, limit=SHOWN)
    return {
        "groups": [_shown(visit, one) for one in errors.groups],
        "counted": errors.jobs,
        "complete": errors.complete,
        **found,
        "filter": wanted,
        "tasks": sorted(visit.queue.tasks),
        "queues": sorted(visit.queue.queues or ()),
    }


def _shown(visit: Visit, group: ErrorGroup) -> ErrorGroup:
    message = visit.redaction.message(visit.chosen, group.last_job, group.message, visit.queue.job)
    return msgspec.structs.replace(group, message=message)


def _ask(visit: Visit, *, verb: str, text: str, destroys: bool, fields: tuple[Field, ...] = ()) -> Question:
    found = visit.redaction.preview(_selected(visit).preview())
    return Question(
        title=f"{verb} {counted(found.count)}?",
        text=text,
        button=verb,
        back=visit.url("dead", **query(visit)),
        destroys=destroys,
        fields=fields,
        facts=(("Which", spoken_filter(visit, "dead jobs")),),
        groups=grouped(found),
        jobs=found.sample,
        possible=found.count > 0,
    )


def _retry(visit: Visit) -> Done:
    chosen, without_key = _selected(visit), bool(visit.field("without_key"))
    return _begun(
        visit,
        lambda progress: chosen.retry(without_key=without_key, by=visit.by, progress=progress),
        "ready again",
    )


def _purge(visit: Visit) -> Done:
    chosen = _selected(visit)
    return _begun(visit, lambda progress: chosen.purge(by=visit.by, progress=progress), "deleted")


def _begun(visit: Visit, run: Any, done: str) -> Done:  # noqa: ANN401 - an operation
    return begun(visit, run, done=done, back=visit.url("dead", **query(visit)))


def _selected(visit: Visit) -> DeadSelection:
    return visit.queue.control.dead(**dead_criteria(visit))


PAGE = Page(name="dead", path="/dead", title="Dead", read=read, place=40)
ACTIONS = (
    Action(
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
    Action(
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
