"""The bookkeeping of a worker's claims, without a worker."""

from datetime import UTC, datetime
from uuid import UUID

from pgqueue.app.context import Context
from pgqueue.store.database import Database
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Returned
from pgqueue.worker.claims import Claims

WORKER = UUID(int=1)
NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def _claim(job_id: int) -> Claim:
    return Claim(job_id, WORKER, 1, 1, 25, 0, "default", "task", "{}", NOON, NOON, 0.0)


def _claims(*job_ids: int) -> Claims:
    """One slot, which is taken, and these claims waiting."""
    claims = Claims(1, tasks={}, context=lambda claim: Context(claim, Database("nowhere"), keep=True))
    claims.waiting.extend(map(_claim, job_ids))
    assert claims.reserve() is False
    claims.coming = False
    return claims


def test_a_job_is_known_from_its_claim_until_its_verdict_is_handed_over() -> None:
    """What is not known at a beat is given to others."""
    claims = _claims(1, 2)
    attempt = claims.take(plain=False)
    assert attempt is not None
    assert sorted(claims.known()) == [1, 2]
    claims.settle(attempt, Returned(attempt.claim))
    assert sorted(claims.known()) == [1, 2]
    assert claims.verdicts() == [Returned(attempt.claim)]
    assert claims.known() == [2]


def test_an_attempt_ends_once() -> None:
    claims = _claims(1)
    attempt = claims.take(plain=False)
    assert attempt is not None
    assert claims.settle(attempt, None)
    assert not claims.settle(attempt, Returned(attempt.claim))
    assert (claims.ended, claims.verdicts()) == (1, [])


def test_a_runner_that_finds_nothing_of_its_kind_frees_its_slot() -> None:
    claims = _claims(1)
    assert claims.take(plain=True) is None
    assert claims.taken == 0
