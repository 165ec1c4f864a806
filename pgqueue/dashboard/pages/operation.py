"""An operation on many jobs: how far it is. One that was interrupted is continued here."""

import msgspec

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.many import begin_operation
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction
from pgqueue.dashboard.visit import Visit
from pgqueue.errors import InvalidOption, JobNotFound
from pgqueue.values.bulk.operation import AuditEntry

PATH = "/operations/<int:number>"


def read(visit: Visit, *, number: int) -> Content:
    """An operation."""
    entry = _entry(visit, number)
    shown = msgspec.structs.replace(entry, details=visit.redaction.value(entry.details))
    return {"entry": shown, "runs_here": visit.operations.runs_here(number)}


def _entry(visit: Visit, number: int) -> AuditEntry:
    if number >= (1 << 63) - 1:
        raise JobNotFound(f"the audit has no entry {number}")
    found = visit.queue.insight.audit(before=number + 1, limit=1)
    if not found or found[0].id != number:
        raise JobNotFound(f"the audit has no entry {number}")
    return found[0]


def _ask(visit: Visit, *, number: int) -> ActionQuestion:
    entry = _entry(visit, number)
    goes_on = visit.operations.runs_here(number)
    text = "It goes on with the jobs that are left." if entry.unfinished else "It has ended."
    return ActionQuestion(
        title=f"Continue operation {number}?",
        text="It is being done." if goes_on else text,
        button="Continue",
        back=visit.url("operation", number=number),
        destroys=True,
        facts=(("What", entry.action), ("Begun by", entry.by or "—"), ("Jobs so far", entry.jobs or 0)),
        possible=entry.unfinished and not goes_on,
    )


def _go_on(visit: Visit, *, number: int) -> ActionResult:
    entry = _entry(visit, number)
    right = _rights(entry.action)
    if not visit.can(right):
        raise InvalidOption(f"you do not have the right {right.value!r}, which this operation needs")
    control = visit.queue.control
    return begin_operation(
        visit,
        lambda progress: control.resume_operation(number, by=visit.by, progress=progress),
        done="done",
        back=visit.url("operation", number=number),
    )


def _rights(action: str) -> Right:
    return {
        "cancel": Right.CANCEL,
        "purge": Right.CANCEL,
        "move": Right.MOVE,
        "reprioritise": Right.MOVE,
        "retry_dead": Right.RETRY,
    }.get(action, Right.PURGE)


PAGE = Page(name="operation", path=PATH, title="Operation", read=read, under="audit", every=2)
ACTIONS = (
    PageAction(
        name="operation-continue",
        path=f"{PATH}/continue",
        right=Right.LOOK,
        ask=_ask,
        do=_go_on,
        under="audit",
    ),
)
