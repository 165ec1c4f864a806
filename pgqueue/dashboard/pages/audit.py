"""What operators did, and operations on many jobs: how they begin, how far they are, how an interrupted one is continued."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pgqueue.app.bulk import OnProgress
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.audit_words import ACTIONS as WORDS
from pgqueue.dashboard.audit_words import SKIPPED, sentence
from pgqueue.dashboard.filters import read_instant
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction, Visit
from pgqueue.errors import InvalidOption, JobNotFound
from pgqueue.values.bulk.operation import (
    AuditEntry,
    BulkAction,
    BulkResult,
    Preview,
)
from pgqueue.values.workers.lease import duration_text

HEADS = ("Queue", "Task", "State", "Jobs")
SHOWN: Final = 50
PATH = "/operations/<int:number>"


def _read_audit(visit: Visit) -> Content:
    by, action, since, until = (visit.text(name) for name in ("by", "action", "since", "until"))
    found = visit.queue.insight.audit(
        by=by,
        action=action,
        since=read_instant("since", since),
        until=read_instant("until", until),
        before=visit.number("below"),
        limit=SHOWN + 1,
    )
    entries = visit.without_secrets(found[:SHOWN])
    return {
        "entries": entries,
        "sentences": [sentence(one) for one in entries],
        "older": entries[-1].id if len(found) > SHOWN else None,
        "given": {"by": by, "action": action, "since": since, "until": until},
        "actions": sorted(WORDS.items(), key=lambda one: one[1]),
    }


def _read_operation(visit: Visit, *, number: int) -> Content:
    running = visit.operations.running(number)  # before its row: if it ends between them, the row says so
    entry = _entry(visit, number)
    passed, count = sum((entry.counts or {}).values()), visit.number("of")
    count = None if count is None else max(count, passed)
    runs_here = running is not None and entry.unfinished
    return {
        "entry": entry,
        "runs_here": runs_here,
        "passed": passed,
        "count": count,
        "left": running.left(passed, count) if running is not None and runs_here and count else None,
        "sentence": describe_operation(entry),
    }


def _entry(visit: Visit, number: int) -> AuditEntry:
    if number >= (1 << 63) - 1:
        raise JobNotFound(f"the audit has no entry {number}")
    found = visit.queue.insight.audit(before=number + 1, limit=1)
    if not found or found[0].id != number:
        raise JobNotFound(f"the audit has no entry {number}")
    return found[0]


def _ask(visit: Visit, *, number: int) -> ActionQuestion:
    entry = _entry(visit, number)
    goes_on = visit.operations.running(number) is not None
    text = "It continues with the jobs that are left." if entry.unfinished else "It has ended."
    return ActionQuestion(
        title=f"Continue operation {number}?",
        text="It is running." if goes_on else text,
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
        count=visit.number("of"),
    )


def _rights(action: str) -> Right:
    return {
        "cancel": Right.CANCEL,
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
    visit: Visit,
    run: Callable[[OnProgress], BulkResult],
    *,
    done: str,
    back: str,
    count: int | None = None,
) -> ActionResult:
    """Begin an operation: say its result if it ends soon, else show its page.

    Args:
        visit: who asks for it.
        run: does it.
        done: what it does, for the sentence: ``cancelled``.
        back: which page is shown after its end.
        count: how many jobs it is for; None: not known.
    """
    state = visit.operations.run(visit.queue, run)
    if state.result is None:
        return ActionResult("The operation began. The audit shows how far it is.", back)
    if state.ended and state.error is None:
        return ActionResult(describe_result(state.result, done), back, well=not state.result.skipped)
    return ActionResult("", visit.url("operation", number=state.result.operation, of=count))


def describe_operation(entry: AuditEntry) -> str | None:
    """What an operation did and how long it took, in a sentence; None: it has not ended, or is none."""
    if entry.ended_at is None or entry.action not in [*BulkAction]:
        return None
    action, details = BulkAction(entry.action), entry.details or {}
    did = {
        BulkAction.CANCEL: "cancelled",
        BulkAction.MOVE: f"moved into queue {details.get('to')}",
        BulkAction.REPRIORITISE: f"got priority {details.get('priority')}",
        BulkAction.RETRY_DEAD: "ready again",
        BulkAction.PURGE_DEAD: "deleted",
    }[action]
    took = duration_text((entry.ended_at - entry.at).total_seconds())
    return describe_result(BulkResult.counted(entry.id, action, entry.counts or {}), f"{did} in {took}")


def describe_result(result: BulkResult, done: str) -> str:
    """What an operation did, in a sentence."""
    words = [f"{count_text(result.done)} {done}"]
    if result.asked:
        words.append(f"workers asked to stop {result.asked:,}")
    words += [f"{number:,} skipped: {SKIPPED[why]}" for why, number in result.skipped.items()]
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
