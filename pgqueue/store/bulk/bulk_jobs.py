"""What an operation does to a portion of its jobs: they are found without a lock, and changed in one transaction.

A job is changed if its row has the version that it had when it was found. So the filter is asked once, and a job that another
transaction has changed or locked, or whose flow it has locked, is left for later. Flows are locked before jobs, as in all
plans. Which jobs match is decided in ``sql/bulk/find.sql``, what happens to one job in :mod:`pgqueue.store.jobs.control`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs import admission, control
from pgqueue.store.jobs.finish import cancel_waiting
from pgqueue.store.jobs.notifications import wake
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.bulk.filter import like
from pgqueue.values.bulk.operation import (
    ASKED,
    DONE,
    BulkAction,
    Operation,
    Retried,
    SkippedJob,
    SkipReason,
    counts_text,
)

LOOKED_AT = 5_000
"""Jobs that one statement reads."""
MOST_LATER = 10_000
"""Locked jobs that are tried again; others are counted as locked at once, so that the operation's row stays small."""


class MatchedJob(NamedTuple):
    """A job that matched.

    Attributes:
        id: which job.
        version: of its row.
        in_flow: whether it is part of a flow.
    """

    id: int
    version: str
    in_flow: bool


class PortionResult(NamedTuple):
    """What became of a portion.

    Attributes:
        counts: how many jobs, by what became of them.
        missed: jobs to try again.
        skipped: jobs to which it was not done.
    """

    counts: Mapping[str, int]
    missed: tuple[int, ...] = ()
    skipped: tuple[SkippedJob, ...] = ()


@plan
def find(
    operation: Operation, *, after: int, up_to: int, ids: Sequence[int] | None = None
) -> Steps[tuple[list[MatchedJob], int | None]]:
    """The jobs to change among the next ones.

    Args:
        operation: what is to be done.
        after: behind this id.
        up_to: up to this id.
        ids: only of these.

    Returns:
        The jobs, and after which id to go on; None: there are no others.
    """
    wanted = operation.filter.ids if ids is None else ids
    params = {**wanted_by(operation), "after": after, "up_to": up_to, "looked": LOOKED_AT}
    if wanted is not None:
        wanted = [one for one in wanted if after < one <= up_to]
        bounds = {"after": wanted[0] - 1, "up_to": wanted[-1]} if wanted else {"up_to": -1}
        params |= {"ids": wanted, **bounds}
    ((last, found, versions, in_flow),) = yield Statement("bulk/find", params)
    return [*map(MatchedJob, found, versions, in_flow)], last


@plan(transaction=True)
def change(
    operation_id: int,
    operation: Operation,
    found: Sequence[MatchedJob],
    *,
    room: int = MOST_LATER,
    now: datetime | None = None,
) -> Steps[PortionResult]:
    """Do an operation to jobs that are as they were when they were found, and write it into the operation's row.

    Args:
        operation_id: of the row.
        operation: what is done.
        found: to which jobs, in the order of their ids.
        room: how many jobs may be tried again later.
        now: the instant; the database's own by default.
    """
    free = yield from _in_free_flows(operation.action, found)
    params = {"ids": numbers([one.id for one in free]), "versions": texts(one.version for one in free)}
    rows = yield Statement("bulk/lock_dead" if operation.action.dead else "bulk/lock", params)
    runs: dict[int, bool] = {row[0]: row[1] for row in rows}
    done = (yield from _ACTS[operation.action](operation, runs, now)) if runs else PortionResult({})
    missed = [one.id for one in found if one.id not in runs]
    left = missed[room:]
    if left:
        done = done._replace(counts={**done.counts, SkipReason.LOCKED: len(left)})
    done = done._replace(missed=tuple(missed[:room]))
    yield from note(operation_id, done, after=found[-1].id, tried=[one.id for one in found])
    return done


@plan
def note(
    operation_id: int,
    changed: PortionResult,
    *,
    after: int = -1,
    tried: Collection[int] = (),
    ends: bool = False,
    now: datetime | None = None,
) -> Steps[None]:
    """Write into an operation's row what was done to a portion of its jobs.

    Args:
        operation_id: of the row.
        changed: what was done.
        after: behind which job it continues; a job before those that were passed changes nothing.
        tried: which jobs need not be tried again, apart from those that were missed.
        ends: whether it has ended.
        now: the instant; the database's own by default.
    """
    params = {
        "operation": operation_id,
        "done": changed.counts.get(DONE, 0) + changed.counts.get(ASKED, 0),
        "counts": counts_text(changed.counts),
        "after": after,
        "tried": numbers([*tried]),
        "missed": numbers(changed.missed),
        "ends": ends,
        "now": now,
    }
    yield Statement("bulk/note", params, returns=False)


def _in_free_flows(action: BulkAction, found: Sequence[MatchedJob]) -> Steps[Sequence[MatchedJob]]:
    """Lock the flows in which something follows, before their jobs: all lock in this order.

    Return the jobs whose flows are free.
    """
    in_flows = {one.id for one in found if one.in_flow}
    if not in_flows or action in {BulkAction.MOVE, BulkAction.REPRIORITISE, BulkAction.PURGE_DEAD}:
        return found
    free, _ = yield from flow_progress.lock_free(jobs=in_flows)
    return [one for one in found if not one.in_flow or one.id in free]


def _cancel(operation: Operation, runs: Mapping[int, bool], now: datetime | None) -> Steps[PortionResult]:  # noqa: ARG001 - as the others
    asked = [job_id for job_id, is_running in runs.items() if is_running]
    waiting = [job_id for job_id, is_running in runs.items() if not is_running]
    if asked:
        yield Statement("bulk/ask", {"ids": numbers(asked)})
    if waiting:
        yield from admission.forget(waiting)
        yield from cancel_waiting(waiting, now=now)
    return PortionResult({DONE: len(waiting), ASKED: len(asked)})


def _move(operation: Operation, runs: Mapping[int, bool], now: datetime | None) -> Steps[PortionResult]:  # noqa: ARG001 - as the others
    yield Statement("bulk/move", {"ids": numbers([*runs]), "to": operation.to}, returns=False)
    yield from wake()
    return PortionResult({DONE: len(runs)})


def _reprioritise(
    operation: Operation,
    runs: Mapping[int, bool],
    now: datetime | None,  # noqa: ARG001 - as the others
) -> Steps[PortionResult]:
    params = {"ids": numbers([*runs]), "priority": operation.priority}
    yield Statement("bulk/reprioritise", params, returns=False)
    yield from wake()
    return PortionResult({DONE: len(runs)})


def _retry(operation: Operation, runs: Mapping[int, bool], now: datetime | None) -> Steps[PortionResult]:
    done = yield from control.retry_dead([*runs], without_key=operation.without_key, now=now)
    return retry_result(done)


def _purge_dead(operation: Operation, runs: Mapping[int, bool], now: datetime | None) -> Steps[PortionResult]:  # noqa: ARG001 - as the others
    return PortionResult({DONE: (yield from control.purge_dead([*runs]))})


def retry_result(done: Retried) -> PortionResult:
    """What a retry of a portion did."""
    skipped = (
        *(SkippedJob(one.id, SkipReason.KEY_HELD, _holder(one.twin)) for one in done.held),
        *(SkippedJob(one, SkipReason.OUT_OF_TURN) for one in done.out_of_turn),
    )
    counts: dict[str, int] = {DONE: len(done)}
    for one in skipped:
        counts[one.why] = counts.get(one.why, 0) + 1
    return PortionResult(counts, skipped=skipped)


def _holder(twin: int | None) -> str:
    return "its unique key was taken" if twin is None else f"live job {twin} has its unique key"


_Act: TypeAlias = Callable[[Operation, Mapping[int, bool], datetime | None], Steps[PortionResult]]
_ACTS: Mapping[BulkAction, _Act] = {
    BulkAction.CANCEL: _cancel,
    BulkAction.MOVE: _move,
    BulkAction.REPRIORITISE: _reprioritise,
    BulkAction.RETRY_DEAD: _retry,
    BulkAction.PURGE_DEAD: _purge_dead,
}


def wanted_by(operation: Operation) -> dict[str, object]:
    """The filter as the statements take it."""
    wanted = operation.filter
    fields = msgspec.structs.asdict(wanted)
    del fields["state"]
    return {
        **fields,
        "ids": None if wanted.ids is None else [*wanted.ids],
        "queue": like(wanted.queue),
        "task": like(wanted.task),
        "states": operation.states and [str(state) for state in operation.states],
        "args": wanted.json("args"),
        "meta": wanted.json("meta"),
        "dead": operation.action.dead,
        "not_queue": operation.to,
        "not_priority": operation.priority,
    }
