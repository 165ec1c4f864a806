"""Conformance: what the plans of ``pgqueue.store.jobs.enqueue`` do, on every driver."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from store.drivers import Ask, every_driver, one_database
from store.samples import MINUTE, NOON, SECOND, adding, new_job, shown

from pgqueue.errors import BacklogFull, QueueClosed
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import control, copying, enqueue
from pgqueue.store.plan import run
from pgqueue.store.queues import queues
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import EnqueueAnswer, JobState, NewJob, Outcome
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.queues.settings import QueueSettings

ask, database = every_driver, one_database

NASTY = "back\\slash \\N \\. tab\t line\n return\r quote\" 'single' é 日本 \U0001f40d {%s} %(name)s"


async def test_a_job_is_recorded_as_it_was_given(ask: Ask) -> None:
    given = new_job("bill", args=b'{"order_id": 42}', queue="mail", priority=-7, max_attempts=3)
    added = await ask(enqueue.enqueue(given, now=NOON))

    job = await ask(shown(added.id))

    assert added.outcome is Outcome.ADDED
    assert (job.task, job.args, job.queue, job.priority) == ("bill", {"order_id": 42}, "mail", -7)
    assert (job.max_attempts, job.attempts, job.errors, job.worker_id) == (3, 0, (), None)
    assert (job.state, job.run_at, job.unique_key, job.collisions) == (JobState.READY, NOON, None, 0)


@pytest.mark.parametrize("unique_key", [None, "key"])
async def test_a_job_of_the_future_is_scheduled_and_one_of_the_past_is_ready(
    ask: Ask, unique_key: str | None
) -> None:
    def added(**time: Any) -> NewJob:
        key = unique_key and f"{unique_key} {time}"
        return new_job(unique_key=key, **time)

    jobs = [added(delay=MINUTE), added(run_at=NOON + SECOND), added(delay=0 * SECOND), added(run_at=NOON)]
    found = [await ask(shown(job_id)) for job_id in await ask(adding(*jobs))]

    assert [(job.state, job.run_at) for job in found] == [
        (JobState.SCHEDULED, NOON + MINUTE),
        (JobState.SCHEDULED, NOON + SECOND),
        (JobState.READY, NOON),
        (JobState.READY, NOON),
    ]


async def test_replace_gives_a_waiting_job_the_new_contents(ask: Ask) -> None:
    (holder,) = await ask(adding(new_job(unique_key="key", args=b'{"n": 1}')))
    newer = new_job(
        "other",
        unique_key="key",
        unique=Unique(collision="replace"),
        args=b'{"n": 2}',
        queue="mail",
        priority=5,
        max_attempts=2,
        delay=MINUTE,
    )

    assert await ask(enqueue.enqueue(newer, now=NOON)) == EnqueueAnswer(holder, Outcome.REPLACED)

    job = await ask(shown(holder))
    assert (job.task, job.args, job.queue) == ("other", {"n": 2}, "mail")
    assert (job.priority, job.max_attempts, job.collisions) == (5, 2, 1)
    assert (job.state, job.run_at) == (JobState.SCHEDULED, NOON + MINUTE)


async def test_released_holds_are_those_whose_period_is_over(ask: Ask) -> None:
    for name, period in (("short", SECOND), ("long", MINUTE)):
        await ask(adding(new_job(unique_key=name, unique=Unique(period=period))))

    assert await ask(upkeep.release_holds(now=NOON)) == 0
    assert await ask(upkeep.release_holds(now=NOON + SECOND)) == 1
    assert await ask(upkeep.release_holds(now=NOON + MINUTE)) == 1


async def test_a_batch_takes_every_route_and_answers_in_order(ask: Ask) -> None:
    (holder,) = await ask(adding(new_job(unique_key="taken")))
    (replaced,) = await ask(adding(new_job(unique_key="waiting")))
    batch = [
        new_job("copied", delay=MINUTE, priority=3, max_attempts=4, queue="mail"),
        new_job("keyed", unique_key="free", delay=MINUTE, priority=3, max_attempts=4, queue="mail"),
        new_job("keyed", unique_key="taken"),
        new_job("held", unique_key="daily", unique=Unique(period=timedelta(days=1))),
        new_job("replacing", unique_key="waiting", unique=Unique(collision="replace")),
        new_job("keyed", unique_key="free"),
        new_job("copied"),
    ]

    answers = await ask(enqueue.enqueue_many(batch, now=NOON))

    added, rejected = Outcome.ADDED, Outcome.REJECTED
    outcomes = [answer.outcome for answer in answers]
    assert outcomes == [added, added, rejected, added, Outcome.REPLACED, rejected, added]
    assert [answers[2].id, answers[4].id, answers[5].id] == [holder, replaced, answers[1].id]
    found = [await ask(shown(answer.id)) for answer in answers]
    assert [job.task for job in found] == ["copied", "keyed", "bill", "held", "replacing", "keyed", "copied"]
    for job in found[:2]:
        assert (job.state, job.run_at, job.queue) == (JobState.SCHEDULED, NOON + MINUTE, "mail")
        assert (job.priority, job.max_attempts) == (3, 4)
    assert [job.collisions for job in found[1:3]] == [1, 1]
    assert (found[6].state, found[6].run_at) == (JobState.READY, NOON)


async def test_an_empty_batch_adds_nothing(ask: Ask) -> None:
    assert await ask(enqueue.enqueue_many([], now=NOON)) == []
    assert await ask(control.newest()) == []


@pytest.mark.parametrize("unique_key", [None, "key"])
async def test_a_batch_of_more_than_one_chunk_keeps_what_was_written(
    ask: Ask, unique_key: str | None
) -> None:
    args = json.dumps({"text": NASTY}, ensure_ascii=False).encode()
    batch = [
        new_job("back\\slash", args=args, queue="que\\ue", unique_key=unique_key and f"{unique_key}{number}")
        for number in range(copying.ROWS_PER_CHUNK + 2)
    ]

    answers = await ask(enqueue.enqueue_many(batch, now=NOON))

    assert len({answer.id for answer in answers}) == len(batch)
    for answer in (answers[0], answers[-1]):
        job = await ask(shown(answer.id))
        assert (job.args, job.task, job.queue) == ({"text": NASTY}, "back\\slash", "que\\ue")


def test_a_batch_arrives_unharmed_over_a_connection_of_another_encoding(dsn: str) -> None:
    args = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in ("é", "ü")]
    catalogue = catalogue_of("pgqueue")
    with psycopg.connect(dsn, client_encoding="latin1") as connection:
        plan = enqueue.enqueue_many([new_job(args=one) for one in args])
        answers = run(plan, StepRunner(connection, catalogue))

    with psycopg.connect(dsn) as connection:
        found = [run(shown(answer.id), StepRunner(connection, catalogue)).args for answer in answers]
    assert found == [{"text": "é"}, {"text": "ü"}]


VARIED = (
    new_job(),
    new_job(priority=None, max_attempts=None),
    new_job(queue="mail", priority=None, max_attempts=None),
    new_job(queue="mail", priority=3, max_attempts=2),
    new_job(delay=MINUTE),
    new_job(run_at=NOON - MINUTE),
    new_job(run_at=NOON + MINUTE, expires_in=SECOND),
    new_job(expires_at=NOON + MINUTE),
    new_job(args=json.dumps({"text": NASTY}).encode(), meta=b'{"trace": "a\\"b"}'),
    new_job("back\\slash", queue='que"ue'),
)


async def test_a_few_jobs_in_one_statement_are_what_they_are_as_many(ask: Ask) -> None:
    await ask(queues.change("mail", QueueSettings(priority=7, max_attempts=9)))
    assert enqueue.are_few(VARIED)

    few = await ask(enqueue.enqueue_few(VARIED, now=NOON))
    many = await ask(enqueue.enqueue_many(VARIED, now=NOON))

    assert [one.id for one in few] == sorted(one.id for one in few)
    for one, other in zip(few, many, strict=True):
        found, wanted = await ask(shown(one.id)), await ask(shown(other.id))
        assert replace(found, id=0, created_at=NOON) == replace(wanted, id=0, created_at=NOON)


async def test_a_few_jobs_are_refused_where_a_queue_of_one_of_them_is_closed_or_full(ask: Ask) -> None:
    mixed = [new_job(), new_job(queue="mail")]
    await ask(queues.change("mail", QueueSettings(backlog=1, when_full="refuse")))
    assert len(await ask(enqueue.enqueue_few(mixed, now=NOON))) == 2
    with pytest.raises(BacklogFull):
        await ask(enqueue.enqueue_few(mixed, now=NOON))
    await ask(queues.close("mail"))
    with pytest.raises(QueueClosed):
        await ask(enqueue.enqueue_few(mixed, now=NOON))
    assert len(await ask(control.newest())) == 2


def test_jobs_with_keys_with_long_arguments_and_more_than_a_few_are_many() -> None:
    assert not enqueue.are_few([new_job(), new_job(unique_key="key")])
    assert not enqueue.are_few([new_job()] * (enqueue.FEW + 1))
    assert not enqueue.are_few([new_job(args=b" " * enqueue.FEW_BYTES + b"{}")])
    assert enqueue.are_few([new_job()] * enqueue.FEW)
