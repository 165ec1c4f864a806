"""Operations on many jobs, in short transactions: cancel, purge, move and reprioritise live jobs; retry and delete dead ones.

An operation is a row of ``audit``: who, when, what. It goes through the jobs in the order of their ids, up to the last one
that there was when it began. :func:`find` reads a portion without a lock; :func:`change` does, in one transaction, what is to
be done to up to :data:`AT_ONCE` of them, and writes into the operation's row how many and how far. So a kill at any moment
leaves a row that says what was done, and :func:`run_operation` continues from it.

A job that changed since it was found, or that another transaction has locked (or whose flow it has), is tried again at the
end, up to :data:`ROUNDS` times. If the database refuses a portion, it is halved until the job that it refuses is alone; that one is
counted. Several operations on the same jobs may run at once: each job is changed by one of them.

What is done to a portion is in :mod:`pgqueue.store.bulk.bulk_jobs`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import psycopg

from pgqueue.errors import InvalidOption
from pgqueue.store import audit
from pgqueue.store.arrays import numbers
from pgqueue.store.bulk.bulk_jobs import MOST_LATER, MatchedJob, PortionResult, change, find, note, wanted_by
from pgqueue.store.jobs import control
from pgqueue.store.jobs.control import job_of
from pgqueue.store.jobs.ending import AT_ONCE
from pgqueue.store.jobs.refusals import of_a_row
from pgqueue.store.jobs.sweep import Sweep
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.bulk.operation import (
    BulkAction,
    BulkResult,
    Operation,
    Preview,
    SkippedJob,
    SkipReason,
    TaskCount,
    counts_of,
)
from pgqueue.values.jobs.job import JobState

ROUNDS, PAUSE = 10, 0.5
"""How often jobs that were locked are tried again, and how many seconds before each time."""
SAMPLED = 5
"""Jobs that a preview shows."""


class StoredOperation(NamedTuple):
    """An operation that has a row.

    Attributes:
        id: of that row.
        operation: what is done.
        after: it continues behind this job.
        up_to: and goes up to this one.
        later: jobs before that are to be tried again.
        counts: what was done before.
    """

    id: int
    operation: Operation
    after: int
    up_to: int
    later: tuple[int, ...] = ()
    counts: Mapping[str, int] = {}


TellProgress: TypeAlias = Callable[[BulkResult, PortionResult], object]


@plan
def preview(operation: Operation) -> Steps[Preview]:
    """What an operation would do; it reads all live jobs, or all dead ones."""
    wanted = operation.filter.state and [str(state) for state in operation.filter.state]
    rows = yield Statement("bulk/preview", {**wanted_by(operation), "states": wanted})
    acted = [row for row in rows if not row[3] or operation.action is not BulkAction.CANCEL]
    groups = [TaskCount(row[0], row[1], JobState(row[2]), row[4]) for row in acted]
    states = operation.states
    ids = [row[5] for row in acted if states is None or row[2] in states][:SAMPLED]
    found = (yield Statement("jobs/show", {"ids": numbers(ids)})) if ids else []
    return Preview.of(operation, groups, tuple(job_of(row) for row in found))


@plan
def begin(operation: Operation, *, by: str | None, now: datetime | None = None) -> Steps[StoredOperation]:
    """Write down that an operation begins.

    Args:
        operation: which.
        by: who, for people to read.
        now: the instant; the database's own by default.
    """
    params = {
        "by": by,
        "action": str(operation.action),
        "target": operation.filter.queue or "*",
        "details": operation.details,
        "why": audit.reason(),
        "dead": operation.action.dead,
        "now": now,
    }
    ((number, up_to),) = yield Statement("bulk/begin", params)
    return StoredOperation(number, operation, -1, up_to)


@plan(transaction=True)
def take_up(operation_id: int, *, by: str | None) -> Steps[StoredOperation]:
    """An operation that was interrupted; it is noted who continues it.

    Raises:
        InvalidOption: there is none of this id, or it has ended.
    """
    rows = (yield Statement("bulk/state", {"operation": operation_id})) if control.is_id(operation_id) else []
    if not rows or rows[0][2] is None:
        raise InvalidOption(
            f"operation {operation_id}: there is no such operation; `pgqueue audit list` shows which are unfinished"
        )
    action, details, after, up_to, later, counts, ended_at = rows[0]
    if ended_at is not None:
        raise InvalidOption(f"operation {operation_id} has ended, at {ended_at:%Y-%m-%d %H:%M:%S %Z}")
    yield from audit.note("continue", str(operation_id), by=by)
    return StoredOperation(
        operation_id,
        Operation.recorded(action, details),
        after,
        up_to,
        tuple(later),
        counts_of(counts),
    )


def run_operation(begun: StoredOperation, *, tell: TellProgress) -> Sweep[BulkResult]:
    """Do an operation, from where it stands to its end.

    Args:
        begun: which.
        tell: called after each portion, with the result so far and what became of the portion.
    """
    state = _RunningOperation(begun, tell)
    after: int | None = begun.after
    while after is not None:
        found, after = yield find(begun.operation, after=after, up_to=begun.up_to)
        for start in range(0, len(found), AT_ONCE):
            yield from state.change(found[start : start + AT_ONCE])
    yield from state.again()  # what only changed is decided at once
    for _ in range(ROUNDS):
        if not state.later:
            break
        yield wait(PAUSE)
        yield from state.again()
    left = sorted(state.later)
    yield note(begun.id, PortionResult({SkipReason.LOCKED: len(left)}), tried=left, ends=True)
    state.tell(
        PortionResult(
            {SkipReason.LOCKED: len(left)},
            (),
            tuple(SkippedJob(one, SkipReason.LOCKED) for one in left[:SAMPLED]),
        )
    )
    return state.result


class _RunningOperation:
    def __init__(self, begun: StoredOperation, tell: TellProgress) -> None:
        self._begun = begun
        self._tell = tell
        self.later = {*begun.later}
        self.result = BulkResult.counted(begun.id, begun.operation.action, begun.counts)

    def change(self, found: Sequence[MatchedJob]) -> Sweep[None]:
        """Change jobs; a portion that is refused is halved, until the refused job is alone."""
        portions = [found]
        while portions:
            portion = portions.pop()
            ids = {one.id for one in portion}
            room = MOST_LATER - len(self.later - ids)
            try:
                changed = yield change(self._begun.id, self._begun.operation, portion, room=room)
            except psycopg.Error as refusal:
                if not of_a_row(refusal):
                    raise  # the operation can be continued
                if len(portion) > 1:
                    portions += [portion[len(portion) // 2 :], portion[: len(portion) // 2]]
                    continue
                changed = PortionResult(
                    {SkipReason.REFUSED: 1},
                    (),
                    (SkippedJob(portion[0].id, SkipReason.REFUSED, str(refusal)),),
                )
                yield note(self._begun.id, changed, after=portion[0].id, tried=[*ids])
            self.later = (self.later - ids) | {*changed.missed}
            self.tell(changed)

    def again(self) -> Sweep[None]:
        """Try again the jobs that were locked. A job that does not match any more is left out."""
        ids = sorted(self.later)
        for start in range(0, len(ids), AT_ONCE):
            part = ids[start : start + AT_ONCE]
            found: list[MatchedJob] = []
            after: int | None = part[0] - 1
            while after is not None:
                more, after = yield find(self._begun.operation, after=after, up_to=part[-1], ids=part)
                found += more
            if gone := {*part} - {one.id for one in found}:
                self.later -= gone
                yield note(self._begun.id, PortionResult({}), tried=sorted(gone))
            if found:
                yield from self.change(found)

    def tell(self, changed: PortionResult) -> None:
        self.result = self.result.plus(changed.counts, changed.skipped)
        self._tell(self.result, changed)


@plan
def wait(seconds: float) -> Steps[None]:
    """Let time pass."""
    yield Statement("bulk/wait", {"seconds": seconds})
