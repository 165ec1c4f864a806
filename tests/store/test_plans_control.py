"""Conformance: looking at jobs and steering them, on every driver."""

from datetime import datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from store import crowd
from store.drivers import Ask, every_driver, one_database
from store.samples import (
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    adding,
    error_of,
    new_job,
    running,
    shown,
    taking,
    worker_info,
)

from pgqueue.errors import SchemaTooNew, SchemaTooOld
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.jobs import control, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.schema import schema
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import Claim, JobState
from pgqueue.values.jobs.verdict import Died
from pgqueue.values.workers.health import BlockedLoop, WorkerHealth, WorkerProblem
from pgqueue.values.workers.worker import WorkerRequest as WorkerAsk

ask, database = every_driver, one_database


@plan
def _dead(*tasks: str, **options: object) -> Steps[list[int]]:
    ids: list[int] = []
    for task in tasks:
        taken = yield from running(task=task, **options)
        dead = Died(taken, 0.0, "asked", error_of(taken))
        yield from finish.finish(taken.worker_id, [dead], keep=True, now=NOON)
        ids.append(taken.id)
    return ids


async def test_a_retried_job_has_its_arguments_as_they_were_sent(ask: Ask) -> None:
    sent = b'{"second": 1e16, "first": -0.0, "third": 1e400000}'  # jsonb would make 1e16 a whole number, and refuse the last

    @plan(transaction=True)
    def again() -> Steps[Claim]:
        (job_id,) = yield from _dead("bill", args=sent)
        assert (yield from control.retry_dead([job_id], now=NOON)).ids == (job_id,)
        (taken,) = yield from taking()
        return taken

    assert (await ask(again())).args == sent.decode()


async def test_what_is_not_there_is_not_shown(ask: Ask) -> None:
    assert await ask(control.show(1)) is None


async def test_of_two_dead_jobs_with_one_key_one_is_retried(ask: Ask) -> None:
    first, second = await ask(_dead("bill", "bill", unique_key="key"))

    (revived,) = await ask(control.retry_dead([first, second], now=NOON))

    states = {job_id: (await ask(shown(job_id))).state for job_id in (first, second)}
    assert states.pop(revived) is JobState.READY
    assert list(states.values()) == [JobState.DEAD]


async def test_the_clock_is_the_databases(ask: Ask) -> None:
    with psycopg.connect(ask.dsn, autocommit=True) as other:
        before = _clock(other)
        assert before <= await ask(control.clock()) <= _clock(other)


async def test_the_schema_is_found_to_be_the_right_one(ask: Ask) -> None:
    assert await ask(schema.verify("pgqueue")) == schema.REVISION


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("update pgqueue.alembic_version set version_num = '0000'", SchemaTooOld),
        ("update pgqueue.compatibility set oldest_code = '9999'", SchemaTooNew),
    ],
)
async def test_a_schema_of_another_release_is_refused(ask: Ask, change: str, error: type[Exception]) -> None:
    undo = (
        "update pgqueue.alembic_version set version_num = %s",
        "update pgqueue.compatibility set oldest_code = %s",
    )
    with psycopg.connect(ask.dsn, autocommit=True) as connection:
        connection.execute(change)
        try:
            with pytest.raises(error, match=r'schema "pgqueue" is at revision \d+'):
                await ask(schema.verify("pgqueue"))
        finally:
            for statement in undo:
                connection.execute(statement, [schema.REVISION])


def _clock(connection: psycopg.Connection[Any]) -> datetime:
    row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


async def test_the_pulse_is_how_many_workers_live_and_how_long_a_job_has_been_ready(ask: Ask) -> None:
    assert await ask(control.pulse(now=NOON)) == control.QueueSummary(0, None)
    await ask(leases.register(worker_info(), LEASE, now=NOON))
    await ask(leases.register(worker_info(), LEASE, now=NOON - 2 * LEASE))
    for queue, waited in (("mail", 1), ("paused", 9), ("print", 5)):
        await ask(adding(new_job(queue=queue), now=NOON - waited * MINUTE))
    await ask(adding(new_job(delay=MINUTE)))
    await ask(queues.pause("paused"))

    assert await ask(control.pulse(now=NOON)) == control.QueueSummary(1, 300.0)


async def test_the_pulse_names_live_workers_with_a_blocked_loop_or_functions_that_did_not_return(
    ask: Ask,
) -> None:
    loop = BlockedLoop(45.0, "bill", 12, "jobs.py:3 in bill")
    for said, since in (
        (partial(WorkerHealth, loop, 0), NOON),
        (partial(WorkerHealth, None, 2), NOON),
        (partial(WorkerHealth, None, 0), NOON),
        (partial(WorkerHealth, loop, 2), NOON - 2 * LEASE),  # lost
    ):
        info = worker_info()
        await ask(leases.register(info, LEASE, now=since))
        assert await ask(leases.beat(info.id, LEASE, health=said, now=since)) == leases.HeartbeatAnswer(
            WorkerAsk()
        )

    assert await ask(control.pulse(now=NOON + SECOND)) == control.QueueSummary(
        3,
        None,
        worker_problems=(
            WorkerProblem("host", 1, BlockedLoop(46.0, "bill", 12, "jobs.py:3 in bill"), 0),
            WorkerProblem("host", 1, None, 2),
        ),
    )


async def test_the_first_heartbeat_after_a_block_clears_what_was_said(ask: Ask) -> None:
    info = worker_info()
    await ask(leases.register(info, LEASE, now=NOON))
    loop = BlockedLoop(1.0, "bill", None, "jobs.py:3 in bill")
    assert await ask(leases.renew(info.id, LEASE, health=WorkerHealth(loop, 3), now=NOON))
    assert len(await ask(control.worker_problems(now=NOON))) == 1
    assert await ask(leases.renew(info.id, LEASE, health=WorkerHealth(None, 0), now=NOON))
    assert await ask(control.worker_problems(now=NOON)) == []


def test_a_row_that_was_changed_by_hand_is_no_obstacle_to_the_pulse(
    connection: psycopg.Connection[Any],
) -> None:
    info = worker_info()
    crowd.ask(connection, leases.register(info, LEASE))
    for odd in ("infinity", "-infinity"):
        connection.execute("update pgqueue.workers set blocked_since = %s", [odd])
        (problem,) = crowd.ask(connection, control.pulse()).worker_problems
        assert problem.blocked is not None
        assert (problem.blocked.task, problem.blocked.where) == ("unknown", "unknown")


def test_for_the_pulse_only_the_first_job_of_each_queue_and_priority_is_read(dsn: str) -> None:
    look = catalogue_of("pgqueue")["insight/health"].decode().replace("%(now)s", "null")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into pgqueue.jobs (queue, task, priority) "
            "select 'queue ' || n % 3, 'task', n % 4 from generate_series(1, 30000) as n"
        )
        connection.execute("vacuum analyze pgqueue.jobs")
        (plan,) = connection.execute(f"explain (analyze, format json) {look}".encode()).fetchone() or (None,)

    reads = [step for step in _steps(plan[0]["Plan"]) if step.get("Relation Name") == "jobs"]
    reads = [step for step in reads if step["Actual Loops"]]
    assert {step["Index Name"] for step in reads} == {"jobs_ready"}
    assert all(step["Actual Rows"] <= 1 and not step.get("Rows Removed by Filter") for step in reads), reads


def test_with_many_queues_the_pulse_reads_the_jobs_once_and_says_the_same(dsn: str) -> None:
    """Leaps from queue to queue take 4 µs each: 0.7 s for 100,000."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into pgqueue.jobs (queue, task, run_at) "
            "select 'tenant-' || n, 'task', timestamptz '2031-05-04 12:00+00' - n * interval '1 s' from generate_series(1, 2500) as n"
        )
        connection.execute("insert into pgqueue.queues (name, paused_at) values ('tenant-2500', now())")
        look = catalogue_of("pgqueue")["insight/health"].decode().replace("%(now)s", "null")
        (plan,) = connection.execute(f"explain (analyze, format json) {look}".encode()).fetchone() or (None,)
        leaps = [
            step["Actual Loops"] for step in _steps(plan[0]["Plan"]) if step.get("Index Name") == "jobs_ready"
        ]
        pulse = crowd.ask(connection, control.pulse(now=NOON))

    assert pulse.oldest_ready == 2499.0
    assert max(leaps) <= 2000


def _steps(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [step, *(inner for one in step.get("Plans", ()) for inner in _steps(one))]
