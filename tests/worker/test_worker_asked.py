"""A worker does what it is asked to do from outside: at once if it is notified, else with its next heartbeat."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from documents import A_MINUTE, Document
from looking import ask, until
from running import Running
from worker.helping import FOR_EVER, beat, ended, register

from pgqueue import Batch, PgQueue, Worker
from pgqueue.errors import InvalidOption, UnknownWorker
from pgqueue.store.jobs import control
from pgqueue.values.workers.load import Bounds, WorkerLoad
from pgqueue.values.workers.worker import WorkerStatus

LONG = 3600.0
"""Seconds between two heartbeats: none comes while a test runs."""


def status(queue: PgQueue, worker: Worker) -> WorkerStatus:
    return queue.workers.get(str(worker.id))


async def astatus(queue: PgQueue, worker: Worker) -> WorkerStatus:
    return await queue.workers.aget(str(worker.id))


async def test_a_worker_that_hears_of_it_changes_its_slots_and_says_so(
    queue: PgQueue, running: Running
) -> None:
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        before = await astatus(queue, worker)
        assert (before.slots, before.bounds, before.listens) == (2, Bounds(2, 2), True)

        done = await queue.workers.aset(str(worker.id), concurrency=50, by="ada")
        assert [one.id for one in done.asked] == [worker.id]
        await until(lambda: status(queue, worker).slots == 50)
        assert worker.inspect().concurrency == 50
        seen = await astatus(queue, worker)
        assert (seen.bounds, seen.asked.bounds, seen.asked.by) == (Bounds(50, 50), Bounds(50, 50), "ada")
        assert seen.asked.at is not None

        worker.parts.slots.measure = lambda: WorkerLoad(busy=9)
        await queue.workers.aset(before.name, concurrency=(1, 9))
        await until(lambda: status(queue, worker).slots == 9)
        assert status(queue, worker).bounds == Bounds(1, 9)


async def test_a_worker_that_hears_nothing_learns_it_with_its_heartbeat(
    queue: PgQueue, running: Running
) -> None:
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        statement = "update pgqueue.workers set ask_minimum = 7, ask_maximum = 7 where id = %s"
        ask(queue, "alter table pgqueue.workers disable trigger workers_asked")
        ask(queue, statement, worker.id)
        await beat(worker)
        await until(lambda: worker.inspect().concurrency == 7)
        await until(lambda: status(queue, worker).slots == 7)
        assert (status(queue, worker).bounds, worker.inspect().can_listen) == (Bounds(7, 7), True)


async def test_an_update_by_sql_is_heard_and_names_the_role(queue: PgQueue, running: Running) -> None:
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        ask(
            queue,
            "update pgqueue.workers set ask_minimum = 3, ask_maximum = 3 where host = %s",
            worker_host(queue),
        )
        await until(lambda: worker.inspect().concurrency == 3)
        assert status(queue, worker).asked.by == ask(queue, "select session_user::text")[0][0]


def worker_host(queue: PgQueue) -> str:
    return queue.workers.list()[0].host


@pytest.mark.parametrize("plain", [True, False])
async def test_a_quiet_worker_finishes_what_runs_returns_the_rest_and_claims_again_when_asked(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    turn = threading.Semaphore(0)

    def wait() -> None:
        turn.acquire()

    async def await_turn() -> None:
        await until(lambda: turn.acquire(blocking=False))

    task = queue.task(name="wait")(wait if plain else await_turn)
    first = task.enqueue()
    async with running(queue, concurrency=1, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen and worker.inspect().running)
        (done,) = (await queue.workers.aquiet(str(worker.id))).asked
        assert done.id == worker.id
        await until(lambda: status(queue, worker).quiet)
        assert worker.inspect().quiet
        assert status(queue, worker).state == "quiet"
        turn.release()
        (found,) = await ended(queue, first)
        assert found.attempts == 1

        second = await task.aenqueue()
        worker.parts.signals.look.set()
        await until(lambda: worker.parts.fetcher.waits)
        assert not ask(queue, "select 1 from pgqueue.jobs where status = 'running'")
        assert (await queue.database.arun(control.pulse())).workers == 0  # it serves no queue
        said = (await queue.awhy(second.id)).sentence
        assert (
            "of queue 'default' 1 live worker is quiet (`pgqueue workers resume` ends that), and no other serves it"
            in said
        )
        assert ask(queue, "select idle from pgqueue.workers") == [(False,)]  # enqueuers do not notify it

        await queue.workers.aresume(str(worker.id))
        turn.release()
        await ended(queue, second)
        await until(lambda: not status(queue, worker).quiet)
        await until(lambda: ask(queue, "select idle from pgqueue.workers") == [(True,)])


async def test_claims_that_have_not_started_go_back_from_a_quiet_worker(
    queue: PgQueue, running: Running
) -> None:
    release = threading.Event()

    @queue.task
    def wait() -> None:
        release.wait(20)

    jobs = queue.enqueue_many(wait.call() for _ in range(3))
    async with running(queue, concurrency=3, lease=LONG) as worker:
        await until(lambda: len(worker.inspect().running) == 3)
        await queue.workers.aset(str(worker.id), concurrency=1)
        await until(lambda: worker.inspect().concurrency == 1)
        more = await wait.aenqueue()
        await queue.workers.aquiet(str(worker.id))
        await until(lambda: worker.inspect().quiet)
        release.set()
        await ended(queue, *jobs)
        assert (await more.astatus()) == "ready"
        await queue.workers.aresume(str(worker.id))
        (found,) = await ended(queue, more)
    assert found.attempts == 1


async def test_claims_that_wait_in_memory_go_back_at_once_when_a_worker_is_made_quiet(
    queue: PgQueue, running: Running
) -> None:
    release = threading.Event()

    @queue.task(name="hold")
    def hold() -> None:
        release.wait(20)

    @queue.task(name="pass")
    async def let_pass() -> None: ...

    @queue.batch_task(Document, name="index", size=10, wait=A_MINUTE)
    def index(_: Batch[Document]) -> None: ...

    gathering = queue.enqueue_many(index.call(number) for number in range(3))
    queue.enqueue_many(let_pass.call() for _ in range(300))  # so quick that the worker claims ahead
    (held,) = queue.enqueue_many([hold.call()])
    behind = queue.enqueue_many(let_pass.call() for _ in range(300))
    async with running(queue, concurrency=1, lease=LONG) as worker:
        await until(
            lambda: worker.inspect().can_listen and held.id in {one.id for one in worker.inspect().running}
        )
        await until(lambda: len(worker.inspect().waiting) > len(gathering))
        await queue.workers.aquiet(str(worker.id))
        await until(lambda: not worker.inspect().waiting)
        where = "select array_agg(id) from pgqueue.jobs where status = 'running'"
        await until(lambda: ask(queue, where) == [([held.id],)])
        release.set()
        await ended(queue, held)
        assert {job.status() for job in [*gathering, *behind]} == {"ready"}
        assert {queue.job(job.id).attempts for job in [*gathering, *behind[:20]]} == {0}


async def test_a_worker_that_is_asked_to_stop_does_as_at_sigterm_and_a_second_time_changes_nothing(
    queue: PgQueue,
) -> None:
    release = asyncio.Event()

    @queue.task
    async def wait() -> None:
        await release.wait()

    job = wait.enqueue()
    worker = Worker(queue, concurrency=2, lease=LONG)
    serving = asyncio.create_task(worker.run())
    await until(lambda: worker.inspect().can_listen and worker.inspect().running)
    await queue.workers.astop(str(worker.id))
    await until(lambda: worker.asked_to_end == "stop")
    assert status(queue, worker).state == "stopping"
    await queue.workers.astop(str(worker.id))
    await beat(worker)
    assert not worker.parts.signals.hurry.is_set()
    release.set()
    await asyncio.wait_for(serving, 20)
    (found,) = await ended(queue, job)
    assert (found.state, found.attempts) == ("succeeded", 1)
    with pytest.raises(UnknownWorker, match="no worker is known"):
        await queue.workers.astop(str(worker.id))


async def test_a_worker_without_a_supervisor_says_that_it_cannot_restart(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        with pytest.raises(InvalidOption, match="no supervisor"):
            await queue.workers.arestart(str(worker.id))
        assert (await queue.workers.arestart("all")).refused[0].endswith("start another")
        assert status(queue, worker).asked.end is None

        with caplog.at_level(logging.WARNING, "pgqueue.worker"):
            ask(queue, "update pgqueue.workers set ask_end = 'restart'")
            await until(lambda: status(queue, worker).answer is not None)
            await beat(worker)
            await beat(worker)
        assert sum("cannot restart" in record.message for record in caplog.records) == 1
        seen = await astatus(queue, worker)
        assert (seen.state, worker.asked_to_end) == ("alive", None)

        await queue.workers.aset(str(worker.id), concurrency=4)
        await until(lambda: worker.inspect().concurrency == 4)


async def test_a_supervised_worker_ends_to_be_started_again(queue: PgQueue) -> None:
    worker = Worker(queue, concurrency=2, lease=LONG)
    worker.supervised = True
    serving = asyncio.create_task(worker.run())
    await until(lambda: worker.inspect().can_listen)
    await queue.workers.arestart(str(worker.id))
    await asyncio.wait_for(serving, 20)
    assert worker.asked_to_end == "restart"


async def test_a_worker_that_loses_its_lease_stays_as_it_was_asked_to_be(
    queue: PgQueue, running: Running
) -> None:
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        await queue.workers.aset(str(worker.id), concurrency=5)
        await queue.workers.aquiet(str(worker.id))
        await until(lambda: worker.inspect().quiet and worker.inspect().concurrency == 5)
        former = worker.id
        ask(queue, "delete from pgqueue.workers")
        await beat(worker)
        assert worker.id != former
        seen = await astatus(queue, worker)
        assert (seen.slots, seen.quiet, seen.asked.at) == (5, True, None)
        await beat(worker)
        assert worker.inspect().quiet


async def test_two_heartbeats_at_once_that_find_the_lease_lost_register_one_worker(
    queue: PgQueue, running: Running
) -> None:
    async with running(queue, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        ask(queue, "delete from pgqueue.workers")
        await asyncio.gather(*(beat(worker) for _ in range(3)))
        assert ask(queue, "select id from pgqueue.workers") == [(worker.id,)]


async def test_a_worker_whose_loop_is_blocked_shrinks_and_is_made_quiet_with_its_heartbeat(
    queue: PgQueue, running: Running
) -> None:
    release, blocked = threading.Event(), threading.Event()

    @queue.task
    async def block() -> None:
        blocked.set()
        release.wait(20)

    async with running(queue, concurrency=9, lease=LONG, blocked_after=0.2) as worker:
        await until(lambda: worker.inspect().can_listen)

        def steer() -> WorkerStatus:
            assert blocked.wait(20)
            queue.workers.set(str(worker.id), concurrency=2)
            queue.workers.quiet(str(worker.id))
            heartbeat = worker.parts.heartbeat
            for _ in range(2):
                asyncio.run_coroutine_threadsafe(heartbeat.beat(), heartbeat._loop).result(20)  # noqa: SLF001
            seen = status(queue, worker)
            release.set()
            return seen

        with ThreadPoolExecutor(1) as thread:
            steering = thread.submit(steer)
            await block.aenqueue()
            seen = await asyncio.wrap_future(steering)
        assert (seen.slots, seen.quiet) == (2, True)


async def test_a_thousand_requests_at_once_end_with_the_last_one_and_cost_few_beats(
    queue: PgQueue, running: Running
) -> None:
    beats = 0
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        original = worker.parts.heartbeat.beat

        async def count() -> None:
            nonlocal beats
            beats += 1
            await original()

        worker.parts.heartbeat.beat = count  # type: ignore[method-assign]

        def request(first: int) -> None:
            for number in range(first, first + 125):
                queue.workers.set(str(worker.id), concurrency=1 + number % 40)

        await asyncio.gather(*(asyncio.to_thread(request, first) for first in range(0, 1_000, 125)))
        await asyncio.to_thread(queue.workers.set, str(worker.id), concurrency=77)
        await until(lambda: worker.inspect().concurrency == 77)
        await until(lambda: status(queue, worker).slots == 77)
    assert beats < 1_500


async def test_a_dead_worker_is_asked_nothing(queue: PgQueue) -> None:
    worker = Worker(queue, concurrency=2, poll=FOR_EVER)
    await register(worker)
    ask(queue, "update pgqueue.workers set lease_until = now() - interval '1 second'")
    for steer in (queue.workers.aquiet, queue.workers.astop):
        with pytest.raises(UnknownWorker, match="its lease has passed"):
            await steer(str(worker.id))
    assert await queue.workers.astop("all") == await queue.workers.aquiet("all")
    assert (await astatus(queue, worker)).state == "lost"
    assert ask(queue, "select asked_at from pgqueue.workers") == [(None,)]
    await worker.parts.close()


async def test_a_take_is_asked_nothing(queue: PgQueue) -> None:
    statement = (
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version) "
        "values (gen_random_uuid(), now() + interval '1 minute', 'old', 7, 20, '0.0.1')"
    )
    ask(queue, statement)
    with pytest.raises(InvalidOption, match="it is a take"):
        await queue.workers.aset("old:7", concurrency=5)
    done = await queue.workers.aquiet("all")
    assert done.asked == ()
    assert "old:7" in done.refused[0]
    (seen,) = await queue.workers.alist()
    assert (seen.listens, seen.slots, seen.state) == (False, 20, "alive")


@pytest.mark.parametrize("concurrency", [0, -5, (9, 2), "many", None, True, 20_000])
async def test_bad_input_is_refused_and_changes_nothing(
    queue: PgQueue, running: Running, concurrency: Any
) -> None:
    async with running(queue, concurrency=2, lease=LONG) as worker:
        await until(lambda: worker.inspect().can_listen)
        with pytest.raises(InvalidOption, match="concurrency="):
            await queue.workers.aset(str(worker.id), concurrency=concurrency)
        assert ask(queue, "select asked_at from pgqueue.workers") == [(None,)]


@pytest.mark.parametrize(
    "change",
    [
        "ask_minimum = 0, ask_maximum = 5",
        "ask_minimum = 5, ask_maximum = 4",
        "ask_minimum = 5",
        "ask_minimum = 1, ask_maximum = 20000",
        "ask_end = 'explode'",
    ],
)
async def test_bad_input_by_sql_is_refused_by_the_database(queue: PgQueue, change: str) -> None:
    worker = Worker(queue, concurrency=2, poll=FOR_EVER)
    await register(worker)
    with pytest.raises(psycopg.errors.CheckViolation), queue.database.pooled() as connection:
        connection.execute(f"update pgqueue.workers set {change}".encode())
    await worker.parts.close()


async def test_a_name_that_means_none_or_several_is_refused_with_those_there_are(queue: PgQueue) -> None:
    workers = [Worker(queue, concurrency=2, poll=FOR_EVER) for _ in range(2)]
    for worker in workers:
        await register(worker)
    name = queue.workers.list()[0].name
    with pytest.raises(InvalidOption, match="may be any of"):
        await queue.workers.aquiet(name)
    for unknown in ("web-9:1", "zzz", str(workers[0].id) + "0"):
        with pytest.raises(UnknownWorker, match="there are"):
            await queue.workers.aquiet(unknown)
    for nothing in ("", None):
        with pytest.raises(InvalidOption, match="first characters"):
            await queue.workers.aquiet(nothing)  # type: ignore[arg-type]
    assert len((await queue.workers.aquiet("all")).asked) == 2
    for worker in workers:
        await worker.parts.close()
