"""Takes of limited jobs: they are claimed from their lanes, under the same limits as a worker's."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from looking import ask

from pgqueue import Limit, PgQueue, Rate, Task

HELD = threading.Lock()
BEGUN = "select bool_and(clock_timestamp() >= to_timestamp((tat - 100000) / 1e6)) from pgqueue.rates"
"""Whether the last start of each key of a rate of 0.1 s is over: its state is the instant of the next one."""


def pulling(queue: PgQueue, **options: object) -> Task[[int], None]:
    @queue.task(name="pull", **options)  # type: ignore[call-overload, untyped-decorator]  # any options
    def pull(customer: int) -> None: ...

    return pull  # type: ignore[no-any-return]


@pytest.mark.parametrize("limited", ["a task", "a queue as a whole"])
def test_a_take_gets_no_more_jobs_than_have_a_place_and_a_place_is_free_when_its_job_ends(
    queue: PgQueue, limited: str
) -> None:
    pull = pulling(queue, **({"limit": Limit(2)} if limited == "a task" else {}))
    if limited != "a task":
        queue.control.limits.set("queue:default", Limit(2))
    ids = [job.id for job in queue.enqueue_many(pull.call(1) for _ in range(5))]

    with queue.take(5, timeout=30) as jobs:
        assert [job.id for job in jobs] == ids[:2]
        with queue.take(5, timeout=0) as others:
            assert others == []
        jobs[0].complete()
        with queue.take(5, timeout=0) as others:
            assert [job.id for job in others] == ids[2:3]
    with queue.take(5, timeout=30) as jobs:
        assert [job.id for job in jobs] == ids[3:]


async def test_an_awaited_take_does_the_same(queue: PgQueue) -> None:
    pull = pulling(queue, limit=Limit(1, by=("customer",)))
    handles = await queue.aenqueue_many(pull.call(number % 2) for number in range(4))

    async with queue.atake(5, timeout=30) as jobs, queue.atake(5, timeout=0) as others:
        assert (sorted(job.args["customer"] for job in jobs), others) == ([0, 1], [])
    async with queue.atake(5, timeout=30) as jobs:
        assert sorted(job.id for job in jobs) == sorted(handle.id for handle in handles)[2:]


def test_takes_at_once_never_hold_more_of_a_key_than_its_limit_and_each_job_once(queue: PgQueue) -> None:
    pull = pulling(queue, limit=Limit(2, by=("customer",)))
    ids = [job.id for job in queue.enqueue_many(pull.call(number % 3) for number in range(90))]
    held, most, ended = Counter[int](), Counter[int](), list[int]()

    def work() -> None:
        while True:
            with queue.take(4, timeout=0) as jobs:
                with HELD:
                    held.update(job.args["customer"] for job in jobs)
                    most.update({key: held[key] - most[key] for key in held if held[key] > most[key]})
                for job in jobs:
                    with HELD:  # before the database has it: a place is never free too early
                        held[job.args["customer"]] -= 1
                        ended.append(job.id)
                    job.complete()
            if not jobs and len(ended) == len(ids):
                return

    with ThreadPoolExecutor(5) as threads:
        for one in [threads.submit(work) for _ in range(5)]:
            one.result(timeout=120)

    assert sorted(ended) == ids
    assert set(most.values()) == {2}


def test_a_take_waits_for_the_instant_of_a_rate_and_hands_over_no_job_before_it(queue: PgQueue) -> None:
    pull = pulling(queue, limit=Rate(every=0.1))
    queue.enqueue_many(pull.call(1) for _ in range(4))

    for _ in range(4):
        with queue.take(4, timeout=30) as jobs:
            assert (len(jobs), ask(queue, BEGUN)) == (1, [(True,)])


def test_limited_and_other_jobs_are_taken_in_turn_though_both_have_many(queue: PgQueue) -> None:
    pull = pulling(queue, limit=Limit(10))

    @queue.task(name="free")
    def free() -> None: ...

    queue.enqueue_many([*(pull.call(1) for _ in range(4)), *(free.call() for _ in range(4))])
    taken = Counter[str]()
    for _ in range(4):
        with queue.take(1, timeout=30) as jobs:
            taken.update(job.task for job in jobs)

    assert taken == {"pull": 2, "free": 2}
