"""Callers that wait for jobs: told by notification, on one connection, and found by polls where a notification is lost."""

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, LiteralString

import psycopg
import pytest
from app.silence import way_to
from looking import GUARD, ask, until, wait_until
from running import Running

from pgqueue import JobState, PgQueue, chain
from pgqueue.app import results
from pgqueue.app.flows import handle
from pgqueue.app.flows.handle import FlowHandle
from pgqueue.errors import ConnectionFailed, FlowNotDone, JobFailed, JobNotDone, JobNotFound
from pgqueue.store.connections.patience import answered_by
from pgqueue.store.connections.session import POOLED
from pgqueue.store.plan import run
from pgqueue.store.results import ends, job_end
from pgqueue.testing import in_memory

HOUR = 3600.0
LONG = 3 * GUARD
"""Seconds for which callers wait. At the end of its time a caller would look itself, and a test would miss that it was not told."""


@pytest.fixture
def told(queue: PgQueue, caplog: pytest.LogCaptureFixture) -> Iterator[PgQueue]:
    """A queue whose waiting callers learn nothing by polls and looks of their own: only notifications tell them."""
    queue.database.ends.poll = HOUR
    yield queue
    assert not looked_by_themselves(caplog)


def looked_by_themselves(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the log says that callers were left to look by themselves."""
    return any("each looks by itself" in record.msg for record in caplog.get_records("call"))


@pytest.fixture
def pids(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The server processes of the connections on which callers of the queue have waited."""
    found: list[int] = []
    connect = queue.database.connect

    def noting(dsn: str | None = None, **settings: Any) -> Any:
        opened = connect(dsn, **settings)
        if settings.get("settings", POOLED) is not POOLED:
            found.append(opened.info.backend_pid)
        return opened

    monkeypatch.setattr(queue.database, "connect", noting)
    return found


@pytest.fixture
def note(queue: PgQueue) -> Any:
    @queue.task(name="note")
    async def note(number: int = 0) -> int:
        return number

    return note


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(60) as made:
        yield made


def marked(queue: PgQueue) -> int:
    """How many jobs have an end that is notified."""
    return int(ask(queue, "select count(*) from pgqueue.jobs where flags = 1")[0][0])


def end_one(queue: PgQueue) -> None:
    with queue.take(1, timeout=20) as jobs:
        assert jobs


def waits(queue: PgQueue, *jobs: Any) -> None:
    """Wait until a caller waits for each job, and its end is notified."""
    ids = [job.id for job in jobs]
    wait_until(
        lambda: (
            ask(queue, "select count(*) from pgqueue.jobs where flags = 1 and id = any(%s)", ids)
            == [(len(ids),)]
        )
    )


END_ONE_IN_SILENCE: LiteralString = (
    "with gone as (delete from pgqueue.jobs where id = %s returning *) insert into pgqueue.job_history (id, run_at, "
    "created_at, finished_at, collisions, priority, attempts, max_attempts, outcome, queue, task, args) select id, run_at, "
    "created_at, now(), 0, 0, 1, 1, 'succeeded', queue, task, args from gone"
)
"""The end of a job: the database notifies no one of it."""


async def test_ten_thousand_callers_wait_on_one_connection(dsn: str, running: Running) -> None:
    mine, theirs = PgQueue(f"{dsn}&application_name=mine"), PgQueue(dsn)
    mine.database.ends.poll = HOUR

    async def double(number: int) -> int:
        return 2 * number

    theirs.task(name="double")(double)
    task = mine.task(name="double")(double)
    handles = await mine.aenqueue_many(task.call(n) for n in range(10_000))
    results = asyncio.gather(*(handle.aresult(LONG) for handle in handles))
    await until(lambda: marked(theirs) == 10_000)
    open_now = ask(theirs, "select count(*) from pg_stat_activity where application_name = 'mine'")
    assert open_now == [(2,)], "one of the pool, which enqueued, and the one that waits"
    async with running(theirs):
        assert await asyncio.wait_for(results, GUARD) == [2 * n for n in range(10_000)]
    theirs.close()
    await mine.aclose()


async def test_the_end_of_a_job_wakes_its_caller_without_a_poll(
    told: PgQueue, note: Any, running: Running
) -> None:
    jobs = [note.enqueue(n) for n in range(3)]
    waiting_for = asyncio.gather(*(job.aresult(LONG) for job in jobs))
    await until(lambda: marked(told) == 3)
    async with running(told):
        assert await asyncio.wait_for(waiting_for, GUARD) == [0, 1, 2]


def test_threads_and_several_callers_of_one_job_are_woken(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, pids: list[int]
) -> None:
    jobs = [note.enqueue(n) for n in range(20)]
    found = [threads.submit(job.result, LONG) for job in jobs for _ in range(3)]
    waits(told, *jobs)
    assert len(pids) == 1
    with told.take(20, timeout=20) as taken:
        assert len(taken) == 20
    assert [one.result(GUARD) for one in found] == [None] * 60


def test_a_job_that_no_caller_waits_for_is_not_marked_and_its_end_is_not_notified(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, dsn: str
) -> None:
    awaited, other = note.enqueue(), note.enqueue()
    found = threads.submit(awaited.result, LONG)
    waits(told, awaited)
    assert ask(told, "select id from pgqueue.jobs where flags is not null") == [(awaited.id,)]
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute('listen "pgqueue.ended"')
        with told.take(2, timeout=20) as taken:
            assert [job.id for job in taken] == [awaited.id, other.id]
        note.enqueue()
        end_one(told)
        assert found.result(GUARD) is None
        ear.execute("notify \"pgqueue.ended\", 'last'")
        heard = [one.payload for one in ear.notifies(timeout=GUARD, stop_after=2)]
    assert heard == [str(awaited.id), "last"]


def test_a_job_that_has_ended_costs_one_look_and_no_connection(told: PgQueue, note: Any) -> None:
    job = note.enqueue()
    end_one(told)
    assert job.result() is None
    assert not told.database.ends.connected


def test_a_lost_notification_is_made_up_for_by_a_poll(
    queue: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    queue.database.ends.poll = 0.05
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(queue, job)
    ask(queue, END_ONE_IN_SILENCE, job.id)
    assert found.result(GUARD) is None


def test_a_lost_mark_is_made_again(queue: PgQueue, note: Any, threads: ThreadPoolExecutor) -> None:
    queue.database.ends.poll = 0.05
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(queue, job)
    ask(queue, "update pgqueue.jobs set flags = null")
    waits(queue, job)
    end_one(queue)
    assert found.result(GUARD) is None


def test_a_caller_is_told_though_its_connection_is_closed_by_the_server(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, pids: list[int]
) -> None:
    monkeypatch.setattr(ends, "AGAIN", 0.01)
    ended, later = note.enqueue(), note.enqueue()
    found = [threads.submit(job.result, LONG) for job in (ended, later)]
    waits(told, ended, later)
    ask(told, "select pg_terminate_backend(%s)", pids[0])
    wait_until(lambda: len(pids) == 2)
    with told.take(1, timeout=20) as (job,):
        assert job.id == ended.id
    assert found[0].result(GUARD) is None
    wait_until(lambda: told.database.ends.awaited() == [later.id])
    end_one(told)
    assert found[1].result(GUARD) is None


def test_an_end_that_comes_while_the_caller_is_disconnected_is_found(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, pids: list[int]
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(ends, "sleep", lambda _: ended.wait(GUARD))
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(told, job)
    ask(told, "select pg_terminate_backend(%s)", pids[0])
    end_one(told)
    ended.set()
    assert found.result(GUARD) is None


def test_a_connection_that_goes_silent_is_replaced(
    dsn: str, queue: PgQueue, note: Any, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(ends, "AGAIN", 0.01)
    first, job = note.enqueue(), note.enqueue()
    with way_to(dsn) as way:
        distant = PgQueue(way.dsn)
        distant.database.ends.poll = 0.05
        found = [threads.submit(distant.result, one.id, timeout=LONG) for one in (first, job)]
        waits(queue, first, job)
        end_one(queue)
        assert found[0].result(GUARD) is None
        opened = way.opened
        way.silence()
        end_one(queue)
        assert found[1].result(GUARD) is None
        assert way.opened == opened + 1, (
            "the thread has connected again, and the caller has not looked itself"
        )
        distant.close()


def test_a_caller_returns_in_time_though_the_server_is_silent(
    dsn: str, queue: PgQueue, note: Any, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ANSWER_WITHIN", 0.2)
    job = note.enqueue()
    with way_to(dsn) as way:
        distant = PgQueue(way.dsn)
        found: list[Future[Any]] = [threads.submit(distant.result, job.id, timeout=3)]
        waits(queue, job)
        found.append(threads.submit(asyncio.run, distant.aresult(job.id, timeout=3)))
        way.silence()
        for one in found:
            with pytest.raises(
                JobNotDone, match=r"has not ended within 3 s: the database has not answered for 0.2 s"
            ):
                one.result(GUARD)
        distant.close()


def test_a_caller_returns_in_time_though_the_server_was_silent_before(
    dsn: str, note: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(handle, "answered_by", partial(answered_by, spare=0.2))
    job, flow = note.enqueue(), chain(note.call(), note.call()).enqueue()
    with way_to(dsn) as way, closing(PgQueue(way.dsn)) as distant:
        again = FlowHandle(flow.id, distant, [])

        async def wait(look: Callable[[], Awaitable[object]]) -> None:
            await distant.awhy(job.id)  # the pool has a connection
            way.silence()
            await look()

        for blocking in (lambda: distant.result(job.id, timeout=0.1), lambda: again.join(timeout=0.1)):
            distant.why(job.id)
            way.silence()
            with pytest.raises((JobNotDone, FlowNotDone), match="the database has not answered for"):
                blocking()
        for awaited in (lambda: distant.aresult(job.id, timeout=0.1), lambda: again.ajoin(timeout=0.1)):
            with pytest.raises((JobNotDone, FlowNotDone), match="the database has not answered for"):
                asyncio.run(wait(awaited))


def test_where_notifications_cannot_arrive_a_caller_finds_the_end_by_polls(
    queue: PgQueue,
    note: Any,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
    pids: list[int],
) -> None:
    queue.database.behind_pooler = True
    job = note.enqueue()
    found: Future[Any] = threads.submit(job.result, LONG)
    wait_until(lambda: pids)
    assert marked(queue) == 0
    end_one(queue)
    assert found.result(GUARD) is None
    assert not looked_by_themselves(caplog)


def test_a_role_that_may_only_read_waits_by_polls(
    dsn: str, queue: PgQueue, note: Any, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    reading = PgQueue(f"{dsn}&options=-c%20default_transaction_read_only%3Don")
    job = note.enqueue()
    found: Future[Any] = threads.submit(reading.result, job.id, timeout=LONG)
    wait_until(lambda: reading.database.ends.connected)
    end_one(queue)
    assert found.result(GUARD) is None
    assert ask(queue, "select count(*) from pgqueue.jobs where flags is not null") == [(0,)]
    assert not looked_by_themselves(caplog)
    reading.close()


def test_a_row_that_another_transaction_has_locked_holds_no_caller_up(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, connection: psycopg.Connection[Any]
) -> None:
    locked, free = note.enqueue(), note.enqueue()
    connection.execute("select from pgqueue.jobs where id = %s for update", [locked.id])
    found = [threads.submit(job.result, LONG) for job in (locked, free)]
    waits(told, free)
    connection.rollback()
    waits(told, locked)
    with told.take(2, timeout=20) as jobs:
        assert len(jobs) == 2
    assert [one.result(GUARD) for one in found] == [None, None]


def test_an_end_that_is_not_committed_yet_is_found_when_it_is(
    told: PgQueue,
    note: Any,
    threads: ThreadPoolExecutor,
    connection: psycopg.Connection[Any],
    pids: list[int],
) -> None:
    """The end came first: it knows of no caller, and the mark finds the row locked until it is gone."""
    job = note.enqueue()
    connection.execute(END_ONE_IN_SILENCE, [job.id])
    found = threads.submit(job.result, LONG)
    wait_until(lambda: told.database.ends.waits)
    wait_until(lambda: pids)
    connection.commit()
    assert found.result(GUARD) is None


def test_an_end_that_comes_while_its_job_is_being_marked_is_notified(
    queue: PgQueue, note: Any, threads: ThreadPoolExecutor, dsn: str
) -> None:
    """The mark came first: the end waits for it, and sees it."""
    job = note.enqueue()
    ready = threading.Event()

    def finish() -> None:
        with queue.take(1, timeout=20):
            ready.set()
            assert go.wait(GUARD)

    go = threading.Event()
    with psycopg.connect(dsn, autocommit=True) as ear, queue.database.connect() as marking:
        ear.execute('listen "pgqueue.ended"')
        finished = threads.submit(finish)
        assert ready.wait(GUARD)
        with marking.transaction():
            there = run(job_end.await_ends([job.id, 10**12]), marking.steps(queue.database.catalogue))
            assert there == {job.id}
            go.set()
            wait_until(
                lambda: ask(
                    dsn,
                    "select count(*) from pg_locks where not granted and locktype in ('transactionid', 'tuple')",
                )[0][0]
            )
        finished.result(GUARD)
        heard = [one.payload for one in ear.notifies(timeout=GUARD, stop_after=1)]
    assert heard == [str(job.id)]


def test_an_end_that_is_notified_while_other_jobs_are_being_marked_is_not_missed(
    told: PgQueue, note: Any, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread marks job after job, and looks then at those of which it has heard."""
    first, second = note.enqueue(), note.enqueue()
    await_ends, waiters = job_end.await_ends, told.database.ends
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute('listen "pgqueue.ended"')

        def after_an_end(job_ids: Any) -> Any:
            if second.id in job_ids:
                end_one(told)
                assert [one.payload for one in ear.notifies(timeout=GUARD, stop_after=1)] == [str(first.id)]
            return await_ends(job_ids)

        monkeypatch.setattr(job_end, "await_ends", after_an_end)
        monkeypatch.setattr(ends, "ASKED_AT_ONCE", 1)
        found = [waiters.enter(job.id) for job in (first, second)]
        waiters.ask(first.id)  # it has both when it connects
        assert found[0].result(GUARD) is not None
        end_one(told)
        assert found[1].result(GUARD) is not None


def test_a_ready_job_that_an_idle_worker_skipped_while_it_was_marked_is_announced_again(
    queue: PgQueue, note: Any, dsn: str
) -> None:
    job = note.enqueue()
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute('listen "pgqueue.wake"')
        queue.database.run(job_end.await_ends([job.id]))
        assert not list(ear.notifies(timeout=0.05)), "no worker is idle"
        ask(queue, "update pgqueue.jobs set flags = null")
        ask(
            queue,
            "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle) "
            "values (gen_random_uuid(), now() + interval '1 hour', '', 1, 1, '0', true)",
        )
        queue.database.run(job_end.await_ends([job.id]))
        assert len(list(ear.notifies(timeout=GUARD, stop_after=1))) == 1
        queue.database.run(job_end.await_ends([job.id]))
        assert not list(ear.notifies(timeout=0.05)), "nothing was marked"


async def test_a_caller_is_told_of_a_job_that_dies_and_of_one_that_is_cancelled(
    told: PgQueue, running: Running
) -> None:
    @told.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("no such customer")

    dies, cancelled = fail.enqueue(), fail.using(delay=60).enqueue()
    waiting_for = asyncio.gather(*(job.aresult(LONG) for job in (dies, cancelled)), return_exceptions=True)
    await until(lambda: marked(told) == 2)
    cancelled.cancel()
    async with running(told):
        found = await asyncio.wait_for(waiting_for, GUARD)
    assert [type(one) for one in found] == [JobFailed, JobFailed]
    assert ["is dead" in str(found[0]), "is cancelled" in str(found[1])] == [True, True]


def test_a_caller_of_a_job_of_which_nothing_is_left_is_told_so(
    queue: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    queue.database.ends.poll = 0.05
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(queue, job)
    ask(queue, "delete from pgqueue.jobs")
    with pytest.raises(JobNotFound):
        found.result(GUARD)


def test_a_dead_job_that_lives_again_is_waited_for_and_keeps_its_mark(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    job, other = note.enqueue(), note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(told, job)
    ask(
        told, "select pg_notify('pgqueue.ended', %s)", f"{job.id}"
    )  # it died, and was retried before this came
    others = threads.submit(other.result, LONG)
    waits(told, other)
    assert not found.done()
    ask(told, "update pgqueue.jobs set max_attempts = 1 where id = %s", job.id)
    with pytest.raises(RuntimeError, match="no"), told.take(1, timeout=20) as (taken,):
        raise RuntimeError("no")
    assert taken.id == job.id
    with pytest.raises(JobFailed):
        found.result(GUARD)
    assert told.retry(job.id)
    assert ask(told, "select flags from pgqueue.jobs where id = %s", job.id) == [(1,)]
    again = threads.submit(job.result, LONG)
    wait_until(lambda: job.id in told.database.ends.awaited())
    with told.take(2, timeout=20) as jobs:
        assert len(jobs) == 2
    assert (again.result(GUARD), others.result(GUARD)) == (None, None)


def test_what_is_said_on_the_channel_is_no_order(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(told, job)
    for payload in (
        "",
        "x",
        "1e3,-1,,%s",
        "9" * 7_000,
        f"{job.id}{'0' * 30}",
        "\u0663",
        "99999999999999999999",
    ):
        ask(told, "select pg_notify('pgqueue.ended', %s)", payload)
    end_one(told)
    assert found.result(GUARD) is None


def test_a_caller_that_waits_no_longer_leaves_nothing_behind(told: PgQueue, note: Any) -> None:
    told.database.ends.linger, told.database.ends.poll = 0.01, 0.05
    job = note.enqueue()
    with pytest.raises(JobNotDone, match=f"job {job.id} has not ended within 0.1 s: it is ready"):
        job.result(timeout=0.1)
    assert not told.database.ends.waits
    wait_until(lambda: not told.database.ends.connected)


async def test_a_cancelled_wait_leaves_the_job_and_nothing_else(told: PgQueue, note: Any) -> None:
    job = note.enqueue()
    caller = asyncio.create_task(job.aresult())
    await until(lambda: marked(told))
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not told.database.ends.waits
    assert await job.astatus() is JobState.READY
    await told.aclose()


async def test_callers_in_other_threads_are_told_while_an_event_loop_is_blocked(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    first, second = note.enqueue(), note.enqueue()
    mine = asyncio.create_task(first.aresult(LONG))
    others = threads.submit(second.result, LONG)
    await until(lambda: marked(told) == 2)
    with told.take(2, timeout=20) as jobs:
        assert len(jobs) == 2
    assert others.result(GUARD) is None  # this blocks the loop
    assert await asyncio.wait_for(mine, GUARD) is None
    await told.aclose()


async def test_a_closed_event_loop_with_a_caller_in_it_holds_no_other_up(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    await until(lambda: marked(told))

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        loop.create_task(job.aresult())  # noqa: RUF006 - forgotten, as by a program that ends
        loop.run_until_complete(asyncio.sleep(0.05))
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - on purpose
        loop.close()

    await asyncio.to_thread(abandon)
    await asyncio.to_thread(end_one, told)
    assert await asyncio.to_thread(found.result, GUARD) is None
    await told.aclose()


def test_a_job_in_an_open_transaction_is_not_found_though_others_wait(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, connection: psycopg.Connection[Any]
) -> None:
    other = note.enqueue()
    found = threads.submit(other.result, LONG)
    waits(told, other)
    hidden = note.using(connection=connection).enqueue()
    with pytest.raises(JobNotFound):
        hidden.result(timeout=GUARD)
    with pytest.raises(JobNotFound):
        told.result(10**12, timeout=GUARD)
    connection.commit()
    with told.take(2, timeout=20) as jobs:
        assert len(jobs) == 2
    assert (found.result(GUARD), hidden.result(GUARD)) == (None, None)


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked child; its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # later Pythons warn of threads: they are the point
        child = os.fork()
    if child == 0:
        status = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_waits_on_a_connection_of_its_own(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    mine, theirs = note.enqueue(), note.using(priority=1).enqueue()
    found = threads.submit(mine.result, LONG)
    waits(told, mine)

    def end_theirs() -> None:
        waits(told, theirs)
        end_one(told)

    def work() -> None:
        ending = threading.Thread(target=end_theirs)
        ending.start()
        assert theirs.result(timeout=20) is None
        ending.join()

    assert in_child(work) == 0
    assert not found.done()
    end_one(told)
    assert found.result(GUARD) is None


def test_the_connection_is_closed_when_no_caller_has_waited_for_some_time(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor, pids: list[int]
) -> None:
    told.database.ends.linger = 0.01
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(told, job)
    end_one(told)
    assert found.result(GUARD) is None
    wait_until(lambda: not told.database.ends.connected)
    wait_until(lambda: not ask(told, "select from pg_stat_activity where pid = any(%s)", pids))


def test_the_thread_rests_while_a_caller_has_not_asked_it_yet(told: PgQueue, note: Any) -> None:
    """As a caller that looks at its job first, while the thread has nothing else to ask for."""
    job, waiters = note.enqueue(), told.database.ends
    nothing = waiters.enter(0)
    waiters.ask(0)
    assert nothing.result(GUARD) is None
    end = waiters.enter(job.id)
    waiters.close()  # this wakes the thread
    with pytest.raises(TimeoutError):
        end.result(0.2)
    waiters.ask(job.id)
    waits(told, job)
    end_one(told)
    assert end.result(GUARD) is not None
    waiters.leave(job.id, end)


def test_close_ends_the_thread_and_leaves_callers_what_they_wait_for(
    told: PgQueue, note: Any, threads: ThreadPoolExecutor
) -> None:
    told.database.ends.linger = HOUR
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    waits(told, job)
    told.close()
    end_one(told)
    assert found.result(GUARD) is None
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("pgqueue-ends")])
    assert not told.database.ends.connected


def test_a_failure_of_the_thread_leaves_callers_to_look_themselves(
    queue: PgQueue, note: Any, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ends.EndThread, "_tell_ends", broken)
    job = note.enqueue()
    found = threads.submit(job.result, LONG)
    wait_until(lambda: "each looks by itself" in caplog.text)
    end_one(queue)
    assert found.result(GUARD) is None


def test_where_no_connection_can_be_made_each_caller_looks_itself(
    queue: PgQueue, note: Any, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """As behind a pooler that the queue is not told of, which refuses the connection's settings."""

    def refused(*_: object, **__: object) -> None:
        raise ConnectionFailed("too many connections")

    job = note.enqueue()
    monkeypatch.setattr(queue.database, "connect", refused)
    found = threads.submit(job.result, LONG)
    wait_until(lambda: "each looks by itself: too many connections" in caplog.text)
    monkeypatch.undo()
    end_one(queue)
    assert found.result(GUARD) is None


def test_in_memory_no_thread_waits(queue: PgQueue, note: Any, caplog: pytest.LogCaptureFixture) -> None:
    with in_memory(queue) as memory:
        with pytest.raises(JobNotDone):
            note.enqueue().result(timeout=0.2)
        assert not memory.ends.connected
    assert not looked_by_themselves(caplog)
