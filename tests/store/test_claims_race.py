"""Claims among many workers: what others hold is skipped, never waited for, and no job is claimed twice."""

from collections import Counter
from functools import partial
from typing import Any

import psycopg
from store.crowd import ask, asking, at_once
from store.samples import LEASE, MINUTE, NOON, SECOND, adding, new_job, running, shown, taking, verdicts_on

from pgqueue.store import claim, finish, upkeep
from pgqueue.values.job import Claim, JobState

WORKERS = 6


def test_no_job_is_claimed_twice_however_many_claim_at_once(dsn: str) -> None:
    jobs = 300
    with psycopg.connect(dsn) as connection:
        ask(connection, adding(*[new_job()] * jobs))

    def drain(own: psycopg.Connection[Any]) -> list[Claim]:
        claims: list[Claim] = []
        own.autocommit = True
        while taken := ask(own, taking(count=7)):
            claims += taken
        return claims

    claims = [one for taken in at_once(dsn, *[drain] * WORKERS) for one in taken]

    assert len(claims) == len({one.id for one in claims}) == jobs
    assert {one.attempt for one in claims} == {1}


def test_what_another_claim_has_locked_is_skipped_for_the_next_in_line(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    first, second, third = ask(connection, adding(new_job(), new_job(), new_job()))
    connection.commit()
    ask(connection, taking(count=1))
    with psycopg.connect(dsn, options="-c lock_timeout=1s") as other:
        taken = ask(other, taking(count=1))
        rest = ask(other, taking())

    assert [one.id for one in (*taken, *rest)] == [second, third]
    connection.rollback()
    assert [one.id for one in ask(connection, taking())] == [first]


def test_whoever_promotes_or_reclaims_skips_what_another_does(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    later = NOON + MINUTE + LEASE
    taken = ask(connection, running())
    (scheduled,) = ask(connection, adding(new_job(delay=MINUTE)))
    connection.commit()
    assert ask(connection, upkeep.promote(now=later)).count == 1
    assert ask(connection, upkeep.reclaim(now=later)) == {taken.id: JobState.READY}

    with psycopg.connect(dsn, options="-c lock_timeout=1s") as other:
        assert ask(other, upkeep.promote(now=later)).count == 0
        assert ask(other, upkeep.reclaim(now=later)) == {}

    connection.commit()
    assert ask(connection, shown(scheduled)).state is JobState.READY


def test_whoever_reclaims_skips_jobs_that_another_reclaims(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    taken = ask(connection, running())
    ask(connection, claim.leave(taken.worker_id))
    connection.commit()
    assert ask(connection, upkeep.reclaim(now=NOON)) == {taken.id: JobState.READY}

    with psycopg.connect(dsn, options="-c lock_timeout=1s") as other:
        assert ask(other, upkeep.reclaim(now=NOON)) == {}


def test_of_a_renewal_and_an_expiry_at_once_exactly_one_wins(dsn: str) -> None:
    """A worker that is told its lease is lost has lost every claim; one that is not has kept them all."""
    with psycopg.connect(dsn) as connection:
        for _ in range(20):
            taken = ask(connection, running())
            connection.commit()
            late = NOON + LEASE + SECOND
            renewed, reclaimed = at_once(
                dsn,
                asking(partial(claim.renew, taken.worker_id, LEASE, now=late)),
                asking(partial(upkeep.reclaim, now=late)),
            )

            assert reclaimed == ({} if renewed else {taken.id: JobState.READY})
            state = JobState.RUNNING if renewed else JobState.READY
            assert ask(connection, shown(taken.id)).state is state
            connection.execute("delete from pgqueue.jobs")
            connection.commit()


def test_of_two_ends_of_one_attempt_exactly_one_is_recorded(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for sort in ("buried", "again", "returned", "cancelled"):
            taken = ask(connection, running())
            connection.commit()
            verdicts = verdicts_on(taken)

            done = at_once(
                dsn,
                *(
                    asking(partial(finish.finish, taken.worker_id, [verdicts[one]], keep=True))
                    for one in ("succeeded", sort)
                ),
            )

            assert Counter(job_id for ids in done for job_id in ids) == {taken.id: 1}
            connection.execute("delete from pgqueue.jobs")
            connection.commit()
