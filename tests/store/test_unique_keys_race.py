"""Unique keys among many who enqueue at once: promise 4, and no deadlocks."""

from collections import Counter
from datetime import timedelta
from itertools import cycle
from typing import Any

import psycopg
import pytest
from store.crowd import ask, asking, at_once
from store.samples import new_job, shown, taking

from pgqueue.store.jobs import enqueue, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob, Outcome
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.jobs.verdict import Succeeded

THREADS = 8
ROUNDS = 5


@pytest.mark.parametrize(
    "unique",
    [Unique(), Unique(until="started"), Unique(period=timedelta(days=1))],
    ids=["until ended", "until started", "for a period"],
)
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_of_all_who_enqueue_one_key_exactly_one_adds_and_the_others_are_counted(
    dsn: str, unique: Unique, *, many: bool
) -> None:
    @plan(transaction=True)
    def enqueued(job: NewJob) -> Steps[EnqueueAnswer]:
        if many:
            return (yield from enqueue.enqueue_many([new_job(), job]))[1]
        return (yield from enqueue.enqueue(job))

    for key in (f"key {number}" for number in range(ROUNDS)):
        job = new_job(unique_key=key, unique=unique)
        answers = at_once(dsn, *[asking(enqueued(job))] * THREADS)

        assert Counter(answer.outcome for answer in answers) == {
            Outcome.ADDED: 1,
            Outcome.REJECTED: THREADS - 1,
        }
        (holder,) = {answer.id for answer in answers}
        with psycopg.connect(dsn) as connection:
            found = ask(connection, shown(holder))
        assert (found.unique_key, found.collisions) == (key, THREADS - 1)


def test_while_a_key_changes_hands_every_answer_names_a_job_that_was_added(dsn: str) -> None:
    job = new_job(unique_key="key")

    def used_up(connection: psycopg.Connection[Any]) -> list[EnqueueAnswer]:
        connection.autocommit = True
        answers = []
        for _ in range(ROUNDS):
            answers.append(ask(connection, enqueue.enqueue(job)))
            for one in ask(connection, taking()):
                ask(connection, finish.finish(one.worker_id, [Succeeded(one, 0.0)], keep=True))
        return answers

    answers = [answer for one in at_once(dsn, *[used_up] * THREADS) for answer in one]

    added = [answer.id for answer in answers if answer.outcome is Outcome.ADDED]
    assert len(added) == len(set(added))
    assert {answer.id for answer in answers} == set(added)


REPLACE, RESCHEDULE, PERIOD = Unique("replace"), Unique("reschedule"), Unique(period=timedelta(days=1))


@pytest.mark.parametrize(
    ("policies", "count"),
    [
        pytest.param([Unique()], 200, id="reject"),  # one statement: few keys would be added too soon to meet
        pytest.param([REPLACE], 40, id="replace"),  # a statement for each key
        pytest.param([RESCHEDULE], 40, id="reschedule"),
        pytest.param([PERIOD], 40, id="for a period"),
        pytest.param([Unique(), REPLACE, RESCHEDULE], 40, id="mixed"),
    ],
)
def test_batches_in_opposite_order_never_wait_for_each_other_in_a_circle(
    dsn: str, policies: list[Unique], count: int
) -> None:
    policy = cycle(policies)
    for number in range(ROUNDS):
        keys = [f"{number} {key:03}" for key in range(count)]
        forth = [new_job(unique_key=key, unique=next(policy)) for key in keys]
        back = [new_job(unique_key=key, unique=next(policy)) for key in reversed(keys)]

        answers = at_once(
            dsn, *[asking(enqueue.enqueue_many(forth))] * 2, *[asking(enqueue.enqueue_many(back))] * 2
        )

        added = Counter(answer.id for one in answers for answer in one if answer.outcome is Outcome.ADDED)
        assert len(added) == added.total() == len(keys)
