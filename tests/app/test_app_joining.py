"""Inside ctx.transaction() the queue's calls join that transaction; outside of it, and elsewhere, they do not."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import ask
from running import Running
from tenacity import stop_after_attempt

from pgqueue import OWN_CONNECTION, Context, JobState, PgQueue, Retry
from pgqueue.errors import JobFailed, JobNotFound, UnsupportedConnection
from pgqueue.store.schema import schema
from pgqueue.worker.executor import Executor

ONCE = Retry(stop=stop_after_attempt(1))


class Undone(Exception):
    """Leaves a transaction, which is rolled back."""


def give_up() -> None:
    """Leave psycopg's transaction as its documentation says, for code behind the block to go on."""
    raise psycopg.Rollback


def children(queue: PgQueue) -> list[int]:
    """The arguments of the jobs of the task ``child``, in order."""
    return sorted(job.args["number"] for job in queue.insight.search(task="child").jobs)


@pytest.fixture
def child(queue: PgQueue) -> Any:
    """A task in a queue that no worker serves."""

    @queue.task(name="child", queue="later")
    def child(number: int) -> None: ...

    return child


async def done(queue: PgQueue, running: Running, task: Any, **options: Any) -> Any:
    """Run one job of a task, and return its error, or None."""
    job = await task.aenqueue()
    async with running(queue, queues=["default"], **options):
        try:
            await queue.aresult(job.id, timeout=30)
        except JobFailed as error:
            return error
    return None


async def test_as_many_plain_tasks_as_run_at_a_time_can_enqueue_in_their_transactions(
    queue: PgQueue, running: Running, child: Any
) -> None:
    everybody = threading.Barrier(20, timeout=20)

    @queue.task(retry=ONCE)
    def parent(ctx: Context, number: int) -> None:
        with ctx.transaction():
            everybody.wait()  # by now all of them have a connection
            child.enqueue(number)

    jobs = queue.enqueue_many(parent.call(number) for number in range(40))
    async with running(queue, queues=["default"]):
        for job in jobs:
            await job.aresult(timeout=60)
    assert children(queue) == list(range(40))


async def test_as_many_async_tasks_as_run_at_a_time_can_enqueue_in_their_transactions(
    queue: PgQueue, running: Running, child: Any
) -> None:
    inside = 0
    everybody = asyncio.Event()

    @queue.task(retry=ONCE)
    async def parent(ctx: Context, number: int) -> None:
        nonlocal inside
        async with ctx.transaction():
            inside += 1
            if inside == 20:
                everybody.set()
            async with asyncio.timeout(20):
                await everybody.wait()
            await child.aenqueue(number)

    jobs = queue.enqueue_many(parent.call(number) for number in range(40))
    async with running(queue, queues=["default"]):
        for job in jobs:
            await job.aresult(timeout=60)
    assert children(queue) == list(range(40))


@pytest.mark.parametrize("leave", [Undone, psycopg.Rollback])
async def test_what_a_plain_task_enqueues_is_rolled_back_with_its_transaction(
    queue: PgQueue, running: Running, child: Any, leave: type[Exception]
) -> None:
    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            child.enqueue(1)
            queue.enqueue_many(child.call(number) for number in (2, 3))
            asyncio.run(child.aenqueue(4))
            raise leave

    await done(queue, running, parent)
    assert children(queue) == []


@pytest.mark.parametrize("leave", [Undone, psycopg.Rollback])
async def test_what_an_async_task_enqueues_is_rolled_back_with_its_transaction(
    queue: PgQueue, running: Running, child: Any, leave: type[Exception]
) -> None:
    @queue.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            await child.aenqueue(1)
            await queue.aenqueue_many(child.call(number) for number in (2, 3))
            await asyncio.gather(child.aenqueue(4), queue.aenqueue_many([child.call(5), child.call(6)]))
            raise leave

    await done(queue, running, parent)
    assert children(queue) == []


async def test_savepoints_of_tasks_that_enqueue_side_by_side_do_not_cross(
    queue: PgQueue, running: Running, child: Any
) -> None:
    @queue.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            many = [queue.aenqueue_many([child.call(10 * n), child.call(10 * n + 1)]) for n in range(8)]
            await asyncio.gather(*many, *(child.aenqueue(100 + n) for n in range(8)))

    assert await done(queue, running, parent) is None
    assert children(queue) == sorted(
        [10 * n for n in range(8)] + [10 * n + 1 for n in range(8)] + [100 + n for n in range(8)]
    )


async def test_looking_and_steering_join_too(queue: PgQueue, running: Running, child: Any) -> None:
    seen: list[object] = []
    waiting = child.enqueue(0)

    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            job = child.enqueue(1)
            seen.extend([job.status(), waiting.cancel()])
            raise Undone

    await done(queue, running, parent)
    assert seen == [JobState.READY, JobState.CANCELLED]
    assert (children(queue), waiting.status()) == ([0], JobState.READY)


async def test_own_connection_enqueues_apart_from_the_transaction(
    queue: PgQueue, running: Running, child: Any
) -> None:
    apart = child.using(connection=OWN_CONNECTION)

    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            apart.enqueue(1)
            queue.enqueue_many([child.call(2)], connection=OWN_CONNECTION)
            raise Undone

    @queue.task(retry=ONCE)
    async def aparent(ctx: Context) -> None:
        async with ctx.transaction():
            await apart.aenqueue(3)
            await queue.aenqueue_many([child.call(4), child.call(5)], connection=OWN_CONNECTION)
            raise Undone

    await done(queue, running, parent)
    await done(queue, running, aparent)
    assert children(queue) == [1, 2, 3, 4, 5]
    assert repr(OWN_CONNECTION) == "OWN_CONNECTION"
    apart.enqueue(6)  # outside of any transaction it is what an enqueue does anyway
    assert children(queue)[-1] == 6


async def test_another_queue_is_not_affected(dsn: str, queue: PgQueue, running: Running) -> None:
    schema.migrate(dsn, schema="other")
    others = [PgQueue(dsn), PgQueue(dsn, schema="other")]

    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            for number, other in enumerate(others):
                other.task(name="child", queue="later")(lambda_free(number)).enqueue(number)
            raise Undone

    await done(queue, running, parent)
    assert [children(other) for other in others] == [[0], [1]]
    for other in others:
        other.close()


def lambda_free(_number: int) -> Callable[[int], None]:
    """A function to be registered."""

    def child(number: int) -> None: ...

    return child


async def test_a_transaction_within_one_of_another_queue_leaves_both_joinable(
    dsn: str, queue: PgQueue, running: Running, child: Any
) -> None:
    other = PgQueue(dsn)

    @other.task(name="child", queue="later")
    def others_child(number: int) -> None: ...

    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            inner = Context(ctx.job, Executor(other)).transaction()
            with inner:
                others_child.enqueue(1)
                child.enqueue(2)
                give_up()
            child.enqueue(3)
            joined.append(children(queue))
            raise Undone

    joined: list[list[int]] = []
    await done(queue, running, parent)
    assert (joined, children(queue), children(other)) == ([[2, 3]], [], [])
    other.close()


async def test_threads_do_not_join_even_if_they_inherit_the_context(
    queue: PgQueue, running: Running, child: Any
) -> None:
    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            for number, work in enumerate((child.enqueue, contextvars.copy_context().run)):
                args: tuple[Any, ...] = (number,) if number == 0 else (child.enqueue, number)
                thread = threading.Thread(target=work, args=args)
                thread.start()
                thread.join()
            raise Undone

    @queue.task(retry=ONCE)
    async def aparent(ctx: Context) -> None:
        async with ctx.transaction():
            await asyncio.to_thread(child.enqueue, 2)
            raise Undone

    await done(queue, running, parent)
    await done(queue, running, aparent)
    assert children(queue) == [0, 1, 2]


async def test_an_asyncio_task_that_outlives_the_transaction_enqueues_by_itself(
    queue: PgQueue, running: Running, child: Any
) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        await left.wait()
        await child.aenqueue(1)
        ended.set()

    async def somebody_else() -> None:
        """Have the connection that the job gave back, and roll back what is done on it."""
        async with queue.database.atransaction():
            left.set()
            await ended.wait()
            give_up()

    @queue.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        try:
            async with ctx.transaction():
                running_late.append(asyncio.create_task(late()))
                raise Undone
        finally:
            await somebody_else()

    running_late: list[asyncio.Task[None]] = []
    await done(queue, running, parent)
    assert children(queue) == [1]


async def test_a_blocking_call_in_an_async_transaction_is_refused(
    queue: PgQueue, running: Running, child: Any
) -> None:
    refused: list[str] = []

    @queue.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            for call in (
                lambda: child.enqueue(1),
                lambda: queue.enqueue_many([child.call(2)]),
                queue.insight.counts,
            ):
                with pytest.raises(UnsupportedConnection) as caught:
                    call()
                refused.append(str(caught.value))

    assert await done(queue, running, parent) is None
    assert (len(refused), children(queue)) == (3, [])
    assert all("aenqueue(...)" in said and "OWN_CONNECTION" in said for said in refused)


async def test_waiting_inside_a_transaction_for_a_job_of_it_does_not_last_for_ever(
    queue: PgQueue, running: Running, child: Any
) -> None:
    @queue.task(retry=ONCE, timeout=10)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            child.enqueue(1).result()

    @queue.task(retry=ONCE, timeout=10)
    async def aparent(ctx: Context) -> None:
        async with ctx.transaction():
            await (await child.aenqueue(1)).aresult()

    for task in (parent, aparent):
        assert JobNotFound.__name__ in str(await done(queue, running, task))


async def test_calls_that_are_made_while_they_are_drawn_may_use_the_transaction(
    queue: PgQueue, running: Running, child: Any
) -> None:
    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        with ctx.transaction() as connection:
            rows = connection.execute("select generate_series(1, 3)").fetchall
            queue.enqueue_many(
                child.call(connection.execute("select %s::integer", row).fetchall()[0][0])
                for row in rows() * 1_000
            )

    assert await done(queue, running, parent) is None
    assert len(queue.insight.search(task="child", limit=5_000).jobs) == 3_000


async def test_a_transaction_leaves_nothing_in_the_context(
    queue: PgQueue, running: Running, child: Any
) -> None:
    threads: set[int] = set()

    @queue.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        before = contextvars.copy_context()
        async with ctx.transaction():
            await child.aenqueue(1)
            assert contextvars.copy_context() != before
        assert contextvars.copy_context() == before
        threads.add(id(asyncio.current_task()))

    assert await done(queue, running, parent) is None
    assert len(threads) == 1


async def test_a_transaction_that_is_left_in_another_context_than_it_was_entered_in_ends_all_the_same(
    queue: PgQueue, running: Running, child: Any
) -> None:
    @queue.task(retry=ONCE)
    def parent(ctx: Context) -> None:
        opened = ctx.transaction()
        elsewhere = contextvars.copy_context()
        elsewhere.run(opened.__enter__)
        elsewhere.run(child.enqueue, 1)
        child.enqueue(2)  # here none was entered
        opened.__exit__(None, None, None)
        elsewhere.run(child.enqueue, 3)

    assert await done(queue, running, parent) is None
    assert children(queue) == [1, 2, 3]


async def test_pools_grow_with_the_workers_that_run_and_shrink_again(dsn: str, running: Running) -> None:
    queue = PgQueue(dsn, pool_size=3)
    other = PgQueue(dsn, pool_size=3)
    pools = queue.database.pools
    await queue.insight.acounts()
    queue.insight.counts()

    @queue.task
    async def note() -> int:
        return pools.size

    async with running(queue, concurrency=5):
        assert await note.enqueue().aresult(timeout=20) == 9
        async with running(queue, concurrency=2), asyncio.timeout(20):
            while pools.size != 11:  # noqa: ASYNC110 - a worker that starts raises no event
                await asyncio.sleep(0)
        assert (pools.size, pools.blocking().max_size, (await pools.awaitable()).max_size) == (9, 9, 9)
        assert other.database.pools.size == 3
        assert queue.database.but(schema="other").pools.size == 3
    assert pools.size == 3
    queue.close()


async def test_a_job_that_holds_its_transaction_for_long_does_not_keep_others_from_theirs(
    dsn: str, running: Running
) -> None:
    """With a pool of 2, three jobs can be in their transactions at a time, and enqueue apart from them."""
    queue = PgQueue(dsn, pool_size=2)
    everybody = threading.Barrier(3, timeout=20)

    @queue.task(name="child", queue="later")
    def child(number: int) -> None: ...

    @queue.task(retry=ONCE, timeout=timedelta(seconds=40))
    def parent(ctx: Context, number: int) -> None:
        with ctx.transaction():
            everybody.wait()
            child.using(connection=OWN_CONNECTION).enqueue(number)

    jobs = [parent.enqueue(number) for number in range(3)]
    async with running(queue, queues=["default"], concurrency=3):
        for job in jobs:
            await job.aresult(timeout=60)
    assert children(queue) == [0, 1, 2]
    assert ask(queue, "select count(*) from pgqueue.job_history")[0][0] == 3
    queue.close()
