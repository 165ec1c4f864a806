"""Plans that end the claims of lost workers, which no attempt will end.

The jobs are taken over: their rows are locked, so that the attempt of the lost worker cannot record anything meanwhile, and are
returned as claims. Pure rules judge them (:func:`pgqueue.values.jobs.verdict.lost_verdict`), and the plan that ends every attempt,
:func:`pgqueue.store.jobs.finish.finish`, ends them.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TypeAlias
from uuid import UUID

import msgspec

from pgqueue.store.arrays import numbers
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.finish import finish
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import Claim, JobFlags
from pgqueue.values.jobs.verdict import Verdict

AT_ONCE = 500
"""How many jobs are taken over and ended with one set of statements."""


class LostClaim(msgspec.Struct, frozen=True):
    """A job whose row is locked, to be ended in this transaction.

    Attributes:
        claim: the lost attempt; without the arguments, and with times that Python can read.
        seconds: since it was claimed.
        crashed: whether the attempt counts as one that ended with its worker.
        memory: the worker's, in bytes, at its last heartbeat; None: not known.
    """

    claim: Claim
    seconds: float
    crashed: bool = False
    memory: int | None = None


Judge: TypeAlias = Callable[[LostClaim], Verdict]


@plan(transaction=True)
def left_behind(workers: Sequence[UUID]) -> Steps[dict[int, UUID]]:
    """The running jobs in the names of these workers, and in whose.

    It reads the jobs from end to end.
    """
    yield Statement("connections/allow_full_reads", {})
    rows = yield Statement("workers/lost_jobs", {"workers": [*workers]})
    return dict(rows)


@plan(transaction=True)
def end_all(found: dict[int, UUID], judge: Judge, *, now: datetime | None = None) -> Steps[States]:
    """End jobs that were left behind, :data:`AT_ONCE` at a time; for the arguments see :func:`end`."""
    states: States = {}
    ids = list(found)
    for start in range(0, len(ids), AT_ONCE):
        batch = {job_id: found[job_id] for job_id in ids[start : start + AT_ONCE]}
        states |= yield from end(batch, judge, now=now)
    return states


@plan(transaction=True)
def end(found: dict[int, UUID], judge: Judge, *, now: datetime | None = None) -> Steps[States]:
    """End jobs that were left behind.

    Args:
        found: their ids, and in whose name they are.
        judge: what becomes of each.
        now: the instant to record; the database's own by default.

    Returns:
        The state that each is in now. A job that has ended, or that another transaction has locked, or its flow, is left out.
    """
    workers = [*set(found.values())]
    rows = yield Statement("workers/take_over", {"ids": numbers([*found]), "workers": workers, "now": now})
    taken = [LostClaim(Claim(*row[:-3]), *row[-3:]) for row in rows]
    if in_flows := {one.claim.id for one in taken if JobFlags.FLOW & (one.claim.flags or 0)}:
        free = (yield from flow_progress.lock_free(jobs=in_flows))[0]
        taken = [one for one in taken if one.claim.id in free or one.claim.id not in in_flows]
    if suspects := [one.claim.id for one in taken if not JobFlags.SUSPECT & (one.claim.flags or 0)]:
        yield Statement("crashes/suspect", {"ids": numbers(suspects)}, returns=False)
    states: States = {}
    for worker, some in _by_worker(taken):
        states |= yield from finish(worker, [judge(one) for one in some], keep=True, now=now)
    return states


def _by_worker(taken: list[LostClaim]) -> Iterator[tuple[UUID, list[LostClaim]]]:
    taken.sort(key=lambda one: one.claim.worker_id)
    for worker, some in groupby(taken, key=lambda one: one.claim.worker_id):
        yield worker, list(some)
