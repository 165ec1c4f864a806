"""The contract of admission: blocked jobs wait before their line, and are let in once, in order, when nothing keeps them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from store.crowd import ask, asking, at_once, until_statements_wait
from store.samples import MINUTE, NOON, adding, new_job, shown, taking, worker_info
from store.test_plans_by_hand import Answers

from pgqueue.store.jobs import admission, control
from pgqueue.store.plan import Steps, plan, run
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState, NewJob

Connection = psycopg.Connection[Any]
WAITS = "select waits_for, job_id from pgqueue.waits order by job_id, waits_for"


@plan(transaction=True)
def _blocked(*jobs: NewJob, reasons: tuple[str, ...] = ("a",)) -> Steps[list[int]]:
    ids = yield from adding(*jobs)
    assert (yield from admission.block(ids, reasons)) == ids
    return ids


def test_a_blocked_job_is_claimed_and_promoted_only_after_it_was_admitted(connection: Connection) -> None:
    (blocked,) = ask(connection, _blocked(new_job()))
    (other,) = ask(connection, adding(new_job()))
    ask(connection, upkeep.poll(now=NOON + MINUTE))
    assert ask(connection, shown(blocked)).state is JobState.BLOCKED
    assert [one.id for one in ask(connection, taking())] == [other]

    assert ask(connection, admission.admit(["a"], now=NOON)) == {blocked: JobState.READY}
    assert [one.id for one in ask(connection, taking())] == [blocked]
    assert connection.execute(WAITS.encode()).fetchall() == []


def test_a_job_waits_for_every_reason_and_for_its_time(connection: Connection) -> None:
    (blocked,) = ask(connection, _blocked(new_job(run_at=NOON + MINUTE), reasons=("a", "b", "c")))

    assert ask(connection, admission.admit(["a"], now=NOON)) == {}
    assert ask(connection, admission.admit(["a", "z"], now=NOON)) == {}
    assert ask(connection, shown(blocked)).state is JobState.BLOCKED
    assert ask(connection, admission.admit(["c", "b", "b"], now=NOON)) == {blocked: JobState.SCHEDULED}
    assert ask(connection, shown(blocked)).run_at == NOON + MINUTE


def test_admitted_jobs_stand_where_their_priority_and_their_time_put_them(connection: Connection) -> None:
    late, urgent, early = ask(
        connection,
        _blocked(new_job(run_at=NOON), new_job(priority=5, run_at=NOON), new_job(run_at=NOON - MINUTE)),
    )
    (between,) = ask(connection, adding(new_job(run_at=NOON - MINUTE / 2)))

    ask(connection, admission.admit(["a"], now=NOON))

    assert [one.id for one in ask(connection, taking())] == [urgent, early, between, late]


def test_a_reason_of_others_lets_nobody_in(connection: Connection) -> None:
    (blocked,) = ask(connection, _blocked(new_job()))
    assert ask(connection, admission.admit(["b"], now=NOON)) == {}
    assert connection.execute(WAITS.encode()).fetchall() == [("a", blocked)]


def test_what_runs_is_not_blocked(connection: Connection) -> None:
    ready, taken = ask(connection, adding(new_job(), new_job(priority=1)))
    ask(connection, taking(count=1))
    assert ask(connection, admission.block([ready, taken], ["a"])) == [ready]
    assert connection.execute(WAITS.encode()).fetchall() == [("a", ready)]


def test_a_cancelled_blocked_job_is_not_admitted_and_waits_for_nothing(connection: Connection) -> None:
    cancelled, other = ask(connection, _blocked(new_job(), new_job()))
    assert ask(connection, control.cancel(cancelled, now=NOON)) is JobState.CANCELLED
    assert connection.execute(WAITS.encode()).fetchall() == [("a", other)]

    assert ask(connection, admission.admit(["a"], now=NOON)) == {other: JobState.READY}
    assert ask(connection, shown(cancelled)).state is JobState.CANCELLED


def test_two_who_admit_at_once_let_each_job_in_once(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for _ in range(10):
            ids = ask(connection, _blocked(*[new_job()] * 20))
            connection.commit()
            found = at_once(dsn, *[asking(admission.admit(["a"], now=NOON))] * 3)
            assert sorted(job_id for states in found for job_id in states) == ids
            ask(connection, taking())
            connection.commit()


def test_of_two_who_take_away_one_reason_each_the_second_lets_the_job_in(dsn: str) -> None:
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second, ThreadPoolExecutor(1) as threads:
        (blocked,) = ask(first, _blocked(new_job(), reasons=("a", "b")))
        first.commit()
        with first.transaction():
            assert ask(first, admission.admit(["a"], now=NOON)) == {}
            admitting = threads.submit(ask, second, admission.admit(["b"], now=NOON))
            until_statements_wait(dsn, unless=admitting.done)
        assert admitting.result(timeout=30) == {blocked: JobState.READY}


def test_what_was_rolled_back_let_nobody_in(connection: Connection) -> None:
    (blocked,) = ask(connection, _blocked(new_job()))
    with connection.transaction(force_rollback=True):
        ask(connection, admission.admit(["a"], now=NOON))
    assert ask(connection, shown(blocked)).state is JobState.BLOCKED
    assert connection.execute(WAITS.encode()).fetchall() == [("a", blocked)]


def test_idle_workers_are_told_of_admitted_jobs_that_are_ready(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own, psycopg.connect(dsn, autocommit=True) as idle:
        ask(own, _blocked(new_job()))
        ask(idle, leases.register(worker_info(), MINUTE))
        idle.execute('listen "pgqueue.wake"')
        ask(own, admission.admit(["a"], now=NOON))
        (told,) = idle.notifies(timeout=30, stop_after=1)
        assert told.channel == "pgqueue.wake"


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([[]], ["jobs/lock_blocked"]),
        ([[(1,)], [(1, "scheduled")]], ["jobs/lock_blocked", "jobs/admit"]),
        ([[(1,)], [(1, "ready")], []], ["jobs/lock_blocked", "jobs/admit", "jobs/wake"]),
    ],
)
def test_nothing_more_is_asked_than_is_needed(answers: list[Any], asked: list[str]) -> None:
    connection = Answers(*answers)
    run(admission.admit(["a"]), connection)
    assert connection.names == asked
