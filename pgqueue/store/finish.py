"""Plans that record how attempts ended. All are fenced and all take batches.

Each names ``(id, worker, fence)`` and returns the ids for which that attempt still held its job. Any
other id was superseded: nothing was changed for it, and whoever asked is told so by its absence.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.verdict import Again, Buried, Cancelled, Returned, Succeeded, Unknown, Verdict

V = TypeVar("V", bound=Verdict)


@plan
def finish(
    worker: UUID, verdicts: Sequence[Verdict], *, keep: bool, now: datetime | None = None
) -> Steps[set[int]]:
    """Record a batch of verdicts of any kinds.

    Args:
        worker: whose attempts they were.
        verdicts: what became of them.
        keep: whether succeeded jobs go to the history (a retention of zero keeps none).
        now: the instant to record; the database's own by default.

    Returns:
        The ids that were recorded.
    """
    succeeded = [one for one in verdicts if isinstance(one, Succeeded)]
    done = (yield from complete(worker, succeeded, keep=keep, now=now)) if succeeded else set()
    if len(succeeded) == len(verdicts):
        return done
    if going_back := [one for one in verdicts if isinstance(one, Again | Returned)]:
        done |= yield from put_back(worker, going_back, now=now)
    if buried := [one for one in verdicts if isinstance(one, Buried)]:
        done |= yield from bury(worker, buried, now=now)
    if cancelled := [one for one in verdicts if isinstance(one, Cancelled)]:
        done |= yield from end_cancelled(worker, cancelled, now=now)
    if unknown := [one for one in verdicts if isinstance(one, Unknown)]:
        done |= yield from return_unknown(worker, unknown, now=now)
    return done


@plan(transaction=True)
def finish_unlocked(
    worker: UUID, verdicts: Sequence[Verdict], *, keep: bool
) -> Steps[tuple[set[int], set[int]]]:
    """Record those verdicts whose jobs no other transaction has locked.

    Args:
        worker: whose attempts they were.
        verdicts: what became of them.
        keep: whether succeeded jobs go to the history.

    Returns:
        The ids that were recorded, and those that are locked; the others were superseded.
    """
    rows = yield Statement("unlocked", {"ids": numbers([verdict.claim.id for verdict in verdicts])})
    locked = {row[0] for row in rows if not row[1]}
    free = [verdict for verdict in verdicts if verdict.claim.id not in locked]
    return (yield from finish(worker, free, keep=keep)), locked


@plan
def complete(
    worker: UUID, verdicts: Sequence[Succeeded], *, keep: bool, now: datetime | None = None
) -> Steps[set[int]]:
    """Move succeeded jobs to the history; arguments and result as for :func:`finish`."""
    verdicts = _by_id(verdicts)
    return (
        yield from _fenced(
            "complete",
            worker,
            verdicts,
            now,
            seconds=numbers([verdict.seconds for verdict in verdicts]),
            results=texts(
                None if verdict.result is None else verdict.result.decode() for verdict in verdicts
            ),
            errors=_errors(verdicts) if [one for one in verdicts if one.error is not None] else None,
            keep=keep,
        )
    )


@plan
def put_back(
    worker: UUID, verdicts: Sequence[Again | Returned], *, now: datetime | None = None
) -> Steps[set[int]]:
    """Return jobs to the line or the calendar; those that somebody asked to cancel end instead."""
    verdicts = _by_id(verdicts)
    return (
        yield from _unless_cancelled(
            "put_back",
            worker,
            verdicts,
            now,
            delays=numbers(
                [None if verdict.delay is None else verdict.delay.total_seconds() for verdict in verdicts]
            ),
            refunds=numbers([int(isinstance(verdict, Returned)) for verdict in verdicts]),
        )
    )


@plan
def bury(worker: UUID, verdicts: Sequence[Buried], *, now: datetime | None = None) -> Steps[set[int]]:
    """Move jobs to the dead table; those that somebody asked to cancel end as cancelled instead."""
    verdicts = _by_id(verdicts)
    return (
        yield from _unless_cancelled(
            "bury",
            worker,
            verdicts,
            now,
            seconds=numbers([verdict.seconds for verdict in verdicts]),
            reasons=texts(verdict.reason for verdict in verdicts),
        )
    )


@plan
def return_unknown(
    worker: UUID, verdicts: Sequence[Unknown], *, now: datetime | None = None
) -> Steps[set[int]]:
    """Return jobs whose task the worker does not know; those that have been unknown for too long are dead."""
    verdicts = _by_id(verdicts)
    one = verdicts[0]
    done = yield from _fenced(
        "return_unknown", worker, verdicts, now, delay=one.delay, unknown_after=one.after
    )
    left = [verdict for verdict in verdicts if verdict.claim.id not in done]
    if left:
        done |= yield from end_cancelled(worker, left, now=now, only_requested=True)
    return done


@plan
def end_cancelled(
    worker: UUID,
    verdicts: Sequence[Verdict],
    *,
    now: datetime | None = None,
    only_requested: bool = False,
) -> Steps[set[int]]:
    """End jobs as cancelled; ``only_requested``: those that somebody asked to cancel, the rest left alone."""
    verdicts = _by_id(verdicts)
    return (
        yield from _fenced(
            "cancel_ended", worker, verdicts, now, errors=_errors(verdicts), only_requested=only_requested
        )
    )


def _unless_cancelled(
    name: str, worker: UUID, verdicts: Sequence[Verdict], now: datetime | None, **params: object
) -> Steps[set[int]]:
    """Record failures; what is left over may have been asked to cancel."""
    done = yield from _fenced(name, worker, verdicts, now, errors=_errors(verdicts), **params)
    left = [verdict for verdict in verdicts if verdict.claim.id not in done]
    if left:
        done |= yield from end_cancelled(worker, left, now=now, only_requested=True)
    return done


def _by_id(verdicts: Sequence[V]) -> list[V]:
    """In the order in which the statements can find what belongs to each job by halving."""
    return sorted(verdicts, key=lambda verdict: verdict.claim.id)


def _fenced(
    name: str, worker: UUID, verdicts: Sequence[Verdict], now: datetime | None, **params: object
) -> Steps[set[int]]:
    fences = [verdict.claim.fence for verdict in verdicts]
    rows = yield Statement(
        name,
        {
            "worker": worker,
            "ids": numbers([verdict.claim.id for verdict in verdicts]),
            "fences": numbers(fences),
            # most often all are of one claim: one search less for each job
            "fence": fences[0] if len(set(fences)) == 1 else None,
            "now": now,
            **params,
        },
    )
    return {row[0] for row in rows}


def _errors(verdicts: Iterable[Any]) -> str:
    found = (getattr(verdict, "error", None) for verdict in verdicts)
    return texts(None if error is None else msgspec.json.encode(error).decode() for error in found)
