"""The state of a waiting job after an enqueue with its unique key has replaced or rescheduled it."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import MINUTE, NOON, adding, new_job, shown, taking

from pgqueue.store.jobs import enqueue
from pgqueue.values.jobs.job import JobState, Outcome
from pgqueue.values.jobs.unique import Unique

REPLACE, RESCHEDULE = Unique("replace"), Unique("reschedule")


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which each plan is committed."""
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize("unique", [REPLACE, RESCHEDULE], ids=["replaced", "rescheduled"])
def test_a_ready_job_waits_for_a_later_time_and_is_ready_again_for_an_earlier_one(
    own: psycopg.Connection[Any], unique: Unique
) -> None:
    now, later = (new_job(unique_key="key", unique=unique, run_at=at) for at in (NOON, NOON + MINUTE))
    (job,) = ask(own, adding(now))

    for changed, state in ((later, JobState.SCHEDULED), (now, JobState.READY)):
        assert ask(own, adding(changed)) == [job]
        assert ask(own, shown(job)).state is state


def test_a_ready_job_that_is_replaced_by_a_limited_one_waits_in_its_lane(
    own: psycopg.Connection[Any],
) -> None:
    (job,) = ask(own, adding(new_job(unique_key="key")))
    limited = enqueue.enqueue(new_job(unique_key="key", unique=REPLACE, lane="a key"), now=NOON)

    assert ask(own, limited.in_transaction()).outcome is Outcome.REPLACED
    assert ask(own, shown(job)).state is JobState.BLOCKED
    assert ask(own, taking()) == []
