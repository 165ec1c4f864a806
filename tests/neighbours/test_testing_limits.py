"""Limits, rates and shares in drains on PostgreSQL, and in one open transaction of it. In memory they hold no job back.

What an enqueue does while no place of its limit is free: in memory, on PostgreSQL, and in one open transaction of it.
"""

import pytest
from neighbours.places import a_clock, a_database, every_place, not_in_memory, one_database
from tenacity import wait_fixed

from pgqueue import JobState, Limit, PgQueue, Rate, Retry, chain
from pgqueue.errors import InvalidOption, LimitReached
from pgqueue.testing import Clock, drain, in_memory
from pgqueue.testing.trouble import dying
from pgqueue.values.jobs.job import Outcome

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


def ran(queue: PgQueue) -> list[object]:
    return [next(iter(one.args.values()), None) for one in drain(queue)]


def test_a_limited_job_is_blocked_in_its_lane_until_it_runs(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, by="customer"))
    def send(customer: int) -> int:
        return customer

    job = send.enqueue(7)
    assert job.status() is JobState.BLOCKED
    assert ran(queue) == [7]
    assert job.result() == 7


@not_in_memory
def test_an_interval_starts_one_job_at_each_of_its_instants(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=Rate(every=60))
    def call(number: int) -> None: ...

    for number in range(3):
        call.enqueue(number)
    assert ran(queue) == [0]
    clock.travel(59)
    assert ran(queue) == []
    clock.travel(1)
    assert ran(queue) == [1]
    clock.travel(600)  # after a pause no start is made up for
    assert ran(queue) == [2]
    call.enqueue(3)
    assert ran(queue) == []


@not_in_memory
def test_a_rate_has_its_burst_and_each_key_its_own(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=Rate("2/minute", burst=3, by="api"))
    def call(api: str) -> None: ...

    for api in "aaaaab":
        call.enqueue(api)
    assert sorted(map(str, ran(queue))) == ["a", "a", "a", "b"]
    clock.travel(30)
    assert ran(queue) == ["a"]


@not_in_memory
def test_a_start_takes_what_its_argument_costs(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=Rate("60/minute", burst=10, cost="size"))
    def call(size: int) -> None: ...

    call.enqueue(10)
    call.enqueue(5)
    call.enqueue(1)
    assert ran(queue) == [10]
    clock.travel(4)
    assert ran(queue) == []
    clock.travel(1)
    assert ran(queue) == [5]
    clock.travel(1)
    assert ran(queue) == [1]


@not_in_memory
def test_a_job_has_all_its_limits(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=[Rate("10/second", burst=2), Rate("3/minute", burst=3), Limit(5)])
    def call(number: int) -> None: ...

    for number in range(6):
        call.enqueue(number)
    assert ran(queue) == [0, 1]
    clock.travel(10)
    assert ran(queue) == [2]
    clock.travel(10)
    assert ran(queue) == [3]


@not_in_memory
def test_tasks_share_a_limit_by_its_name(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="one", limit=Rate(every=10, name="api"))
    def one(number: int) -> None: ...

    @queue.task(name="two", limit=Rate(every=10, name="api"))
    def two(number: int) -> None: ...

    one.enqueue(1)
    two.enqueue(2)
    assert ran(queue) == [1]
    clock.travel(10)
    assert ran(queue) == [2]


@not_in_memory
def test_tenants_take_turns_and_their_jobs_keep_their_order(queue: PgQueue) -> None:
    @queue.task(name="work", fair_by="tenant")
    def work(tenant: str, number: int) -> None: ...

    for number in range(5):
        work.enqueue("many", number)
    work.using(priority=5).enqueue("many", 9)
    work.enqueue("few", 0)
    work.enqueue("few", 1)
    order = [(one.args["tenant"], one.args["number"]) for one in drain(queue)]
    assert [number for tenant, number in order if tenant == "many"] == [9, 0, 1, 2, 3, 4]
    assert [tenant for tenant, _ in order[:4]].count("few") == 2


@not_in_memory
def test_jobs_without_limits_are_not_kept_by_those_that_wait(queue: PgQueue) -> None:
    @queue.task(name="slow", limit=Rate("1/day"))
    def slow(number: int) -> None: ...

    @queue.task(name="free")
    def free(number: int) -> None: ...

    for number in range(3):
        slow.enqueue(number)
        free.enqueue(10 + number)
    assert sorted(map(str, ran(queue))) == ["0", "10", "11", "12"]


@not_in_memory
def test_a_retried_job_waits_for_its_limits_again(queue: PgQueue, clock: Clock) -> None:
    calls = []

    @queue.task(name="call", limit=Rate(every=60), retry=3)
    def call(number: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            raise ValueError

    call.enqueue(1)
    call.enqueue(2)
    drain(queue, raises=False)
    clock.travel(30)
    assert ran(queue) == []  # every start counts
    clock.travel(30)
    drain(queue)
    assert len(calls) == 2


@not_in_memory
def test_the_place_of_a_lost_worker_is_free_after_its_lease(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=Limit(1))
    def call(number: int) -> None: ...

    call.enqueue(1)
    call.enqueue(2)
    with dying(call):
        drain(queue)
    assert [one.args["number"] for one in drain(queue)] == []
    clock.travel(31)
    assert sorted(map(str, ran(queue))) == ["1", "2"]


def test_in_memory_a_drain_runs_every_job_whatever_its_limits() -> None:
    queue = PgQueue("")

    @queue.task(name="call", limit=[Rate("1/day"), Limit(1)], fair_by="tenant")
    def call(tenant: int) -> None: ...

    with in_memory(queue):
        queue.enqueue_many(call.call(number) for number in range(3))
        assert ran(queue) == [0, 1, 2]


@not_in_memory
def test_a_job_of_an_ordered_limit_keeps_its_place_while_it_waits_for_its_retry(
    queue: PgQueue, clock: Clock
) -> None:
    fails = [True]

    @queue.task(name="post", limit=Limit(1, by="account", ordered=True), retry=Retry(wait=wait_fixed(60)))
    def post(account: int, number: int) -> int:  # noqa: ARG001 - the key
        if number == 0 and fails.pop():
            fails.append(False)
            raise ValueError
        return number

    jobs = [post.enqueue(7, number) for number in range(3)]
    drain(queue, raises=False)
    assert [one.status() for one in jobs] == ["scheduled", "blocked", "blocked"]
    (shown,) = queue.insight.limit("task:post:account").keys
    assert (shown.running, shown.waiting) == (1, 2)
    clock.travel(60)
    done = drain(queue)
    assert [one.args["number"] for one in done] == [0, 1, 2]


def test_a_limit_that_refuses_adds_no_job_while_its_places_are_taken(queue: PgQueue) -> None:
    @queue.task(name="sync", limit=Limit(2, by="customer", when_full="refuse"))
    def sync(customer: int) -> None: ...

    jobs = [sync.enqueue(7), sync.enqueue(7), sync.enqueue(8)]
    with pytest.raises(LimitReached, match=r"limit 'task:sync:customer' is full: all 2 places") as refused:
        sync.enqueue(7)
    assert (refused.value.limit, refused.value.most) == ("task:sync:customer", 2)
    with pytest.raises(LimitReached):
        queue.enqueue_many([sync.call(9), sync.call(9), sync.call(9)])
    assert len(queue.insight.search().jobs) == 3
    assert len(drain(queue)) == 3
    assert sync.enqueue(7).status() is JobState.BLOCKED
    assert {job.status() for job in jobs} == {JobState.SUCCEEDED}


def test_the_newest_job_waits_in_place_of_the_others(queue: PgQueue) -> None:
    @queue.task(name="render", limit=Limit(1, by="page", when_full="newest"))
    def render(page: int, version: int) -> tuple[int, int]:
        return page, version

    first, second, third = (render.enqueue(1, version) for version in range(3))
    other = render.enqueue(2, 9)
    assert [first.status(), second.status(), third.status()] == [
        JobState.CANCELLED,
        JobState.CANCELLED,
        JobState.BLOCKED,
    ]
    assert sorted(one.result()[1] for one in (third, other) if drain(queue) is not None) == [2, 9]


def test_the_oldest_job_waits_and_further_ones_are_not_added(queue: PgQueue) -> None:
    @queue.task(name="render", limit=Limit(1, when_full="oldest"))
    def render(version: int) -> int:
        return version

    first, second = render.enqueue(1), render.enqueue(2)
    assert (second.id, second.outcome) == (first.id, Outcome.REJECTED)
    third, fourth = queue.enqueue_many([render.call(3), render.call(4)])
    assert {third.id, fourth.id} == {first.id}
    drain(queue)
    assert first.result() == 1
    assert render.enqueue(5).outcome is Outcome.ADDED


def test_a_limit_that_decides_at_the_enqueue_is_alone_and_not_in_a_flow(queue: PgQueue) -> None:
    full = Limit(1, when_full="newest")
    cases: list[tuple[Limit | list[Limit | Rate], str | None]] = [
        ([full, Rate("5/minute")], None),
        (full, "page"),
    ]
    for limit, fair_by in cases:
        with pytest.raises(InvalidOption, match=r"must be the only one"):
            queue.task(name="render", limit=limit, fair_by=fair_by)(lambda page: page)
    with pytest.raises(
        InvalidOption, match=r"when_full='drop'\)?: use one of 'wait', 'refuse', 'newest', 'oldest'"
    ):
        Limit(1, when_full="drop")  # type: ignore[arg-type]  # what a user may type

    @queue.task(name="render", limit=full)
    def render(page: int) -> None: ...

    with pytest.raises(InvalidOption, match="decides at the enqueue"):
        chain(render.call(1), render.call(2)).enqueue()
    assert queue.insight.search().jobs == ()
