"""What is done to jobs of a list: to all that match its filter, or to those whose boxes are checked.

An action first counts what it would be done to. On all jobs of a kind, or on more than :data:`LARGE`, a person types that number.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pgqueue.app.bulk import DeadSelection, LiveSelection, OnProgress
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import NAMES, chosen_ids, dead_criteria, live_criteria, spoken_filter
from pgqueue.dashboard.job_lists import PLACES
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Field, PageAction, Visit
from pgqueue.dashboard.pages.audit import begin_operation, count_text, preview_table
from pgqueue.errors import InvalidOption
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import BulkAction, BulkResult, Preview
from pgqueue.values.jobs.job import Job, JobState

LARGE: Final = 1_000
"""Jobs. Before an action on more than these the number is typed."""
GROWN: Final = 1.1
"""From this many times the number that was typed on, the number is asked for again: jobs have come since."""
SAMPLED: Final = 5
LISTED: Final = "list"
"""The parameter that names the list from which the person came, where it is not the action's own."""
_PRIORITY: Final = re.compile(r"[+-]?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"[0-9][0-9,. ]{0,19}", re.ASCII)


def _ask(visit: Visit, *, action: BulkAction, **asked: Any) -> ActionQuestion:  # noqa: ANN401 - as for _question
    if chosen_ids(visit) == []:
        return _nothing_chosen(visit, _page(action), asked["verb"])
    selection = _selection(visit, action)
    found = _preview(selection, action)
    alone = [("Running, left alone", f"{found.left_alone:,}")] if found.left_alone else []
    return _question(
        visit,
        found.count,
        _page(action),
        *alone,
        *_left_out(visit, found.count + found.left_alone),
        groups=preview_table(found),
        jobs=found.sample,
        number=_needs_number(found, selection),
        **asked,
    )


def _question(
    visit: Visit,
    count: int,
    page: str,
    *facts: tuple[str, object],
    verb: str,
    text: str,
    destroys: bool,
    fields: tuple[Field, ...] = (),
    groups: Any = None,  # noqa: ANN401 - as in ActionQuestion
    jobs: Sequence[Job] = (),
    number: bool = False,
) -> ActionQuestion:
    return ActionQuestion(
        title=f"{verb} {count_text(count)}?",
        text=text,
        button=verb,
        back=_back(visit, page),
        destroys=destroys,
        fields=(*fields, *(_number_fields(count) if number else ())),
        facts=(("Which", spoken_filter(visit, "dead jobs" if page == "dead" else "live jobs")), *facts),
        groups=groups,
        jobs=jobs,
        possible=count > 0,
    )


def _nothing_chosen(visit: Visit, page: str, verb: str) -> ActionQuestion:
    return ActionQuestion(
        title=f"{verb} which jobs?",
        text="No job was chosen: check the boxes of the jobs that you mean.",
        button=verb,
        back=_back(visit, page),
        possible=False,
    )


def _left_out(visit: Visit, count: int) -> list[tuple[str, object]]:
    ids = chosen_ids(visit) or []
    return [("Chosen, but in another state", f"{len(ids) - count:,}")] if len(ids) > count else []


def _number_fields(count: int) -> tuple[Field, ...]:
    return (
        Field(name="asked", label="", kind="hidden", value=str(count)),
        Field(name="number", label=f"Type {count:,} to confirm", hint="the number of jobs", required=True),
    )


def _needs_number(found: Preview, selection: LiveSelection | DeadSelection) -> bool:
    return found.count > LARGE or (selection.filter == JobFilter() and found.count > 0)


def _check_number(visit: Visit, selection: LiveSelection | DeadSelection, action: BulkAction) -> int:
    """How many jobs the action is for.

    Raises:
        InvalidOption: their number has to be typed, and was not.
    """
    found = _preview(selection, action)
    if not _needs_number(found, selection):
        return found.count
    asked, typed = visit.field("asked"), visit.field("number")
    if not (asked.isascii() and asked.isdigit() and _NUMBER.fullmatch(typed)):
        raise InvalidOption(f"type how many jobs it is done to: {found.count:,}")
    if int(re.sub("[,. ]", "", typed)) != int(asked[:19]):
        raise InvalidOption(f"{typed} is not the number of jobs: type {found.count:,}")
    if found.count > GROWN * int(asked[:19]):
        raise InvalidOption(f"there are {found.count:,} jobs now: type this number")
    return found.count


def _do(visit: Visit, *, action: BulkAction, done: str) -> ActionResult:
    _refuse_nothing(visit)
    selection, given = _selection(visit, action), _form_values(visit, action)
    count = _check_number(visit, selection, action)

    def run(progress: OnProgress) -> BulkResult:
        verb = getattr(selection, _VERBS[action])
        result: BulkResult = verb(**given, by=visit.by, progress=progress)
        return result

    return begin_operation(visit, run, done=done, back=_back(visit, _page(action)), count=count)


_VERBS: Final = {
    BulkAction.CANCEL: "cancel",
    BulkAction.MOVE: "move",
    BulkAction.REPRIORITISE: "reprioritise",
    BulkAction.RETRY_DEAD: "retry",
    BulkAction.PURGE_DEAD: "purge",
}


def _refuse_nothing(visit: Visit) -> None:
    if chosen_ids(visit) == []:
        raise InvalidOption("no job was chosen")


def _preview(selection: LiveSelection | DeadSelection, action: BulkAction) -> Preview:
    return selection.preview(action) if isinstance(selection, LiveSelection) else selection.preview()


def _selection(visit: Visit, action: BulkAction) -> LiveSelection | DeadSelection:
    if action.dead:
        return visit.queue.control.dead(**dead_criteria(visit))
    return visit.queue.control.jobs(**live_criteria(visit))


def _page(action: BulkAction) -> str:
    return "dead" if action.dead else "jobs"


def _back(visit: Visit, page: str) -> str:
    """The list from which the person came, with its filter."""
    args = visit.request.args
    kept = {name: args.getlist(name) for name in (*NAMES, *PLACES) if name in args}
    return visit.url("jobs" if args.get(LISTED) == "jobs" else page, **kept)


def _form_values(visit: Visit, action: BulkAction) -> dict[str, Any]:
    match action:
        case BulkAction.MOVE:
            return {"to": visit.field("to")}
        case BulkAction.RETRY_DEAD:
            return {"without_key": bool(visit.field("without_key"))}
        case BulkAction.REPRIORITISE:
            typed = visit.field("priority")
            if not _PRIORITY.fullmatch(typed):
                raise InvalidOption("priority: give a whole number, -100…100")
            return {"priority": int(typed)}
        case _:
            return {}


def _ask_run(visit: Visit) -> ActionQuestion:
    if not chosen_ids(visit):
        return _nothing_chosen(visit, "jobs", "Run")
    jobs = _scheduled(visit)
    return _question(
        visit,
        len(jobs),
        "jobs",
        *_left_out(visit, len(jobs)),
        verb="Run now",
        text="They become ready at once, before their time.",
        destroys=False,
        jobs=jobs[:SAMPLED],
    )


def _run(visit: Visit) -> ActionResult:
    if not chosen_ids(visit):
        raise InvalidOption("no job was chosen")
    done = sum(visit.queue.control.run_now(job.id, by=visit.by) for job in _scheduled(visit))
    return ActionResult(f"{count_text(done)} ready.", _back(visit, "jobs"), well=bool(done))


def _scheduled(visit: Visit) -> Sequence[Job]:
    ids = chosen_ids(visit) or []
    return visit.queue.insight.search(ids=ids, state=JobState.SCHEDULED, limit=max(1, len(ids))).jobs


def _action(
    action: BulkAction,
    right: Right,
    done: str,
    *,
    name: str,
    path: str,
    **asked: Any,  # noqa: ANN401 - as for _question
) -> PageAction:
    return PageAction(
        name=name,
        path=path,
        right=right,
        ask=partial(_ask, action=action, **asked),
        do=partial(_do, action=action, done=done),
        under=_page(action),
    )


ACTIONS = (
    _action(
        BulkAction.CANCEL,
        Right.CANCEL,
        "cancelled",
        name="jobs-cancel",
        path="/jobs/cancel",
        verb="Cancel",
        text="Waiting jobs end at once, and their flows with them. Workers are asked to stop running ones.",
        destroys=True,
    ),
    _action(
        BulkAction.MOVE,
        Right.MOVE,
        "moved",
        name="jobs-move",
        path="/jobs/move",
        verb="Move",
        text="Waiting jobs go into another queue. Running ones stay.",
        destroys=False,
        fields=(Field(name="to", label="Into queue", required=True),),
    ),
    _action(
        BulkAction.REPRIORITISE,
        Right.MOVE,
        "got their priority",
        name="jobs-reprioritise",
        path="/jobs/reprioritise",
        verb="Reprioritise",
        text="Waiting jobs get another priority. Running ones keep theirs.",
        destroys=False,
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
    PageAction(name="jobs-run", path="/jobs/run", right=Right.RETRY, ask=_ask_run, do=_run, under="jobs"),
    _action(
        BulkAction.RETRY_DEAD,
        Right.RETRY,
        "ready again",
        name="dead-retry",
        path="/dead/retry",
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
    _action(
        BulkAction.PURGE_DEAD,
        Right.PURGE,
        "deleted",
        name="dead-purge",
        path="/dead/purge",
        verb="Delete",
        text="They are deleted for ever, with their arguments and errors.",
        destroys=True,
    ),
)
