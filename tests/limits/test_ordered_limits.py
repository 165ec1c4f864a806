"""Ordered limits: a job keeps its place until it has ended, however long it waits for its retry."""

import json
import math
from collections.abc import Sequence
from datetime import timedelta

import pytest
from limits.test_claims_from_lanes import NOON, Workers
from looking import ask
from promises.processes import do

from pgqueue import Limit, PgQueue, Rate, Task
from pgqueue.errors import InvalidOption
from pgqueue.store.arrays import texts
from pgqueue.store.jobs import finish
from pgqueue.store.limits import lanes
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import Again, Died, Succeeded, Verdict
from pgqueue.values.limits.task_limits import limits_of_task

SECOND = timedelta(seconds=1)


@pytest.fixture
def workers(queue: PgQueue) -> Workers:
    return Workers(queue)


@pytest.fixture
def post(queue: PgQueue) -> Task[[int, int], None]:
    @queue.task(name="post", limit=Limit(1, by="account", ordered=True))
    def post(account: int, number: int) -> None: ...

    return post


def again(claim: Claim, delay: timedelta) -> Again:
    return Again(claim, delay, AttemptError(claim.attempt, "Error", "it failed"))


class Shift:
    """Two workers that claim one job each time, at seconds after noon."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.turn = 0

    def claim(self, seconds: float = 0.0) -> list[Claim]:
        self.turn = 1 - self.turn
        do(self.workers.queue, upkeep.poll(now=NOON + seconds * SECOND))
        return [*self.workers.claim(self.turn, 9, seconds).claims]

    def numbers(self, seconds: float = 0.0) -> list[int]:
        """Claim, and let the jobs succeed: their numbers."""
        claims = self.claim(seconds)
        for one in claims:
            self.record(Succeeded(one, 0.1), seconds)
        return [json.loads(one.args)["number"] for one in claims]

    def record(self, verdict: Verdict, seconds: float = 0.0) -> None:
        now = NOON + seconds * SECOND
        worker = verdict.claim.worker_id
        assert do(self.workers.queue, finish.record(worker, [verdict], keep=True, now=now))


@pytest.fixture
def shift(workers: Workers) -> Shift:
    return Shift(workers)


def test_without_an_order_the_next_job_of_the_key_goes_ahead(shift: Shift, queue: PgQueue) -> None:
    @queue.task(name="plain", limit=Limit(1, by="account"))
    def plain(account: int, number: int) -> None: ...

    queue.enqueue_many(plain.call(7, number) for number in range(2))
    (first,) = shift.claim()
    shift.record(again(first, SECOND))
    assert shift.numbers() == [1]


def test_its_place_is_free_when_it_ends_and_when_it_is_dead_it_comes_back_as_the_last(
    shift: Shift, queue: PgQueue, post: Task[[int, int], None]
) -> None:
    handles = queue.enqueue_many(post.call(7, number) for number in range(4))
    (first,) = shift.claim()
    shift.record(again(first, SECOND * 60))
    assert handles[0].cancel()
    (second,) = shift.claim()
    shift.record(Died(second, 0.1, "asked", AttemptError(1, "Dead", "no")))
    assert queue.retry(second.id)
    assert [shift.numbers(), shift.numbers(), shift.numbers()] == [[2], [3], [1]]


def test_an_operator_runs_the_retry_at_once_and_moves_its_lane(
    shift: Shift, queue: PgQueue, post: Task[[int, int], None]
) -> None:
    handles = queue.enqueue_many(post.call(7, number) for number in range(2))
    (first,) = shift.claim()
    shift.record(again(first, SECOND * 3600))
    moved = queue.control.jobs(task="post").move("else")
    assert moved.done == 2
    assert shift.claim() == []
    assert queue.control.run_now(handles[0].id)
    assert [shift.numbers(), shift.numbers()] == [[0], [1]]


def test_a_lost_workers_job_keeps_its_place(
    shift: Shift, queue: PgQueue, post: Task[[int, int], None]
) -> None:
    handles = queue.enqueue_many(post.call(7, number) for number in range(2))
    (first,) = shift.claim()
    ask(queue, "delete from pgqueue.workers where id = %s", first.worker_id)
    assert do(queue, upkeep.reclaim())
    claims = shift.claim(3600.0)
    assert [one.id for one in claims] == [handles[0].id]


def test_a_claim_reads_the_kept_places_of_its_own_keys_only(
    shift: Shift, queue: PgQueue, post: Task[[int, int], None]
) -> None:
    """Else each claim would read all of 100,000 keys whose first jobs wait for their retries."""
    queue.enqueue_many(post.call(account, 0) for account in range(5))
    for claim in shift.claim():
        shift.record(again(claim, SECOND * 60))

    @plan
    def held() -> Steps[Sequence[Row]]:
        keys = texts(['task:post:account {"account":3}', "name:other"])
        return (yield Statement("limits/running", {"keys": keys, "since": 0}))

    assert do(queue, held()) == [(None, 'task:post:account {"account":3}', 1, None)]


def test_a_kept_place_is_one_of_its_keys_and_none_of_the_queue_as_a_whole(
    shift: Shift, queue: PgQueue, post: Task[[int, int], None]
) -> None:
    """Else jobs that wait for a server that is down would stop their queue."""
    queue.control.limits.set("queue:default", Limit(1))
    for worker in (0, 1):
        shift.workers.claim(worker, 0, limited=["default"])
    queue.enqueue_many(post.call(account, number) for account in (7, 8) for number in (0, 1))
    (first,) = shift.claim()
    shift.record(again(first, SECOND * 60))
    assert {one.name: one.running for one in queue.insight.limits()} == {
        "queue:default": 0, "task:post:account": 1,
    }  # fmt: skip
    assert [shift.numbers(), shift.numbers(), shift.numbers()] == [[0], [1], []]


def test_an_order_is_of_jobs_that_wait_and_run_one_at_a_time() -> None:
    for refused in ({"most": 2}, {"most": 1, "when_full": "oldest"}):
        with pytest.raises(InvalidOption, match="have an order"):
            Limit(**refused, ordered=True)


def test_an_operator_does_not_give_an_order(queue: PgQueue, post: Task[[int, int], None]) -> None:  # noqa: ARG001 - it declares
    with pytest.raises(InvalidOption, match="give only numbers"):
        queue.control.limits.set("task:post:account", Limit(1, ordered=True))


def test_jobs_of_sql_know_the_defaults_of_arguments(shift: Shift, queue: PgQueue) -> None:
    @queue.task(name="send", limit=Rate("10/second", burst=50, by=("kind", "customer", "rate"), cost="size"))
    def send(customer: int, kind: str = "mail", size: int = 40, rate: float | None = math.nan) -> None: ...

    python = [
        send.call(7),
        send.call(7, "mail", 40),
        send.call(7, "sms"),
        send.call(7, size=3),
        send.call(7, rate=None),
    ]
    queue.enqueue_many(python)
    shift.workers.claim(0, 0)  # a worker stores what its tasks say
    for args in (
        '{"customer": 7}',
        '{"customer": 7, "kind": "mail", "size": 40}',
        '{"customer": 7, "kind": "sms"}',
        '{"customer": 7, "size": 3}',
        '{"customer": 7, "rate": null}',
    ):
        ask(queue, "select pgqueue.enqueue('send', %s::jsonb)", args)
    rows = ask(queue, "select lane, cost from pgqueue.jobs order by id")
    assert rows[:5] == rows[5:]
    assert [cost for _, cost in rows[:5]] == [40, 40, 40, 3, 40]


def test_arguments_that_jsonb_cannot_hold_have_a_lane_too(shift: Shift, queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, by="customer"))
    def send(customer: int = 1) -> None: ...

    shift.workers.claim(0, 0)
    (job_id,) = ask(
        queue,
        """insert into pgqueue.jobs (task, args) values ('send', '{"customer": 1e400000}') returning id""",
    )[0]
    ask(queue, "select pgqueue.put_in_lanes(array[%s::bigint])", job_id)
    assert ask(queue, "select in_lane from pgqueue.jobs") == [(True,)]


def test_a_task_may_become_ordered_and_plain_again(queue: PgQueue) -> None:
    for ordered in (True, False, True):
        said = limits_of_task("post", Limit(1, ordered=ordered), None)
        do(queue, lanes.declare_tasks({"post": said}))
        assert ask(queue, "select ordered from pgqueue.limited_tasks") == [(ordered,)]
