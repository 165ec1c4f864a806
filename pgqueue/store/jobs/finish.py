"""How jobs end: the one plan that records how attempts ended, and the end of jobs that wait.

Every job that ends does so here: for the worker's completer, takes, ``ctx.transaction()``, the sweeper that took over a
lost worker's jobs, and a cancel of a waiting job. What hangs on the end of a job belongs here.

A batch takes two statements at most; of more than :data:`AT_ONCE` verdicts each portion does. ``sql/jobs/requeue.sql`` returns
jobs that are to run again, and leaves alone those that were asked to cancel; those that wait for a signal or a time are
blocked before (:mod:`pgqueue.store.signals`). ``sql/jobs/end.sql`` ends the others and what was
left alone; it alone decides that a job which was asked to cancel ends as cancelled. Where all of a batch succeeded,
``sql/jobs/complete.sql`` does the same for less.

Each statement names ``(id, worker, fence)``. An attempt that no longer held its job was superseded: nothing is changed
for it, and its job is missing in the result.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Any
from uuid import UUID

from pgqueue.store import signals
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs import admission
from pgqueue.store.jobs.ending import AT_ONCE, States, cancelled, expired, states_of
from pgqueue.store.jobs.notifications import tell_ended
from pgqueue.store.plan import Plan, Row, Statement, Steps, plan
from pgqueue.store.workers.workers import note_unknown_tasks
from pgqueue.values.jobs.job import JobFlags, JobState
from pgqueue.values.jobs.verdict import (
    Again,
    Cancelled,
    Died,
    Returned,
    Succeeded,
    Unknown,
    Verdict,
    Waits,
    given_up,
)
from pgqueue.values.payloads.codec import error_text

OUTCOMES: Mapping[type[Verdict], str] = {
    Succeeded: "succeeded",
    Died: "dead",
    Cancelled: "cancelled",
    Again: "requeued",
    Returned: "requeued",
}
"""What ``sql/jobs/end.sql`` calls a verdict. It ends a job that is to be requeued only if that was asked to cancel."""

_ALL_SUCCEEDED = {Succeeded}
_concern = itemgetter(1)
_id, _result, _error = attrgetter("claim.id"), attrgetter("result"), attrgetter("error")


def finish(
    worker: UUID, verdicts: Sequence[Verdict], *, keep: bool, tell: bool = True, now: datetime | None = None
) -> Plan[States]:
    """Record a batch of verdicts of any kinds. Where one is of a job in a flow, or waits, the plan needs a transaction.

    Args:
        worker: whose attempts they were.
        verdicts: what became of them.
        keep: whether succeeded jobs go to the history (a retention of zero keeps none).
        tell: whether idle workers are notified of jobs that are ready again; else the worker itself looks for them at once.
        now: the instant to record; the database's own by default.

    Returns:
        The state that each job is in now; a job that is missing was superseded.
    """
    done = record(worker, verdicts, keep=keep, tell=tell, now=now)
    return done.in_transaction() if any_in_flow(verdicts) or Waits in map(type, verdicts) else done


def any_in_flow(verdicts: Iterable[Verdict]) -> bool:
    """Whether one of them is on a job of a flow."""
    return any(flags & JobFlags.FLOW for flags in {one.claim.flags for one in verdicts} if flags)


def is_in_flow(verdict: Verdict) -> bool:
    """Whether it is a verdict on a job of a flow."""
    return bool((verdict.claim.flags or 0) & JobFlags.FLOW)


@plan
def record(
    worker: UUID, verdicts: Sequence[Verdict], *, keep: bool, tell: bool = True, now: datetime | None = None
) -> Steps[States]:
    """What :func:`finish` returns, in a transaction or not."""
    if len(verdicts) > AT_ONCE:
        return (yield from _in_portions(worker, verdicts, keep=keep, tell=tell, now=now))
    if {*map(type, verdicts)} == _ALL_SUCCEEDED:
        return (yield from _complete(worker, verdicts, keep=keep, now=now))
    states: States = {}
    if waiting := [one for one in verdicts if isinstance(one, Waits)]:
        states |= yield from _block(worker, waiting, now=now)
        verdicts = [_back_to_line(one) for one in verdicts if one.claim.id not in states]
    if going_back := [one for one in verdicts if isinstance(one, Again | Returned | Unknown)]:
        states |= yield from _requeue(worker, going_back, tell=tell, now=now)
    if ending := [one for one in verdicts if one.claim.id not in states]:
        states |= yield from _end(worker, ending, keep=keep, now=now)
    return states


@plan(transaction=True)
def finish_unlocked(
    worker: UUID, verdicts: Sequence[Verdict], *, keep: bool
) -> Steps[tuple[States, set[int]]]:
    """Record those verdicts whose jobs, and whose flows, no other transaction has locked.

    Args:
        worker: whose attempts they were.
        verdicts: what became of them.
        keep: whether succeeded jobs go to the history.

    Returns:
        What :func:`finish` returns, and the ids that are locked; the others were superseded.
    """
    rows = yield Statement("jobs/unlocked", {"ids": numbers([verdict.claim.id for verdict in verdicts])})
    locked = {row[0] for row in rows if not row[1]}
    if in_flows := {one.claim.id for one in verdicts if is_in_flow(one)} - locked:
        locked |= in_flows - (yield from flow_progress.lock_free(jobs=in_flows))[0]
    free = [verdict for verdict in verdicts if verdict.claim.id not in locked]
    return (yield from finish(worker, free, keep=keep)), locked


def _in_portions(
    worker: UUID, verdicts: Sequence[Verdict], *, keep: bool, tell: bool, now: datetime | None
) -> Steps[States]:
    verdicts = sorted(verdicts, key=_id)
    states: States = {}
    for start in range(0, len(verdicts), AT_ONCE):
        part = verdicts[start : start + AT_ONCE]
        states |= yield from record(worker, part, keep=keep, tell=tell, now=now)
    return states


@plan(transaction=True)
def cancel_waiting(job_ids: Sequence[int], *, now: datetime | None = None) -> Steps[States]:
    """End jobs as cancelled that no worker has; those that run are left alone, and are missing in the result."""
    rows = yield from cancelled(job_ids, now=now)
    yield from _settle(rows, {}, now=now)
    return states_of(rows)


@plan(transaction=True)
def expire(*, limit: int = AT_ONCE, but: Sequence[int] = (), now: datetime | None = None) -> Steps[States]:
    """End jobs as dead that were to be started by now and that no worker has.

    Args:
        limit: at most how many. If this number of jobs was ended, there may be more.
        but: jobs to leave alone.
        now: the instant; the database's own by default.
    """
    found = yield Statement("jobs/expired", {"now": now, "limit": limit, "but": numbers(but)})
    if not found:
        return {}
    yield from admission.forget([row[0] for row in found if row[1]])
    rows = yield from expired({row[0]: row[2] for row in found}, now=now)
    yield from _settle(rows, {}, now=now)
    return states_of(rows)


@plan
def first_expired(*, but: Sequence[int] = (), now: datetime | None = None) -> Steps[list[int]]:
    """The job that :func:`expire` would end first, if there is one."""
    return [
        row[0] for row in (yield Statement("jobs/expired", {"now": now, "limit": 1, "but": numbers(but)}))
    ]


def _complete(worker: UUID, verdicts: Sequence[Any], *, keep: bool, now: datetime | None) -> Steps[States]:
    verdicts = sorted(verdicts, key=_id)
    returned = any(map(_result, verdicts))
    rows = yield Statement(
        "jobs/complete",
        {
            **_fenced_parameters(worker, verdicts, now),
            "seconds": numbers([one.seconds for one in verdicts]),
            "results": texts(map(_text, verdicts)) if returned else None,
            "errors": _errors(verdicts) if any(map(_error, verdicts)) else None,
            "keep": keep,
        },
    )
    if any(map(_concern, rows)):
        ended = [(job_id, JobState.SUCCEEDED, concern) for job_id, concern in rows]
        yield from _settle(ended, _results(verdicts) if returned else {}, now=now)
    return dict.fromkeys([row[0] for row in rows], JobState.SUCCEEDED)


def _block(worker: UUID, verdicts: Sequence[Waits], *, now: datetime | None) -> Steps[States]:
    """Block jobs that wait. A job that is missing in the answer has its signal already, or ends instead."""
    verdicts = sorted(verdicts, key=_id)
    return (
        yield from signals.wait(_fenced_parameters(worker, verdicts, now), [one.awaited for one in verdicts])
    )


def _back_to_line(verdict: Verdict) -> Verdict:
    # The job goes back to its queue: its next attempt gets the signal.
    return Returned(verdict.claim) if isinstance(verdict, Waits) else verdict


def _requeue(
    worker: UUID, verdicts: Sequence[Again | Returned | Unknown], *, tell: bool, now: datetime | None
) -> Steps[States]:
    verdicts = sorted(verdicts, key=_id)
    if unknown := {(one.claim.queue, one.claim.task) for one in verdicts if isinstance(one, Unknown)}:
        yield from note_unknown_tasks(worker, sorted(unknown), now=now)
    afters = [one.after if isinstance(one, Unknown) else None for one in verdicts]
    rows = yield Statement(
        "jobs/requeue",
        {
            **_fenced_parameters(worker, verdicts, now),
            "delays": _spans(one.delay or None for one in verdicts),  # without a delay it keeps its place
            "refunds": numbers([int(not one.spends) for one in verdicts]),
            "errors": _errors(verdicts),
            "unknown_afters": _spans(afters) if unknown else None,
            "tell": tell or bool(unknown),
        },
    )
    return states_of(rows)


def _end(worker: UUID, verdicts: Sequence[Verdict], *, keep: bool, now: datetime | None) -> Steps[States]:
    # A job of a task that no worker knows, and that was not requeued, is dead.
    known = [given_up(one) if isinstance(one, Unknown) else one for one in sorted(verdicts, key=_id)]
    rows = yield Statement(
        "jobs/end",
        {
            **_fenced_parameters(worker, known, now),
            "outcomes": texts(OUTCOMES[type(one)] for one in known),
            "seconds": numbers([getattr(one, "seconds", None) for one in known]),
            "reasons": texts(getattr(one, "reason", None) for one in known),
            "errors": _errors(known),
            "results": texts(_text(one) for one in known),
            "keep": keep,
        },
    )
    skipped = {one.claim.id for one in known if isinstance(one, Cancelled) and one.skipped}
    yield from _settle(rows, _results(known), skipped=skipped, now=now)
    return states_of(rows)


def _settle(
    rows: Sequence[Row],
    results: Mapping[int, str],
    *,
    skipped: Collection[int] = (),
    now: datetime | None,
) -> Steps[None]:
    """Do what the ends of these jobs mean for other jobs.

    ``rows``: the id, the state and the flags of each job that has ended. ``results``: what they returned, as it is stored.
    ``skipped``: those that a condition of their flow kept from running.
    """
    if in_flows := [row for row in rows if row[2] and row[2] & JobFlags.FLOW]:
        yield from flow_progress.ended(in_flows, results, skipped=skipped, now=now)
    yield from tell_ended(rows)


def _results(verdicts: Iterable[Verdict]) -> dict[int, str]:
    return {one.claim.id: text for one in verdicts if (text := _text(one)) is not None}


def _fenced_parameters(worker: UUID, verdicts: Sequence[Verdict], now: datetime | None) -> dict[str, object]:
    """Return what all statements take. The verdicts are sorted by job id: statements find what belongs to a job by halving."""
    fences = [one.claim.fence for one in verdicts]
    return {
        "worker": worker,
        "ids": numbers([one.claim.id for one in verdicts]),
        "fences": numbers(fences),
        # most often all are of one claim: one search less for each job
        "fence": fences[0] if len({*fences}) == 1 else None,
        "now": now,
    }


def _spans(values: Iterable[timedelta | None]) -> str:
    return numbers([None if value is None else value.total_seconds() for value in values])


def _text(verdict: Verdict) -> str | None:
    result = getattr(verdict, "result", None)
    return None if result is None else result.decode()


def _errors(verdicts: Iterable[Verdict]) -> str:
    found = (getattr(verdict, "error", None) for verdict in verdicts)
    return texts(None if error is None else error_text(error) for error in found)
