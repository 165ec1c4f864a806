"""What an enqueue does while no place of its limit is free: in memory, on PostgreSQL, and in one open transaction of it."""

import pytest
from neighbours.places import a_clock, a_database, every_place, one_database

from pgqueue import JobState, Limit, PgQueue, Rate, chain
from pgqueue.errors import InvalidOption, LimitReached
from pgqueue.testing import drain
from pgqueue.values.jobs.job import Outcome

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


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
