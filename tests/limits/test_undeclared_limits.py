"""Limits that no code declares any more: ``why`` names them, and the jobs that wait for them are freed or moved."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from looking import ask, until
from neighbours.places import a_clock, a_database, each_database, one_database
from promises.processes import LEASE, do, listed
from running import Running

from pgqueue import JobState, Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption
from pgqueue.store.limits import lanes, limit_control
from pgqueue.testing import drain
from pgqueue.values.limits.status import LaneChange

place, clock, emptied, database = each_database, a_clock, a_database, one_database
API, MAIL = "name:api", "name:mail"


def enqueued(queue: PgQueue, limit: Any, *customers: int, fair_by: str | None = None) -> list[int]:
    """Jobs of a task that has these limits, as a former release of the program enqueued them."""
    former = PgQueue("")

    @former.task(name="send", limit=limit, fair_by=fair_by)
    def send(customer: int) -> None: ...

    return [handle.id for handle in queue.enqueue_many(send.call(customer) for customer in customers)]


def declare(queue: PgQueue, *found: Limit | Rate) -> None:
    """Give this program's code a task with these limits; a worker of it, such as a drain, stores them."""

    @queue.task(name="other", limit=[*found])
    def other(customer: int = 0) -> None: ...

    drain(queue)


def test_why_names_the_limit_that_no_task_declares_and_how_its_jobs_are_freed(queue: PgQueue) -> None:
    (job,) = enqueued(queue, Limit(1, name="api"), 7)
    listed(queue, LEASE)
    frees = "no task declares this limit any more: `pgqueue limits delete name:api` frees its jobs"
    assert f"no numbers of limit 'name:api' are stored; {frees}" in queue.why(job).sentence

    @queue.task(name="other", limit=Limit(1, name="api"))
    def other() -> None: ...

    do(queue, lanes.declare_tasks(queue.limiting))
    assert "no task declares" not in queue.why(job).sentence
    ask(queue, "delete from pgqueue.limited_tasks")
    do(queue, lanes.declare(queue.limits))
    ask(queue, "update pgqueue.limits set most = 0")
    assert queue.why(job).sentence.endswith(frees)
    queue.control.limits.set("queue:default", Limit(1))
    ask(queue, "update pgqueue.limits set most = 0")
    ask(queue, "update pgqueue.jobs set lane = null, in_lane = null, status = 'ready'")
    assert "limit 'queue:default' is 0" in (said := queue.why(job).sentence)
    assert "no task declares" not in said


def test_why_of_a_rate_that_no_task_declares(queue: PgQueue) -> None:
    jobs = enqueued(queue, Rate("1/hour", name="api"), 7, 8)
    former = PgQueue(queue.database.dsn)

    @former.task(name="send", limit=Rate("1/hour", name="api"))
    def send(customer: int) -> None: ...

    drain(former)
    former.close()
    ask(queue, "delete from pgqueue.limited_tasks")
    listed(queue, LEASE)
    said = queue.why(jobs[1]).sentence
    assert "rate 'name:api' opens in " in said
    assert "no task declares this limit any more" in said


def test_a_deleted_limit_frees_its_jobs_and_leaves_them_their_other_limits(place: PgQueue) -> None:
    freed = enqueued(place, Limit(1, name="api", by="customer"), 7, 8)
    shared = enqueued(place, Limit(1, name="api"), 7, fair_by="customer")
    both = enqueued(place, [Limit(1, name="api"), Rate("1/hour", name="mail")], 7)
    declare(place, Rate("1/hour", name="mail"))
    assert place.control.limits.delete(API) == LaneChange(4)
    assert [place.job(job).state for job in freed] == [JobState.READY] * 2
    assert [place.job(job).state for job in (*shared, *both)] == [
        JobState.BLOCKED
    ] * 2  # in turn, and for mail
    assert API not in place.why(both[0]).sentence
    assert [(one.name, one.waiting) for one in place.insight.limits()] == [(MAIL, 1)]
    with pytest.raises(InvalidOption, match="'name:api': there is none of this name"):
        place.control.limits.delete(API)
    with pytest.raises(InvalidOption, match="the code declares it, so a worker would store it again"):
        place.control.limits.delete(MAIL)


def test_the_jobs_of_a_limit_move_to_another_by_the_same_values_or_to_none(place: PgQueue) -> None:
    jobs = enqueued(place, Limit(1, name="api", by="customer"), 7, 8)
    declare(place, Limit(5, name="mail", by="customer"), Limit(5, name="whole"))
    move = place.control.limits.move
    assert move(API, MAIL) == LaneChange(2)
    assert {one.key for one in place.insight.limit(MAIL).keys} == {
        f'{MAIL} {{"customer":{customer}}}' for customer in (7, 8)
    }
    for name, to, said in (
        (MAIL, "name:whole", "is by customer, and 'name:whole' by no argument"),
        (MAIL, MAIL, "name another limit"),
        (MAIL, "name:mial", "did you mean 'name:mail'"),
        (API, MAIL, "there is none of this name"),
        (MAIL, "queue:default", "is of a queue as a whole"),
        ("queue:default", None, "there is none of this name"),
    ):
        with pytest.raises(InvalidOption, match=said):
            move(name, to)
    assert move(MAIL, None) == LaneChange(2)
    assert [place.job(job).state for job in jobs] == [JobState.READY] * 2
    assert MAIL in {one.name for one in place.insight.limits()}  # it stays


async def test_each_method_has_an_awaited_twin(queue: PgQueue) -> None:
    enqueued(queue, Limit(1, name="api"), 7)
    assert await queue.control.limits.amove(API, None) == LaneChange(1)
    enqueued(queue, Limit(1, name="api"), 7)
    assert await queue.control.limits.adelete(API) == LaneChange(1)


def test_a_limit_for_which_jobs_would_wait_for_ever_is_not_forgotten(queue: PgQueue) -> None:
    """A program that does not know the task may forget the numbers: a worker that knows it stores them again."""
    enqueued(queue, Limit(1, name="api"), 7)
    control = queue.control.limits
    ask(queue, "insert into pgqueue.limits (name, most, declared) values ('name:api', 1, '')")
    with pytest.raises(
        InvalidOption, match="no task declares it, and 1 jobs have it; `pgqueue limits delete`"
    ):
        control.unset(API)
    has_it = '[{"limit": "name:api", "by": []}]'
    ask(queue, "insert into pgqueue.limited_tasks (task, keys) values ('send', %s::jsonb)", has_it)
    control.unset(API)
    assert queue.insight.limits() == []


def test_jobs_that_run_or_wait_elsewhere_leave_the_lane_too_so_a_retry_does_not_bring_them_back(
    queue: PgQueue,
) -> None:
    running, scheduled = enqueued(queue, Limit(1, name="api", ordered=True), 7, 8)
    kept, other = enqueued(queue, Limit(1, name="api"), 7, 8)
    ask(queue, "update pgqueue.jobs set status = 'running', worker_id = %s where id = %s", uuid4(), running)
    ask(queue, "update pgqueue.jobs set status = 'scheduled', place_at = now() where id = %s", scheduled)
    ask(queue, "update pgqueue.jobs set status = 'blocked', in_lane = null where id = %s", other)
    assert queue.control.limits.delete(API) == LaneChange(4)
    found = ask(queue, "select id, status::text, lane, in_lane, place_at from pgqueue.jobs order by id")
    assert found == [
        (running, "running", "", None, None), (scheduled, "scheduled", None, None, None),
        (kept, "ready", None, None, None), (other, "blocked", None, None, None),
    ]  # fmt: skip


def test_many_jobs_are_freed_in_portions_and_those_that_others_have_locked_are_tried_again(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "AT_ONCE", 3)
    monkeypatch.setattr(lanes, "PAUSE", 0.0)
    jobs = enqueued(queue, Limit(1, name="api"), *range(8))
    with psycopg.connect(dsn) as other:
        other.execute("select from pgqueue.jobs where id = %s for update", [jobs[4]])
        assert do(queue, lanes.relane(API, None)) == LaneChange(7, 1)
        ask(queue, "insert into pgqueue.limits (name, most, declared) values (%s, 1, '')", API)
        assert do(queue, limit_control.delete(API, {}, by="ann")) == LaneChange(0, 1)
        assert API in do(queue, limit_control.stored())  # else the job that is left would wait for ever
    assert do(queue, limit_control.delete(API, {}, by="ann")) == LaneChange(1)
    assert API not in do(queue, limit_control.stored())


async def test_a_worker_runs_the_jobs_that_are_freed(queue: PgQueue, running: Running) -> None:
    """Their task is there, and its limit no more."""
    jobs = enqueued(queue, Rate("1/hour", name="api"), *range(5))

    @queue.task(name="send")
    async def send(customer: int) -> None: ...

    async with running(queue):
        queue.control.limits.delete(API)
        await until(lambda: {queue.job(job).state for job in jobs} == {JobState.SUCCEEDED})


LANES = [
    "a",
    'a {"x":1}',
    'a {"x":1}\na {"x":2}\nb {"x":1}',
    'ab\nc\n {"t":1}',
    'a {"x":1}\n {"t":1}',
    'Z\na\nzz {"x":1}',
]
WITHOUT_A = [None, None, 'b {"x":1}', 'ab\nc\n {"t":1}', ' {"t":1}', 'Z\nzz {"x":1}']
A_AS_B = [
    "b",
    'b {"x":1}',
    'b {"x":1}\nb {"x":2}',
    'ab\nc\n {"t":1}',
    'b {"x":1}\n {"t":1}',
    'Z\nb\nzz {"x":1}',
]
A_AS_ZZ = [
    "zz",
    'zz {"x":1}',
    'b {"x":1}\nzz {"x":1}\nzz {"x":2}',
    'ab\nc\n {"t":1}',
    'zz {"x":1}\n {"t":1}',
    'Z\nzz\nzz {"x":1}',
]


@pytest.mark.parametrize(("to", "lanes_then"), [(None, WITHOUT_A), ("b", A_AS_B), ("zz", A_AS_ZZ)])
def test_a_moved_limit_has_another_name_in_each_lane_and_the_keys_of_a_lane_stay_in_order(
    queue: PgQueue, to: str | None, lanes_then: list[str | None]
) -> None:
    jobs = enqueued(queue, Limit(1, name="api"), *range(len(LANES)))
    for job, lane in zip(jobs, LANES, strict=True):
        ask(queue, "update pgqueue.jobs set lane = %s where id = %s", lane, job)
    do(queue, lanes.relane("a", to))
    found = [lane for (lane,) in ask(queue, "select lane from pgqueue.jobs order by id")]
    assert found == lanes_then
