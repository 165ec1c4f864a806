"""Debounce and throttle among many who enqueue one key at once, in transactions of which some are rolled back.

The state of a waiting job after an enqueue with its unique key has replaced or rescheduled it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from threading import Event
from typing import Any, get_args

import psycopg
import pytest
from store.crowd import Deed, ask, asking, at_once, until_statements_wait
from store.samples import MINUTE, NOON, SECOND, adding, new_job, shown, taking

from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import enqueue, finish
from pgqueue.store.plan import Row, Step, run
from pgqueue.values.jobs.job import EnqueueAnswer, JobState, Outcome
from pgqueue.values.jobs.unique import Collision, Debounce, Throttle, Unique
from pgqueue.values.jobs.verdict import Succeeded

THREADS = 16
ROUNDS = 5
DAY = timedelta(days=1)
POLICIES = [Debounce(DAY), Throttle(DAY), Throttle(DAY, trailing=True)]


def _enqueuing(unique: Unique, number: int, *, many: bool) -> Deed[EnqueueAnswer | None]:
    """Enqueue a job of the key; every third transaction is rolled back, and None is the answer."""
    job = new_job(unique_key="key", unique=unique, args=b'{"number": %d}' % number)

    def deed(connection: psycopg.Connection[object]) -> EnqueueAnswer | None:
        with connection.transaction(force_rollback=number % 3 == 0):
            if many:
                answer = ask(connection, enqueue.enqueue_many([new_job("other"), job]))[1]
            else:
                answer = ask(connection, enqueue.enqueue(job))
        return None if number % 3 == 0 else answer

    return deed


@pytest.mark.parametrize("unique", POLICIES, ids=repr)
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_of_all_who_enqueue_one_key_exactly_one_that_commits_adds_a_job(
    dsn: str, unique: Unique, *, many: bool
) -> None:
    answers = at_once(dsn, *[_enqueuing(unique, number, many=many) for number in range(THREADS)])
    committed = {number: answer for number, answer in enumerate(answers) if answer is not None}
    outcomes = Counter(answer.outcome for answer in committed.values())
    assert outcomes.pop(Outcome.ADDED) == 1
    assert set(outcomes) == {Outcome.REPLACED if unique.collision == "replace" else Outcome.REJECTED}
    (job_id,) = {answer.id for answer in committed.values()}
    with psycopg.connect(dsn) as connection:
        job = ask(connection, shown(job_id))
        (keyed,) = connection.execute("select count(*) from pgqueue.jobs where unique_key = 'key'").fetchall()
    assert keyed == (1,)
    assert job.args["number"] in committed
    assert job.state is (JobState.READY if unique.delay is None else JobState.SCHEDULED)
    assert job.collisions == len(committed) - 1


def test_while_jobs_are_claimed_two_runs_of_a_throttled_key_are_a_period_apart(dsn: str) -> None:
    unique = Throttle(DAY, trailing=True)

    def claiming(connection: psycopg.Connection[object]) -> None:
        connection.autocommit = True
        for _ in range(20):
            for one in ask(connection, taking()):
                ask(connection, finish.finish(one.worker_id, [Succeeded(one, 0.0)], keep=True))

    for _ in range(ROUNDS):
        at_once(dsn, claiming, *[_enqueuing(unique, number, many=False) for number in range(THREADS)])
    with psycopg.connect(dsn) as connection:
        times = [row[0] for row in connection.execute("select run_at from pgqueue.all_jobs order by 1")]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps
    assert min(gaps) >= DAY


class _PausedBefore(StepRunner):
    """A connection whose program stops before it asks to take back a period, until it is told to go on."""

    def __init__(self, connection: psycopg.Connection[object]) -> None:
        super().__init__(connection, catalogue_of("pgqueue"))
        self.paused, self.go_on = Event(), Event()

    def execute(self, step: Step) -> Sequence[Row]:
        if step.name in {"jobs/shorten_hold", "jobs/release_hold"}:
            self.paused.set()
            assert self.go_on.wait(timeout=30)
        return super().execute(step)


@pytest.mark.parametrize(
    "unique",
    [
        Throttle(DAY, trailing=True),
        *[Unique(period=DAY, until="started", collision=one) for one in get_args(Collision)],
    ],
    ids=repr,
)
def test_enqueuers_of_a_key_that_is_being_given_up_do_not_wait_for_each_other(
    dsn: str, unique: Unique
) -> None:
    """One has the key's hold and wants the job that is being claimed; the other waits for that job, then wants the hold."""
    holder = new_job(unique_key="key", unique=Unique(until="started"))
    job = new_job(unique_key="key", unique=unique)
    with ExitStack() as opened, ThreadPoolExecutor(2) as threads:
        first, second, claiming, third = (opened.enter_context(psycopg.connect(dsn)) for _ in range(4))
        ask(first, enqueue.enqueue(job, now=NOON - 2 * DAY))
        ask(first, taking())
        first.commit()
        ask(first, enqueue.enqueue(holder, now=NOON))
        has_the_hold = _PausedBefore(second)

        def deed(connection: psycopg.Connection[object], steps: StepRunner) -> EnqueueAnswer:
            with connection.transaction():
                return run(enqueue.enqueue(job, now=NOON), steps)

        one = threads.submit(deed, second, has_the_hold)
        until_statements_wait(dsn)
        first.commit()
        assert has_the_hold.paused.wait(timeout=30)
        ask(claiming, taking())
        other = threads.submit(deed, third, StepRunner(third, catalogue_of("pgqueue")))
        until_statements_wait(dsn)
        has_the_hold.go_on.set()
        until_statements_wait(dsn, count=2)
        claiming.commit()
        answers = {one.result(timeout=30), other.result(timeout=30)}
    assert {answer.outcome for answer in answers} == {
        Outcome.ADDED,
        {"reject": Outcome.REJECTED, "replace": Outcome.REPLACED, "reschedule": Outcome.RESCHEDULED}[
            unique.collision
        ],
    }
    assert len({answer.id for answer in answers}) == 1


def test_a_period_that_no_job_was_added_for_is_taken_back(dsn: str) -> None:
    trailing = new_job(unique_key="key", unique=Throttle(DAY, trailing=True))
    with psycopg.connect(dsn) as first, ThreadPoolExecutor(1) as thread:
        (job_id,) = ask(first, adding(new_job(unique_key="key", unique=Unique(until="started"))))
        waiting = thread.submit(at_once, dsn, asking(enqueue.enqueue(trailing, now=NOON)))
        until_statements_wait(dsn)
        first.commit()
        assert waiting.result(timeout=30) == [EnqueueAnswer(job_id, Outcome.REPLACED)]
        ask(first, taking())
        added = ask(first, enqueue.enqueue(trailing, now=NOON))
        assert added.outcome is Outcome.ADDED
        assert ask(first, shown(added.id)).run_at == NOON


def test_a_transaction_that_began_before_the_job_was_added_leaves_it_ready(dsn: str) -> None:
    job = new_job(unique_key="key", unique=Throttle(DAY, trailing=True))
    with psycopg.connect(dsn) as connection:
        added = ask(connection, enqueue.enqueue(job, now=NOON))
        assert ask(connection, enqueue.enqueue(job, now=NOON - SECOND)).outcome is Outcome.REPLACED
        assert ask(connection, shown(added.id)).state is JobState.READY


def test_a_transaction_that_began_earlier_does_not_bring_a_debounced_job_forward(dsn: str) -> None:
    job = new_job(unique_key="key", unique=Debounce(DAY))
    with psycopg.connect(dsn) as connection:
        added = ask(connection, enqueue.enqueue(job, now=NOON))
        ask(connection, enqueue.enqueue(job, now=NOON - SECOND))
        assert ask(connection, shown(added.id)).run_at == NOON + DAY


def test_a_rolled_back_enqueue_holds_no_key_for_its_period(dsn: str) -> None:
    job = new_job(unique_key="key", unique=Throttle(DAY))
    with psycopg.connect(dsn) as connection:
        assert ask(connection, enqueue.enqueue(job)).outcome is Outcome.ADDED
        connection.rollback()
        assert ask(connection, enqueue.enqueue(job)).outcome is Outcome.ADDED


def test_a_batch_of_one_key_writes_its_row_once(dsn: str) -> None:
    """Each version of a row that one transaction writes stays until it ends, so 5,000 take sixty times as long."""
    jobs = [
        new_job(unique_key="key", unique=Debounce(DAY), args=b'{"number": %d}' % one) for one in range(5_000)
    ]
    with psycopg.connect(dsn) as connection:
        answers = ask(connection, enqueue.enqueue_many(jobs))
        job = ask(connection, shown(answers[0].id))
    assert Counter(one.outcome for one in answers) == {Outcome.ADDED: 1, Outcome.REPLACED: 4_999}
    assert (job.args, job.collisions) == ({"number": 4_999}, 0)


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
