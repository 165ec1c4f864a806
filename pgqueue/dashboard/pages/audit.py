"""What operators did, and operations on many jobs: how they begin, how far they are, how an interrupted one is continued."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pgqueue.app.bulk import OnProgress
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction, Visit
from pgqueue.errors import InvalidOption, JobNotFound
from pgqueue.values.bulk.operation import AuditEntry, BulkResult, Preview, SkipReason

WHY = {
    SkipReason.LOCKED: "locked by another transaction",
    SkipReason.KEY_HELD: "a live job has their unique key",
    SkipReason.OUT_OF_TURN: "another flow of their key is active",
    SkipReason.REFUSED: "refused by the database",
}
HEADS = ("Queue", "Task", "State", "Jobs")
SHOWN: Final = 50
PATH = "/operations/<int:number>"


def _read_audit(visit: Visit) -> Content:
    found = visit.queue.insight.audit(before=visit.number("below"), limit=SHOWN + 1)
    entries = [
        msgspec.structs.replace(one, details=visit.redaction.value(one.details)) for one in found[:SHOWN]
    ]
    return {"entries": entries, "older": entries[-1].id if len(found) > SHOWN else None}


def _read_operation(visit: Visit, *, number: int) -> Content:
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


def query(visit: Visit) -> dict[str, Any]:
    """The parameters of the address, to go on with them."""
    return visit.request.args.to_dict(flat=False)


def count_text(jobs: int) -> str:
    """Like ``1,200 jobs``."""
    return f"{jobs:,} job{'' if jobs == 1 else 's'}"


def preview_table(preview: Preview) -> tuple[Sequence[str], Sequence[Sequence[object]]] | None:
    """A preview as a table."""
    rows = [(one.queue, one.task, str(one.state), one.count) for one in preview.groups]
    return (HEADS, rows) if rows else None


def begin_operation(
    visit: Visit, run: Callable[[OnProgress], BulkResult], *, done: str, back: str
) -> ActionResult:
    """Begin an operation: say its result if it ends soon, else show its page.

    Args:
        visit: who asks for it.
        run: does it.
        done: what it does, for the sentence: ``cancelled``.
        back: which page is shown after its end.
    """
    state = visit.operations.run(visit.queue, run)
    if state.result is None:
        return ActionResult("The operation began. The audit shows how far it is.", back)
    if state.ended and state.error is None:
        return ActionResult(describe_result(state.result, done), back, well=not state.result.skipped)
    return ActionResult("The operation goes on.", visit.url("operation", number=state.result.operation))


def describe_result(result: BulkResult, done: str) -> str:
    """What an operation did, in a sentence."""
    words = [f"{count_text(result.done)} {done}"]
    if result.asked:
        words.append(f"workers asked to stop {result.asked:,}")
    words += [f"{number:,} skipped: {WHY[why]}" for why, number in result.skipped.items()]
    return "; ".join(words) + "."


PAGES = (
    Page(name="audit", path="/audit", title="Audit", read=_read_audit, place=90, every=10),
    Page(name="operation", path=PATH, title="Operation", read=_read_operation, under="audit", every=2),
)
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
