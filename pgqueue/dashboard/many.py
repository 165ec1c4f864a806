"""What the actions on many jobs share: how a preview is shown, how an operation begins, and what is said of its result."""

from collections.abc import Callable, Sequence
from typing import Any

from pgqueue.app.bulk import OnProgress
from pgqueue.dashboard.page import ActionResult
from pgqueue.dashboard.visit import Visit
from pgqueue.values.bulk.operation import BulkResult, Preview, SkipReason

WHY = {
    SkipReason.LOCKED: "locked by another transaction",
    SkipReason.KEY_HELD: "a live job has their unique key",
    SkipReason.UNREADABLE: "arguments that cannot be read",
    SkipReason.OUT_OF_TURN: "another flow of their key is active",
    SkipReason.REFUSED: "refused by the database",
}
HEADS = ("Queue", "Task", "State", "Jobs")


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
