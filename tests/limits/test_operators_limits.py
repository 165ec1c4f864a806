"""What operators say of limits, queues and shares, in drains on PostgreSQL and in one open transaction of it."""

from datetime import timedelta

import pytest
from neighbours.places import a_clock, a_database, each_database, one_database
from neighbours.test_testing_limits import ran

from pgqueue import Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption
from pgqueue.testing import Clock

queue, clock, emptied, database = each_database, a_clock, a_database, one_database


def test_an_operators_numbers_hold_until_they_are_unset(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=Rate("1/minute", by="api"))
    def call(api: str) -> None: ...

    control = queue.control.limits
    name = "task:call:api:per-minute"
    assert control.set(name, Rate("2/minute", burst=2)).numbers[1:] == (30_000_000, 2, "1/minute by api")
    for _ in range(4):
        call.enqueue("a")
    assert ran(queue) == ["a", "a"]
    found = queue.insight.limit(name)
    assert [(one.running, one.waiting) for one in found.keys] == [(0, 2)]
    assert found.keys[0].next_start == clock.now + timedelta(seconds=30)
    assert [(one.name, one.waiting) for one in queue.insight.limits()] == [(name, 2)]
    control.unset(name)
    assert queue.insight.limit(name).limit.numbers.burst == 1
    assert queue.insight.limit(name).limit.set_at is None
    clock.travel(30)
    assert ran(queue) == []  # of one start in a minute, two were taken
    for refused, wrong in (("task:cal", Rate("1/minute")), (name, Limit(2))):
        with pytest.raises(InvalidOption):
            control.set(refused, wrong)


def test_a_queue_is_limited_as_a_whole(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="plain")
    def plain(number: int) -> None: ...

    queue.control.limits.set("queue:default", Rate(every=10))
    for number in range(3):
        plain.enqueue(number)
    assert ran(queue) == [0]
    clock.travel(10)
    assert ran(queue) == [1]
    queue.control.limits.unset("queue:default")
    assert ran(queue) == [2]
    assert queue.insight.limits() == []


def test_a_share_has_its_weight(queue: PgQueue) -> None:
    @queue.task(name="render", fair_by="tenant")
    def render(tenant: str) -> None: ...

    queue.control.limits.weigh({"tenant": "a"}, 3)
    assert list(queue.insight.weights().values()) == [3]
    for tenant in "ab" * 8:
        render.enqueue(tenant)
    first = ran(queue)[:8]
    assert (first.count("a"), first.count("b")) == (6, 2)
    queue.control.limits.weigh({"tenant": "a"}, None)
    assert queue.insight.weights() == {}
