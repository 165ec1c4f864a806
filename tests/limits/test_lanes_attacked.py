"""What else is done to jobs that wait in lanes: operations, pauses, expiry, locks that are held for long."""

from contextlib import closing

import psycopg
import pytest
from limits.test_claims_from_lanes import NOON, Workers
from looking import ask, wait_until
from promises.processes import do

from pgqueue import Debounce, Limit, PgQueue, Rate, Task, chain
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import finish
from pgqueue.store.limits import limits
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import run
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Succeeded


@pytest.fixture
def workers(queue: PgQueue) -> Workers:
    return Workers(queue)


@pytest.fixture
def send(queue: PgQueue) -> Task[[int], None]:
    @queue.task(name="send", limit=Limit(1, by="customer"))
    def send(customer: int) -> None: ...

    return send


def claimed(workers: Workers, seconds: float = 0.0) -> list[int]:
    return sorted(one.id for one in workers.claim(0, 99, seconds).claims)


def test_operations_on_many_jobs_reach_those_in_lanes(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    jobs = queue.enqueue_many(send.call(7) for _ in range(4))
    assert queue.control.jobs(task="send", ids=[jobs[2].id]).reprioritise(9).done == 1
    assert claimed(workers) == [jobs[2].id]
    assert queue.control.jobs(task="send", state="blocked").cancel().done == 3
    assert ask(queue, "select count(*) from pgqueue.jobs where in_lane") == [(0,)]


def test_jobs_that_are_moved_wait_in_the_same_lane_of_the_other_queue(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    jobs = queue.enqueue_many(send.call(7) for _ in range(3))
    assert claimed(workers) == [jobs[0].id]
    assert queue.control.jobs(task="send", state="blocked").move("other").done == 2
    assert claimed(workers) == []  # the limit counts the jobs of all queues
    ask(queue, "delete from pgqueue.jobs where status = 'running'")
    assert claimed(workers) == [jobs[1].id]


def test_jobs_of_a_paused_queue_stay_in_their_lanes_and_others_do_not_wait_for_them(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    first, second = send.enqueue(7), send.using(queue="other").enqueue(8)
    queue.control.pause("def*")
    assert claimed(workers) == [second.id]
    queue.control.resume("def*")
    assert claimed(workers) == [first.id]


def test_a_drained_queue_serves_its_lanes(queue: PgQueue, workers: Workers, send: Task[[int], None]) -> None:
    job = send.enqueue(7)
    queue.control.drain("default")
    assert claimed(workers) == [job.id]


def test_jobs_in_lanes_expire_and_the_next_one_starts(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    late = send.using(expires_at=NOON).enqueue(7)
    kept = send.enqueue(7)
    do(queue, finish.expire(now=NOON))
    assert late.status() is JobState.DEAD
    assert claimed(workers) == [kept.id]


def test_a_job_with_a_delay_enters_its_lane_when_it_is_due(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    job = send.using(run_at=NOON).enqueue(7)
    assert claimed(workers) == []
    do(queue, upkeep.poll(now=NOON))
    assert claimed(workers) == [job.id]


def test_a_debounced_job_has_its_limit(queue: PgQueue, workers: Workers) -> None:
    @queue.task(name="index", unique=Debounce(10, by="page"), limit=Limit(1))
    def index(page: int) -> None: ...

    index.enqueue(1)
    job = index.enqueue(1)
    index.enqueue(2)
    do(queue, upkeep.poll(now=NOON))
    assert claimed(workers) == [job.id]


def test_jobs_of_flows_wait_in_lanes_when_their_turn_comes(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    chain(send.call(7), send.call(7)).enqueue()
    (first,) = workers.claim(0, 9).claims
    assert claimed(workers) == []
    do(queue, finish.finish(first.worker_id, [Succeeded(first, 0.1)], keep=True, now=NOON))
    assert len(claimed(workers)) == 1


def test_a_dead_job_is_revived_into_its_lane(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    job = send.enqueue(7)
    send.enqueue(7)
    ask(queue, "select pgqueue.set_aside(%s, 'test', now())", job.id)
    assert queue.retry(job.id)
    assert job.status() is JobState.BLOCKED
    assert len(claimed(workers)) == 1


def test_a_limit_that_is_taken_away_from_its_task_goes_on_for_the_jobs_that_wait(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    """And a program that does not know the limit uses what is stored."""
    queue.enqueue_many(send.call(7) for _ in range(3))
    workers.claim(0, 0)
    with closing(PgQueue(queue.database.dsn)) as other:

        @other.task(name="send")
        def plain(customer: int) -> None: ...

        served = ServedLanes(lambda: other.limits, lambda: other.limiting)
        assert len(do(queue, served.claim(workers.ids[1], 9)).claims) == 1
        assert len(do(queue, served.claim(workers.ids[1], 9)).claims) == 0


def test_of_two_releases_with_other_numbers_the_last_to_start_says_what_holds(
    queue: PgQueue, workers: Workers
) -> None:
    def release(most: int) -> ServedLanes:
        app = PgQueue(queue.database.dsn)

        @app.task(name="send", limit=Limit(most, by="customer"))
        def send(customer: int) -> None: ...

        app.enqueue_many(send.call(7) for _ in range(4))
        lanes = ServedLanes(lambda: app.limits, lambda: app.limiting)
        app.close()
        return lanes

    def claims(worker: int) -> int:
        found = do(queue, workers.lanes[worker].claim(workers.ids[worker], 9)).claims
        workers.lanes[worker].claimed()
        return len(found)

    workers.lanes[:2] = [release(1), release(3)]
    assert [claims(0), claims(1)] == [1, 2]
    assert claims(0) == 0  # it does not store its number again


def test_a_limit_whose_row_a_user_holds_locked_stops_its_own_jobs_only(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    @queue.task(name="other", limit=Limit(1))
    def other() -> None: ...

    do(queue, limits.declare(queue.limits))
    send.enqueue(7)
    job = other.enqueue()
    with psycopg.connect(queue.database.dsn) as connection:
        connection.execute("select from pgqueue.limits where name = 'task:send:customer' for update")
        assert claimed(workers) == [job.id]
        assert workers.claim(0, 9).again_in == limits.AGAIN
        do(
            queue, ServedLanes(lambda: queue.limits, lambda: queue.limiting).claim(workers.ids[2], 9)
        )  # a new worker starts


def test_a_row_of_a_job_that_a_user_holds_locked_is_passed_over(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    first, second = queue.enqueue_many(send.call(7) for _ in range(2))
    with psycopg.connect(queue.database.dsn) as connection:
        connection.execute("select from pgqueue.jobs where id = %s for update", [first.id])
        assert claimed(workers) == [second.id]


def test_a_rate_of_a_year_and_a_clock_of_ten_years_ahead_or_behind(queue: PgQueue, workers: Workers) -> None:
    @queue.task(name="yearly", limit=Rate("1/365d"))
    def yearly() -> None: ...

    queue.enqueue_many(yearly.call() for _ in range(4))
    year = 365 * 86_400.0
    assert len(workers.claim(0, 9, 10 * year).claims) == 1  # the clock was wrong
    assert len(workers.claim(0, 9).claims) == 0
    assert len(workers.claim(0, 9, year).claims) == 0
    assert len(workers.claim(0, 9, 11 * year).claims) == 1


def test_the_last_of_many_lanes_is_served_and_each_look_is_bounded(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    queue.enqueue_many(send.call(number) for number in range(3_000))
    ask(queue, "analyze pgqueue.jobs")
    last = max(ask(queue, "select lane, id from pgqueue.jobs"))[1]
    looks = 0
    while last not in claimed(workers):
        looks += 1
        assert looks <= 3_000 / 99 + 2


def test_a_worker_that_hangs_in_its_claim_stops_no_other_and_the_server_ends_it(
    queue: PgQueue, workers: Workers, send: Task[[int], None], dsn: str
) -> None:
    """As the worker's connection has it: a transaction that is idle for 5 s is ended, and its locks are free."""
    hung = ServedLanes(lambda: queue.limits, lambda: queue.limiting)
    connection = psycopg.connect(dsn)
    workers.claim(0, 0)  # the limit is stored
    send.enqueue(7)
    (claim,) = run(hung.claim(workers.ids[1], 9), StepRunner(connection, catalogue_of("pgqueue"))).claims
    assert workers.claim(0, 9).again_in == limits.AGAIN
    connection.execute("set idle_in_transaction_session_timeout = '200ms'")  # in the transaction that claims
    wait_until(lambda: claimed(workers) == [claim.id])
    with pytest.raises(psycopg.Error, match="idle-in-transaction"):
        connection.execute("select")
    connection.close()


def test_what_a_claim_stored_of_limits_is_stored_again_if_it_was_rolled_back(
    queue: PgQueue, workers: Workers, send: Task[[int], None], dsn: str
) -> None:
    """Else jobs that SQL enqueues would run without the limits of their task."""
    assert send.name in queue.tasks
    with psycopg.connect(dsn) as connection:
        run(workers.lanes[0].claim(workers.ids[0], 9), StepRunner(connection, catalogue_of("pgqueue")))
        connection.rollback()
    do(queue, workers.lanes[0].claim(workers.ids[0], 9))
    assert ask(queue, "select task from pgqueue.limited_tasks") == [("send",)]


def test_ready_jobs_of_a_limited_queue_count_from_claim_to_claim_and_a_pause_stops_them(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(name="plain", queue="mail")
    def plain() -> None: ...

    queue.control.limits.set("queue:mail", Limit(2))
    queue.enqueue_many(plain.call() for _ in range(5))
    queue.control.pause("mail")
    assert len(workers.claim(0, 9, limited=("mail",)).claims) == 0
    queue.control.resume("mail")
    assert len(workers.claim(0, 9, limited=("mail",)).claims) == 2
    assert len(workers.claim(1, 9, limited=("mail",)).claims) == 0


def test_what_an_operator_has_set_holds_when_another_release_declares_another_number(queue: PgQueue) -> None:
    do(queue, limits.declare({"name:api": Limit(1).numbers}))
    queue.control.limits.set("name:api", Limit(5))
    do(queue, limits.declare({"name:api": Limit(2).numbers}))
    assert [one.numbers[0] for one in queue.insight.limits()] == [5]


def test_a_worker_keeps_to_the_limit_of_a_queue_before_its_first_poll(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    queue.enqueue_many(send.call(number) for number in range(9))
    queue.control.limits.set("queue:default", Limit(2))
    assert len(workers.claim(0, 1).claims) == 1
    assert len(workers.claim(1, 9).claims) == 1
    assert len(workers.claim(1, 9).claims) == 0


def test_a_place_that_ready_jobs_do_not_use_goes_to_a_lane_at_once(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    queue.enqueue_many(send.call(number % 3) for number in range(9))
    queue.control.limits.set("queue:default", Limit(1))
    for _ in range(9):
        (claim,) = workers.claim(0, 9, limited=["default"]).claims
        do(queue, finish.record(workers.ids[0], [Succeeded(claim, 0.1)], keep=True))
