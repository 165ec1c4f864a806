"""Limits under hostile rows and settings: whatever one limit's rows say, jobs of other limits are claimed."""

from typing import LiteralString

import pytest
from limits.test_claims_from_lanes import NOON, Workers
from looking import ask
from promises.processes import do

from pgqueue import Limit, PgQueue, Rate
from pgqueue.store.limits import limits
from pgqueue.store.limits.served_lanes import START
from pgqueue.store.workers import upkeep


@pytest.fixture
def workers(queue: PgQueue) -> Workers:
    return Workers(queue)


def claimed(workers: Workers) -> list[str]:
    """The tasks of the jobs that a worker claims that has just polled."""
    polled = do(workers.queue, upkeep.poll(now=NOON))
    taken = workers.claim(0, 9, limited=polled.limited, weighted=polled.weighted, seen=polled.in_lanes)
    return sorted(one.task for one in taken.claims)


HOSTILE_LIMITS: dict[str, LiteralString] = {
    "every and burst at their end": "update pgqueue.limits set every = 9223372036854775807, burst = 9223372036854775807 where name = 'task:bad:per-second'",
    "every at its end": "update pgqueue.limits set every = 9223372036854775807 where name = 'task:bad:per-second'",
    "a rate that became a limit": "update pgqueue.limits set every = null, burst = null, most = 1 where name = 'task:bad:per-second'",
    "no place": "update pgqueue.limits set every = null, burst = null, most = 0 where name = 'task:bad:per-second'",
    "a state at the end of time": "insert into pgqueue.rates values ('task:bad:per-second', 9223372036854775807)",
    "a state before all times": "insert into pgqueue.rates values ('task:bad:per-second', -9223372036854775808)",
    "a weight of 0": "insert into pgqueue.limits (name, most, declared) values (' {\"tenant\":1}', 0, '')",
    "a weight that is a rate": "insert into pgqueue.limits (name, every, burst, declared) values (' {\"tenant\":1}', 5, 5, '')",
    "no name": "insert into pgqueue.limits (name, most, declared) values ('', 1, '')",
    "a queue of no name": "insert into pgqueue.limits (name, most, declared) values ('queue:', 1, '')",
    "a name of lines": "insert into pgqueue.limits (name, most, declared) values (E'task:bad\\nqueue:default', 0, '')",
    "no limits at all": "delete from pgqueue.limits",
    "a cost below 0": "update pgqueue.jobs set cost = -5 where task = 'bad'",
    "a cost of 0": "update pgqueue.jobs set cost = 0 where task = 'bad'",
    "a cost at its end": "update pgqueue.jobs set cost = 2147483647 where task = 'bad'",
    "a lane of no limit": "update pgqueue.jobs set lane = 'nothing' where task = 'bad'",
    "a lane of lines": "update pgqueue.jobs set lane = repeat(E'\\n', 2000) where task = 'bad'",
    "a lane of one key twice": "update pgqueue.jobs set lane = E'task:good\\ntask:good' where task = 'bad'",
    "an empty lane": "update pgqueue.jobs set lane = '' where task = 'bad'",
}


@pytest.mark.parametrize("statement", HOSTILE_LIMITS.values(), ids=HOSTILE_LIMITS.keys())
def test_hostile_rows_of_one_limit_keep_no_job_of_another_from_its_start(
    queue: PgQueue, workers: Workers, statement: LiteralString
) -> None:
    @queue.task(name="bad", limit=Rate("1/second", burst=9), fair_by="tenant")
    def bad(tenant: int) -> None: ...

    @queue.task(name="good", limit=Limit(1))
    def good() -> None: ...

    do(queue, limits.declare(queue.limits))
    queue.enqueue_many([bad.call(1), bad.call(1), good.call()])
    ask(queue, statement)
    assert "good" in claimed(workers)
    queue.insight.limits()
    for name in queue.limits:
        queue.insight.limit(name)


def test_a_rate_of_the_largest_numbers_that_are_allowed_starts_its_job(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(name="bad", limit=Rate("1/365d", burst=1_000_000, cost=1_000_000))
    def bad() -> None: ...

    queue.enqueue_many([bad.call(), bad.call()])
    assert claimed(workers) == ["bad"]
    assert claimed(workers) == []
    assert queue.insight.limit("task:bad:per-365d").keys[0].next_start is not None
    queue.control.limits.set("task:bad:per-365d", Rate("1/second"))
    queue.insight.limit("task:bad:per-365d")


def test_a_job_that_costs_more_than_the_burst_starts_when_the_burst_is_whole_and_keeps_no_lane(
    queue: PgQueue, workers: Workers
) -> None:
    """Its cost may be written by SQL, or the burst lowered after it was enqueued."""

    @queue.task(name="send", limit=Rate("10/second", burst=50, cost="size"))
    def send(size: int) -> None: ...

    queue.enqueue_many([send.call(40), send.call(1)])
    queue.control.limits.set("task:send:per-second", Rate("10/second", burst=5))
    first = workers.claim(0, 9, 0.0)
    assert [one.args for one in first.claims] == ['{"size":40}']
    later = workers.claim(0, 9, 5.0)
    assert [one.args for one in later.claims] == ['{"size":1}']


def test_lanes_of_a_queue_that_is_not_served_hide_no_lane_behind_them(queue: PgQueue) -> None:
    """No text is the last in every collation: in en_US.UTF-8 of the C library, U+10FFFF stands before all letters."""

    @queue.task(name="a", queue="a", limit=Limit(1))
    def a() -> None: ...

    @queue.task(name="b", queue="b", limit=Limit(1))
    def b() -> None: ...

    queue.enqueue_many([a.call(), b.call()])
    ask(queue, "update pgqueue.jobs set lane = chr(1114111) || lane where task = 'a'")
    found = do(queue, limits.find(["b"], START, 9))
    assert ([one.queue for one in found.lanes], found.looked_at) == (["b"], 2)
