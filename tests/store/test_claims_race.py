"""Claims among many workers: what others hold is skipped, never waited for, and no job is claimed twice."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psycopg
from store.crowd import ask, asking, at_once, until_statements_wait
from store.samples import (
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    adding,
    new_job,
    running,
    shown,
    taking,
    verdicts_on,
    worker_info,
)

from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import claim, control, finish
from pgqueue.store.plan import Plan, Row, Step, run
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState


def test_whoever_promotes_or_reclaims_skips_what_another_does(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    later = NOON + MINUTE + LEASE
    taken = ask(connection, running())
    (scheduled,) = ask(connection, adding(new_job(delay=MINUTE)))
    connection.commit()
    assert ask(connection, upkeep.poll(now=later)).count == 1
    assert ask(connection, upkeep.reclaim(now=later)) == {taken.id: JobState.READY}

    with psycopg.connect(dsn, options="-c lock_timeout=1s") as other:
        assert ask(other, upkeep.poll(now=later)).count == 0
        assert ask(other, upkeep.reclaim(now=later)) == {}

    connection.commit()
    assert ask(connection, shown(scheduled)).state is JobState.READY


def test_whoever_sees_to_a_lost_worker_spares_the_others_the_reading(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    taken = ask(connection, running())
    ask(connection, leases.leave(taken.worker_id))
    connection.commit()
    assert _asked(connection, upkeep.reclaim(now=NOON)) >= {
        "workers/lost_workers",
        "connections/allow_full_reads",
    }
    with psycopg.connect(dsn, options="-c lock_timeout=1s") as other:
        assert _asked(other, upkeep.reclaim(now=NOON)) == {"workers/expire_workers", "workers/lost_workers"}


def _asked(connection: psycopg.Connection[Any], plan: Plan[object]) -> set[str]:
    names: set[str] = set()

    class Noting(StepRunner):
        def execute(self, step: Step, /) -> Sequence[Row]:
            names.add(step.name)
            return super().execute(step)

    run(plan, Noting(connection, catalogue_of("pgqueue")))
    return names


def test_a_worker_is_not_taken_off_the_list_while_it_claims(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    late = NOON + LEASE + SECOND
    ask(connection, adding(new_job()))
    info = worker_info()
    ask(connection, leases.register(info, LEASE, now=NOON))
    connection.commit()
    (taken,) = ask(connection, claim.claim(info.id, {"default": 1}, now=NOON))

    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=1s") as other:
        assert ask(other, upkeep.reclaim(now=late)) == {}
        assert ask(other, leases.renew(info.id, LEASE, now=NOON))
        connection.commit()
        assert ask(other, upkeep.reclaim(now=late)) == {taken.id: JobState.READY}
        assert not ask(other, leases.renew(info.id, LEASE, now=NOON))


def test_verdicts_on_jobs_that_others_have_locked_are_set_apart(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    ask(connection, adding(new_job(), new_job(), new_job()))
    locked, free, superseded = ask(connection, taking())
    connection.commit()
    verdicts = [verdicts_on(one)["succeeded"] for one in (locked, free)]
    verdicts.append(verdicts_on(msgspec.structs.replace(superseded, fence=-1))["succeeded"])
    connection.execute("select from pgqueue.jobs where id = %s for update", [locked.id])

    with psycopg.connect(dsn, options="-c lock_timeout=1s") as other:
        plan = finish.finish_unlocked(locked.worker_id, verdicts, keep=True)
        assert ask(other, plan) == ({free.id: JobState.SUCCEEDED}, {locked.id})


def test_a_cancel_waits_for_a_claim_of_its_job_and_asks_the_worker_then(dsn: str) -> None:
    with psycopg.connect(dsn) as claiming, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as threads:
        (job_id,) = ask(claiming, adding(new_job()))
        claiming.commit()
        ask(claiming, taking())
        cancelling = threads.submit(ask, other, control.cancel(job_id, now=NOON))
        until_statements_wait(dsn, unless=cancelling.done)
        claiming.commit()
        assert cancelling.result(timeout=30) is JobState.RUNNING
        other.commit()
        row = claiming.execute("select cancel_requested from pgqueue.jobs").fetchone()
    assert row == (True,)


def test_of_a_renewal_and_an_expiry_at_once_exactly_one_wins(dsn: str) -> None:
    """A worker that is told its lease is lost has lost every claim; one that is not has kept them all."""
    with psycopg.connect(dsn) as connection:
        for _ in range(20):
            taken = ask(connection, running())
            connection.commit()
            late = NOON + LEASE + SECOND
            renewed, reclaimed = at_once(
                dsn, asking(leases.renew(taken.worker_id, LEASE, now=late)), asking(upkeep.reclaim(now=late))
            )

            assert reclaimed == ({} if renewed else {taken.id: JobState.READY})
            state = JobState.RUNNING if renewed else JobState.READY
            assert ask(connection, shown(taken.id)).state is state
            connection.execute("delete from pgqueue.jobs")
            connection.commit()


def test_of_two_ends_of_one_attempt_exactly_one_is_recorded(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for sort in ("dead", "again", "returned", "cancelled"):
            taken = ask(connection, running())
            connection.commit()
            verdicts = verdicts_on(taken)

            done = at_once(
                dsn,
                *(
                    asking(finish.finish(taken.worker_id, [verdicts[one]], keep=True))
                    for one in ("succeeded", sort)
                ),
            )

            assert Counter(job_id for ids in done for job_id in ids) == {taken.id: 1}
            connection.execute("delete from pgqueue.jobs")
            connection.commit()
