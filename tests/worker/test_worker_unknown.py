"""A job of a task that no worker knows: it goes back, is counted and named, and ends dead after a time."""

import logging
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from looking import ask, until
from running import Running
from store.crowd import ask as on
from store.hostile import put
from store.samples import LEASE, MINUTE, NOON, adding, new_job, shown, taking, worker_info
from worker.helping import ended

from pgqueue import JobState, PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import claim, control, finish
from pgqueue.store.workers import leases
from pgqueue.values.flows.flow import BUILTIN
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Unknown
from pgqueue.worker.worker import Worker

DAY = timedelta(days=1)
QUARTER = timedelta(seconds=15)


def _returned(own: psycopg.Connection[object], taken: Claim, now: datetime) -> list[int]:
    verdict = Unknown(taken, QUARTER, 3 * DAY)
    return [*on(own, finish.finish(taken.worker_id, [verdict], keep=True, now=now))]


def _again(own: psycopg.Connection[object], worker: UUID, now: datetime) -> Claim:
    own.execute("update pgqueue.jobs set status = 'ready'")
    (taken,) = on(own, claim.claim(worker, {"default": 1}, now=now))
    return taken


def test_a_job_nobody_knows_goes_back_unspent_and_is_dead_after_three_days(
    connection: psycopg.Connection[object],
) -> None:
    (job_id,) = on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    worker = taken.worker_id
    for passed in (0 * DAY, DAY, 3 * DAY - MINUTE):
        assert _returned(connection, taken, NOON + passed) == [job_id]
        job = on(connection, shown(job_id))
        assert (job.state, job.attempts, job.run_at) == (JobState.SCHEDULED, 0, NOON + passed + QUARTER)
        taken = _again(connection, worker, NOON + passed + QUARTER)

    assert _returned(connection, taken, NOON + 3 * DAY) == [job_id]

    job = on(connection, shown(job_id))
    assert (job.state, job.reason, job.ended_at) == (JobState.DEAD, "unknown", NOON + 3 * DAY)
    (error,) = job.errors
    assert error.type == "UnknownTask"
    assert error.message == "no worker that serves queue default has known task bill for 3 days"


@pytest.mark.parametrize(
    ("other", "state"),
    [
        ({"tasks": ["bill"]}, JobState.SCHEDULED),
        ({"tasks": None}, JobState.SCHEDULED),
        ({"tasks": ["other"]}, JobState.DEAD),
        ({"tasks": ["bill"], "queues": ["mail"]}, JobState.DEAD),
        ({"tasks": ["bill"], "lease": -LEASE}, JobState.DEAD),
    ],
    ids=["it knows the task", "an older release", "it knows others", "it serves others", "it is gone"],
)
def test_it_is_not_given_up_while_another_live_worker_may_know_it(
    connection: psycopg.Connection[object], other: dict[str, object], state: JobState
) -> None:
    (job_id,) = on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    _returned(connection, taken, NOON)
    taken = _again(connection, taken.worker_id, NOON + 4 * DAY)
    info = worker_info(queues=other.get("queues"))  # type: ignore[arg-type]  # a list or None
    info = leases.WorkerInfo(info.id, "host", 1, 1, "0", info.queues, other["tasks"])  # type: ignore[arg-type]  # a list or None
    lease = other.get("lease", LEASE)
    on(connection, leases.register(info, lease, now=NOON + 4 * DAY))  # type: ignore[arg-type]  # a timedelta

    _returned(connection, taken, NOON + 4 * DAY)

    assert on(connection, shown(job_id)).state is state


def test_a_job_that_ran_meanwhile_is_not_known_as_unknown(connection: psycopg.Connection[object]) -> None:
    (job_id,) = on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    _returned(connection, taken, NOON)
    unstarted = _again(connection, taken.worker_id, NOON)
    on(connection, finish.finish(taken.worker_id, [Returned(unstarted)], keep=True, now=NOON))
    assert _since(connection) == [(NOON,)], "a claim that never started says nothing of the task"
    snoozed = _again(connection, taken.worker_id, NOON)
    on(connection, finish.finish(taken.worker_id, [Returned(snoozed, MINUTE)], keep=True, now=NOON))
    assert _since(connection) == [(None,)]
    assert on(connection, shown(job_id)).state is JobState.SCHEDULED


def test_one_that_was_to_be_cancelled_is_cancelled(connection: psycopg.Connection[object]) -> None:
    (job_id,) = on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    on(connection, control.cancel(job_id, now=NOON))

    assert _returned(connection, taken, NOON) == [job_id]
    assert on(connection, shown(job_id)).state is JobState.CANCELLED


def test_counts_and_the_pulse_name_the_tasks_nobody_knows(connection: psycopg.Connection[object]) -> None:
    on(connection, adding(new_job(), new_job("report"), new_job(queue="mail"), new_job(delay=MINUTE)))
    taken = on(connection, taking(count=2))
    done = [Unknown(one, QUARTER, DAY) for one in taken]
    on(connection, finish.finish(taken[0].worker_id, done, keep=True, now=NOON))

    counts, _ = on(connection, control.counts())
    (scheduled,) = [one for one in counts if one.state is JobState.SCHEDULED]
    assert (scheduled.queue, scheduled.count, scheduled.unknown) == ("default", 3, 2)
    assert (scheduled.unknown_tasks, scheduled.unknown_since) == (("bill", "report"), NOON)
    assert {one.unknown for one in counts if one is not scheduled} == {0}
    pulse = on(connection, control.pulse(now=NOON))
    assert [(one.task, one.queue, one.jobs, one.since) for one in pulse.unknown] == [
        ("bill", "default", 1, NOON),
        ("report", "default", 1, NOON),
    ]


async def test_a_worker_says_which_task_it_does_not_know_and_which_may_be_meant(
    queue: PgQueue, dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(name="shop.send_receipt")
    async def send_receipt() -> None: ...

    with psycopg.connect(dsn, autocommit=True) as own:
        put(own, task="'shop.send_reciept'")
    caplog.set_level(logging.WARNING)
    async with running(queue, unknown_after=timedelta(hours=1)):
        await until(lambda: ask(queue, "select unknown_since from pgqueue.jobs")[0][0] is not None)
        await ended(queue, send_receipt.enqueue())
    (record,) = [record for record in caplog.records if "not registered" in record.message]
    assert vars(record)["nearest"] == "shop.send_receipt"
    assert vars(record)["dead_after"] == "1:00:00"


async def test_a_running_worker_gives_it_up_after_the_time_that_it_was_told(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        put(own, task="'gone'", unknown_since="now() - interval '2 hours'")
        put(own, task="'gone'", unknown_since="now() - interval '1 minute'")
    async with running(queue, unknown_after=timedelta(hours=1)):
        await until(lambda: ask(queue, "select reason from pgqueue.dead_jobs") == [("unknown",)])
        await until(lambda: ask(queue, "select status from pgqueue.jobs") == [("scheduled",)])
    assert ask(queue, "select attempts from pgqueue.jobs") == [(0,)]


async def test_workers_say_which_tasks_they_know_so_a_job_that_none_knows_is_given_up_beside_others(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    @queue.task(name="noop")
    async def noop() -> None: ...

    with psycopg.connect(dsn, autocommit=True) as own:
        put(own, task="'gone'", unknown_since="now() - interval '2 hours'")
    async with running(queue, unknown_after=3600), running(queue, unknown_after=3600):
        await until(lambda: ask(queue, "select reason from pgqueue.dead_jobs") == [("unknown",)])
        assert ask(queue, "select distinct tasks from pgqueue.workers") == [(["noop", *sorted(BUILTIN)],)]


def test_a_worker_refuses_to_give_up_at_once(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="unknown_after"):
        Worker(queue, unknown_after=0)


def _since(own: psycopg.Connection[object]) -> list[object]:
    return own.execute("select unknown_since from pgqueue.jobs").fetchall()
