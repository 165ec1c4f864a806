"""Reclaiming in several transactions, so that one job which cannot be ended does not stop the others.

A sweep is a generator, one level above a plan: it yields plans, is sent the result of each, and has a refusal of the
database thrown in where it stands (:mod:`pgqueue.store.drive`). Each plan runs in a transaction of its own, on the connection that
the worker, take or test has. Operations on many jobs (:mod:`pgqueue.store.bulk.bulk`) are sweeps, too.

All is done in one transaction unless the database refuses it. Then the lost jobs are ended in batches: a refused batch
is halved, until the failing job is alone in it. That job is ended by a fallback verdict, with the refusal as its error. If
that is refused as well, it is left as it is, logged, and tried again after :data:`PAUSE`.
"""

import logging
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import psycopg

from pgqueue.errors import DatabaseError
from pgqueue.store.plan import Plan, Steps, plan
from pgqueue.store.workers import lost, upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Verdict, as_recorded, fallbacks

log = logging.getLogger("pgqueue.upkeep")

PAUSE = timedelta(minutes=1)
DEFAULT_PARTITION = "job_history_default"
TRIES = 5
"""How often a plan is run again after a deadlock."""

T = TypeVar("T")
States: TypeAlias = dict[int, JobState]
Sweep: TypeAlias = Generator[Plan[Any], Any, T]


class SweepResult(NamedTuple):
    """What became of lost workers' jobs.

    Attributes:
        states: the state that each job is in now.
        verdicts: what the database has recorded of each.
    """

    states: States
    verdicts: list[Verdict]


def reclaim(*, now: datetime | None = None) -> Sweep[SweepResult]:
    """End the claims of lost workers."""
    judged: dict[int, Verdict] = {}

    def judge(one: lost.LostClaim) -> Verdict:
        verdict = judged[one.claim.id] = upkeep.judge_lost(one)
        return verdict

    states: States
    try:
        states = yield upkeep.reclaim(judge=judge, now=now)
    except psycopg.Error as refusal:
        require_answer(refusal)
        log.warning("lost workers' jobs are ended one batch at a time: all at once was refused: %s", refusal)
        states = yield from _sweep_in_batches(judge, now)
    return SweepResult(states, [as_recorded(judged[job_id], state) for job_id, state in states.items()])


def _sweep_in_batches(judge: lost.Judge, now: datetime | None) -> Sweep[States]:
    found: dict[int, UUID] = yield _find_lost(now=now)
    states: States = {}
    refused: set[int] = set()
    batches = [[*found]]
    while batches:
        batch = batches.pop()
        try:
            states |= yield _end_plan(found, batch, judge, now)
        except psycopg.Error as refusal:
            require_answer(refusal)
            if len(batch) > 1:
                batches += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
            elif ended := (yield from _end_by_fallback(found, batch[0], refusal, judge, now)):
                states |= ended
            else:
                refused.add(batch[0])
    yield upkeep.settle(found, states, refused=refused, pause=PAUSE, now=now)
    return states


def missed_partition(error: BaseException) -> bool:
    """Whether the history got the partition of its day while a row was on its way into the default partition.

    Then PostgreSQL refuses the row, as one that violates the bounds of the default partition. The next try finds the new one.
    """
    return isinstance(error, psycopg.errors.CheckViolation) and error.diag.table_name == DEFAULT_PARTITION


def again_after_deadlock(run: Callable[[Plan[T]], T]) -> Callable[[Plan[T]], T]:
    """Run plans, and run one again that PostgreSQL rolled back since it and another transaction waited for each other.

    A plan that ended a job while the day got its partition is run again, too: see :func:`missed_partition`.
    """

    def again(plan: Plan[T]) -> T:
        for _ in range(TRIES):
            try:
                return run(plan)
            except (psycopg.Error, DatabaseError) as error:
                _require_again(error)
        return run(plan)

    return again


def aagain_after_deadlock(run: Callable[[Plan[T]], Awaitable[T]]) -> Callable[[Plan[T]], Awaitable[T]]:
    """As :func:`again_after_deadlock`, awaited."""

    async def again(plan: Plan[T]) -> T:
        for _ in range(TRIES):
            try:
                return await run(plan)
            except (psycopg.Error, DatabaseError) as error:
                _require_again(error)
        return await run(plan)

    return again


def _require_again(error: BaseException) -> None:
    """Raise an error after which another try is of no use."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(cause, psycopg.errors.DeadlockDetected) and not (cause and missed_partition(cause)):
        raise error


def require_answer(error: psycopg.Error) -> None:
    """Raise what the server did not say: then there is no connection left on which to go on."""
    if error.sqlstate is None:
        raise error


@plan(transaction=True)
def _find_lost(*, now: datetime | None) -> Steps[dict[int, UUID]]:
    workers = yield from upkeep.find_lost_workers(now=now)
    return (yield from lost.left_behind(workers)) if workers else {}


def _end_plan(
    found: dict[int, UUID], batch: list[int], judge: lost.Judge, now: datetime | None
) -> Plan[States]:
    return lost.end_all({job_id: found[job_id] for job_id in batch}, judge, now=now)


def _end_by_fallback(
    found: dict[int, UUID], job_id: int, refusal: psycopg.Error, judge: lost.Judge, now: datetime | None
) -> Sweep[States]:
    def fall_back(one: lost.LostClaim) -> Verdict:
        return fallbacks(judge(one), refusal)[0]

    states: States = {}
    try:
        states = yield _end_plan(found, [job_id], fall_back, now)
    except psycopg.Error as again:
        require_answer(again)
        log.error(  # noqa: TRY400 - the refusal says it, where it came from does not
            "a lost worker's job cannot be ended, and is left as it is: %s",
            again,
            extra={"job": job_id, "worker": str(found[job_id])},
        )
    return states
