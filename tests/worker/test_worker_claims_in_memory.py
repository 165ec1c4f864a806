"""The bookkeeping of a worker's claims, without a worker."""

from datetime import UTC, datetime
from unittest.mock import AsyncMock
from uuid import UUID

from pgqueue import PgQueue
from pgqueue.values.jobs.job import Claim, JobState
from pgqueue.values.jobs.verdict import Returned
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor

WORKER = UUID(int=1)
NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def _claim(job_id: int) -> Claim:
    return Claim(
        job_id, WORKER, 1, 1, 25, 0, "default", "task", "{}", NOON.timestamp(), NOON.timestamp(), 0.0
    )


def _claims(*job_ids: int) -> Claims:
    """One slot, which is taken, and these claims waiting."""
    claims = Claims(1, tasks={}, host=Executor(PgQueue("postgresql://nowhere")))
    claims.waiting.extend(map(_claim, job_ids))
    assert claims.reserve() is False
    claims.coming = False
    return claims


async def test_a_job_is_known_from_its_claim_until_its_verdict_is_recorded() -> None:
    """What is not known at a beat is given to others."""
    claims = _claims(1, 2)
    connection = AsyncMock(spec=WorkerConnection, losses=0)
    completer = Completer(connection, claims, PgQueue("postgresql://nowhere"))
    seen: list[list[int]] = []

    async def record(_: object) -> dict[int, JobState]:
        seen.append(sorted(completer.known()))
        return {1: JobState.READY}

    connection.run.side_effect = record
    attempt = claims.take(plain=False)
    assert attempt is not None
    assert sorted(completer.known()) == [1, 2]
    claims.settle(attempt, Returned(attempt.claim))
    assert claims.verdicts == [Returned(attempt.claim)]
    assert sorted(completer.known()) == [1, 2]
    await completer.run_once()
    assert seen == [[1, 2]]
    assert completer.known() == [2]


def test_an_attempt_ends_once() -> None:
    claims = _claims(1)
    attempt = claims.take(plain=False)
    assert attempt is not None
    assert claims.settle(attempt, None)
    assert not claims.settle(attempt, Returned(attempt.claim))
    assert (claims.ended, claims.verdicts) == (1, [])


def test_a_runner_that_finds_nothing_of_its_kind_frees_its_slot() -> None:
    claims = _claims(1)
    assert claims.take(plain=True) is None
    assert claims.taken == 0
