"""The bookkeeping of what a worker has in hand, without a worker."""

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


def _hand(*job_ids: int) -> Claims:
    """A hand of one slot, which is taken, and these claims waiting."""
    hand = Claims(
        1, context=lambda claim: Context(claim, Database("nowhere"), keep=True), is_plain=lambda _: False
    )
    hand.waiting.extend(map(_claim, job_ids))
    assert hand.reserve() is False
    hand.arrived()
    return hand


def test_a_job_is_known_from_its_claim_until_its_verdict_is_handed_over() -> None:
    """What is not known at a beat is given to others."""
    hand = _hand(1, 2)
    attempt = hand.take(plain=False)
    assert attempt is not None
    assert sorted(hand.known()) == [1, 2]
    hand.settle(attempt, Returned(attempt.claim))
    assert sorted(hand.known()) == [1, 2]
    assert hand.verdicts() == [Returned(attempt.claim)]
    assert hand.known() == [2]


def test_an_attempt_ends_once() -> None:
    hand = _hand(1)
    attempt = hand.take(plain=False)
    assert attempt is not None
    assert hand.settle(attempt, None)
    assert not hand.settle(attempt, Returned(attempt.claim))
    assert (hand.ended, hand.verdicts()) == (1, [])


def test_a_runner_that_finds_nothing_of_its_kind_frees_its_slot() -> None:
    hand = _hand(1)
    assert hand.take(plain=True) is None
    assert hand.taken == 0
