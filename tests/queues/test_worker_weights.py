"""A worker serves queues by weights, in a strict order, by patterns and without what is excluded."""

from collections import Counter
from typing import Any

import pytest
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import Context, JobState, Limit, PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.worker.worker import Worker

FILL = "insert into pgqueue.jobs (queue, task) select %s, 'note' from generate_series(1, %s) returning 1"


@pytest.fixture
def order(queue: PgQueue) -> list[str]:
    """The queues of the jobs of the task ``note``, in the order in which they started."""
    started: list[str] = []

    @queue.task(name="note")
    async def note(ctx: Context) -> None:
        started.append(ctx.job.queue)

    return started


async def until_run(order: list[str], count: int) -> None:
    await until(lambda: len(order) >= count)


@pytest.mark.parametrize("concurrency", [1, 20])
async def test_any_1000_jobs_are_shared_as_the_weights_say(
    queue: PgQueue, running: Running, order: list[str], concurrency: int
) -> None:
    ask(queue, FILL, "reports", 2_000)  # enqueued first, so they would come first
    ask(queue, FILL, "mail", 5_000)
    async with running(queue, queues={"mail": 5, "reports": 1}, concurrency=concurrency):
        await until_run(order, 4_500)
    for first in range(0, 3_400, 50):
        share = Counter(order[first : first + 1_000])["reports"]
        assert 150 <= share <= 184, f"{share} of the jobs {first} to {first + 1_000} are of the lighter queue"


async def test_an_empty_queues_share_goes_to_the_others_at_once(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    ask(queue, FILL, "reports", 1_500)
    async with running(queue, queues=["mail:5", "reports:1"]):
        await until_run(order, 1_500)
        ask(queue, FILL, "mail", 600)
        ask(queue, FILL, "reports", 600)
        await until_run(order, 2_700)
    assert set(order[:1_500]) == {"reports"}


async def test_a_strict_order_runs_a_queue_only_while_those_before_it_are_empty(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    ask(queue, FILL, "low", 1_200)
    ask(queue, FILL, "high", 1_200)
    async with running(queue, queues=["high", "low"], order="strict"):
        await until_run(order, 2_400)
    assert order == ["high"] * 1_200 + ["low"] * 1_200


async def test_patterns_and_exclusions_apply_to_queues_that_appear_later(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    task = queue.tasks["note"]
    async with running(queue, queues=["mail-*", "!mail-bulk"]):
        await ended(queue, task.using(queue="mail-a").enqueue())
        left = [task.using(queue=name).enqueue() for name in ("mail-bulk", "reports", "mail")]
        await ended(queue, task.using(queue="mail-new").enqueue())
        await ended(queue, task.using(queue="mail-a").enqueue())
    assert order == ["mail-a", "mail-new", "mail-a"]
    assert {job.status() for job in left} == {JobState.READY}


async def test_where_there_are_many_queues_the_excluded_are_left_out_too(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task) select 'tenant-' || n, 'note' from generate_series(1, 1200) n returning 1",
    )
    async with running(queue, queues=["tenant-1*", "!tenant-11*"]):
        names = [f"tenant-{n}" for n in range(1, 1201)]
        wanted = [name for name in names if name.startswith("tenant-1") and not name.startswith("tenant-11")]
        await until_run(order, len(wanted))
        ask(queue, FILL, "tenant-12345", 1)
        await until_run(order, len(wanted) + 1)
    assert sorted(order) == sorted([*wanted, "tenant-12345"])


async def test_why_knows_which_worker_serves_a_queue_by_a_pattern(queue: PgQueue, running: Running) -> None:
    served, left = (queue.task(name=name, queue=name)(lambda: None) for name in ("mail-a", "mail-bulk"))
    async with running(queue, queues=["mail-*", "!mail-bulk"]):
        await ended(queue, served.enqueue())
        job = left.enqueue()
        assert "the only live worker does not serve queue 'mail-bulk'" in queue.why(job.id).sentence
    for pattern, name, serves in (
        ("mail-*", "mail-a", True),
        ("mail-*", "mail", False),
        ("m_il*", "mail", False),
        ("m%", "mail", False),
        ("a\\*", "a\\b", True),
        ("*", "x", True),
        ("!x", "y", True),
        ("!x", "x", False),
    ):
        assert ask(queue, "select pgqueue.serves(array[%s], %s)", pattern, name) == [(serves,)], (
            pattern,
            name,
        )
    assert ask(
        queue, "select pgqueue.serves(null, 'x'), pgqueue.serves('{mail*,!mail-b*}', 'mail-bulk')"
    ) == [(True, False)]


def test_weights_and_a_strict_order_contradict_each_other(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="contradict each other"):
        Worker(queue, queues={"mail": 5}, order="strict")


@pytest.mark.parametrize("of_limited_tasks", [("mail",), ("half reports",), ("mail", "reports")])
async def test_weights_hold_also_where_limited_jobs_wait_in_their_lanes(
    queue: PgQueue, running: Running, order: list[str], of_limited_tasks: tuple[str, ...]
) -> None:
    fill_limited(queue, order, of_limited_tasks, mail=2_500, reports=1_200)
    async with running(queue, queues={"mail": 5, "reports": 1}, concurrency=20):
        await until_run(order, 2_000)
    for first in range(0, 1_000, 100):
        share = Counter(order[first : first + 1_000])["reports"]
        assert 150 <= share <= 184, f"{share} of the jobs {first} to {first + 1_000} are of the lighter queue"


@pytest.mark.parametrize("of_limited_tasks", [("high",), ("low",), ("high", "low")])
async def test_a_strict_order_holds_also_where_limited_jobs_wait_in_their_lanes(
    queue: PgQueue, running: Running, order: list[str], of_limited_tasks: tuple[str, ...]
) -> None:
    fill_limited(queue, order, of_limited_tasks, low=300, high=900)
    async with running(queue, queues=["high", "low"], order="strict"):
        await until_run(order, 1_200)
    assert order == ["high"] * 900 + ["low"] * 300


def fill_limited(queue: PgQueue, order: list[str], limited: tuple[str, ...], **jobs: int) -> None:
    """Enqueue so many jobs to each queue. All or ``half`` of those of some are of a task with seven lanes, which are never full."""

    @queue.task(name="note_limited", limit=Limit(1_000, by="lane"))
    async def note_limited(ctx: Context, lane: int) -> None:  # noqa: ARG001 - names the lane
        order.append(ctx.job.queue)

    note = queue.tasks["note"]
    calls: list[Any] = []
    for name, count in jobs.items():
        for number in range(count):
            if name in limited or (f"half {name}" in limited and number % 2):
                calls.append(note_limited.using(queue=name).call(number % 7))
            else:
                calls.append(note.using(queue=name).call())
    queue.enqueue_many(calls)
