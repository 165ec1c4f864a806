"""Pull style: waiting for jobs, holding them, settling them one by one or all together.

Takes of limited jobs: they are claimed from their lanes, under the same limits as a worker's.
"""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, wait_until

from pgqueue import JobState, Limit, PgQueue, Rate, Superseded, TakenJob, Task
from pgqueue.app.takes import base as takes_base
from pgqueue.errors import InvalidOption, JobError, UnknownQueue
from pgqueue.store.jobs.claim import LARGEST_ANSWER
from pgqueue.store.workers import leases, upkeep

SHORT = timedelta(seconds=0.6)


def enqueued(app: PgQueue, count: int, **options: Any) -> list[int]:
    """Ids of new jobs of a task ``note(number)``."""
    if "note" not in app.tasks:

        @app.task(name="note")
        def note(number: int) -> None: ...

    task = app.tasks["note"].using(**options)
    return [job.id for job in app.enqueue_many(task.call(number) for number in range(count))]


def states(queue: PgQueue, ids: Sequence[int]) -> list[tuple[JobState, int]]:
    """Where the jobs stand, and the attempts they have spent."""
    return [(job.state, job.attempts) for job in map(queue.job, ids)]


def ids_of(jobs: Sequence[TakenJob]) -> list[int]:
    return [job.id for job in jobs]


def workers(queue: PgQueue) -> int:
    return int(ask(queue, "select count(*) from pgqueue.workers")[0][0])


def test_at_most_as_many_as_asked_for_are_taken_in_order(queue: PgQueue) -> None:
    ids = enqueued(queue, 5)
    with queue.take(3) as jobs:
        assert ids_of(jobs) == ids[:3]
        assert [(job.args, job.task, job.queue, job.attempt) for job in jobs] == [
            ({"number": number}, "note", "default", 1) for number in range(3)
        ]
        assert states(queue, ids) == [(JobState.RUNNING, 1)] * 3 + [(JobState.READY, 0)] * 2
    assert states(queue, ids) == [(JobState.SUCCEEDED, 1)] * 3 + [(JobState.READY, 0)] * 2


def test_queues_are_taken_from_in_the_order_given(queue: PgQueue) -> None:
    low, high = enqueued(queue, 2, queue="low"), enqueued(queue, 2, queue="high")
    other = enqueued(queue, 1)
    with queue.take(3, queues=["high", "low"]) as jobs:
        assert ids_of(jobs) == [*high, low[0]]
    assert states(queue, other) == [(JobState.READY, 0)]


def test_waiting_ends_with_an_enqueue_in_another_thread(queue: PgQueue) -> None:
    def add() -> None:
        wait_until(lambda: workers(queue))
        enqueued(queue, 1)

    later = threading.Thread(target=add)
    later.start()
    with queue.take(10) as jobs:
        assert [job.args for job in jobs] == [{"number": 0}]
    later.join()


async def test_waiting_ends_with_an_enqueue_in_another_task(queue: PgQueue) -> None:
    async def later() -> None:
        await asyncio.to_thread(wait_until, lambda: workers(queue))
        enqueued(queue, 1)

    adding = asyncio.create_task(later())
    async with asyncio.timeout(20), queue.atake(10) as jobs:
        assert [job.args for job in jobs] == [{"number": 0}]
    await adding


def test_a_job_that_comes_due_meanwhile_is_taken(queue: PgQueue) -> None:
    ids = enqueued(queue, 1, delay=timedelta(seconds=0.2))
    with queue.take(timeout=20) as jobs:
        assert ids_of(jobs) == ids


@pytest.mark.parametrize("patience", [0, 0.05, timedelta(seconds=0.05)])
async def test_a_timeout_gives_an_empty_list(queue: PgQueue, patience: float) -> None:
    with queue.take(timeout=patience) as jobs:
        assert jobs == []
    async with queue.atake(timeout=patience) as jobs:
        assert jobs == []
    assert workers(queue) == 0


def test_an_exception_returns_what_is_left_with_the_attempt_spent(queue: PgQueue) -> None:
    ids = enqueued(queue, 3)
    with pytest.raises(ValueError, match="halfway"), queue.take(3) as jobs:  # noqa: PT012 - how a block is left is the claim
        jobs[0].complete()
        raise ValueError("halfway")
    assert states(queue, ids) == [(JobState.SUCCEEDED, 1), (JobState.SCHEDULED, 1), (JobState.SCHEDULED, 1)]
    assert [error.message for error in queue.job(ids[1]).errors] == ["halfway"]
    assert workers(queue) == 0


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_returns_what_is_left_unspent(
    queue: PgQueue, interruption: type[BaseException]
) -> None:
    ids = enqueued(queue, 2, max_attempts=1)
    with pytest.raises(interruption), queue.take(2):
        raise interruption
    assert states(queue, ids) == [(JobState.READY, 0)] * 2
    assert queue.job(ids[0]).errors == ()


async def test_a_cancelled_take_returns_what_is_left_unspent(queue: PgQueue) -> None:
    ids, holding = enqueued(queue, 2), asyncio.Event()

    async def hold() -> None:
        async with queue.atake(2):
            holding.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await asyncio.wait_for(holding.wait(), 20)
    holder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holder
    assert states(queue, ids) == [(JobState.READY, 0)] * 2


def test_a_take_interrupted_while_it_waits_is_off_the_list(queue: PgQueue) -> None:
    def interrupt() -> None:
        wait_until(lambda: workers(queue) == 1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt), queue.take():
            pass
    finally:
        interrupting.join()
        signal.signal(signal.SIGINT, before)
    assert workers(queue) == 0


def test_a_take_interrupted_between_a_statement_and_its_answer_is_off_the_list(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = queue.take()

    def interrupted(_: object) -> None:
        take._connection.pgconn.send_query(b"begin; select pg_sleep(0.01)")  # noqa: SLF001 - as psycopg does it
        raise KeyboardInterrupt

    monkeypatch.setattr(take, "_looks", interrupted)
    with pytest.raises(KeyboardInterrupt), take:
        pass
    assert workers(queue) == 0


async def test_a_take_cancelled_while_it_waits_is_off_the_list(queue: PgQueue) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), queue.atake():
            pass
    assert workers(queue) == 0


def test_jobs_are_settled_one_by_one(queue: PgQueue) -> None:
    ids = enqueued(queue, 3, max_attempts=2)
    with queue.take(3) as jobs:
        jobs[0].complete()
        jobs[1].fail("no ink", delay=timedelta(hours=1))
        assert states(queue, ids) == [(JobState.SUCCEEDED, 1), (JobState.SCHEDULED, 1), (JobState.RUNNING, 1)]
    assert states(queue, ids)[2] == (JobState.SUCCEEDED, 1)
    found = queue.job(ids[1])
    (error,) = found.errors
    assert error.at is not None
    assert (error.message, found.run_at - error.at) == ("no ink", timedelta(hours=1))


async def test_a_failure_on_the_last_attempt_is_the_end(queue: PgQueue) -> None:
    ids = enqueued(queue, 2, max_attempts=1)
    async with queue.atake(2) as jobs:
        await jobs[0].afail(ValueError("no ink"))
        await jobs[1].acomplete()
    found = queue.job(ids[0])
    assert (found.state, found.reason, found.errors[0].type) == (JobState.DEAD, "exhausted", "ValueError")


async def test_settling_twice_is_refused(queue: PgQueue) -> None:
    enqueued(queue, 2)
    with queue.take(1) as jobs:
        jobs[0].complete()
        for again in (jobs[0].complete, lambda: jobs[0].fail("late")):
            with pytest.raises(JobError, match=f"job {jobs[0].id} is settled already"):
                again()
    async with queue.atake(1) as jobs:
        await jobs[0].afail("no ink")
        with pytest.raises(JobError, match="settled already"):
            await jobs[0].acomplete()
    with pytest.raises(JobError, match="settled already"):
        await jobs[0].acomplete()


async def test_calls_of_the_other_kind_are_refused_and_settle_nothing(queue: PgQueue) -> None:
    ids = enqueued(queue, 2)
    with queue.take(1) as jobs:
        with pytest.raises(JobError, match=r"use job\.complete"):
            await jobs[0].acomplete()
        with pytest.raises(JobError, match=r"use job\.complete"):
            await jobs[0].afail("no ink")
        jobs[0].complete()
    async with queue.atake(1) as jobs:
        with pytest.raises(JobError, match=r"await job\.acomplete"):
            jobs[0].complete()
        with pytest.raises(JobError, match=r"await job\.acomplete"):
            jobs[0].fail("no ink")
    assert states(queue, ids) == [(JobState.SUCCEEDED, 1)] * 2


def lease_of(queue: PgQueue) -> datetime:
    found: datetime = ask(queue, "select lease_until from pgqueue.workers")[0][0]
    return found


def test_a_heartbeat_keeps_a_long_hold_alive(queue: PgQueue) -> None:
    ids = enqueued(queue, 1)
    with queue.take(lease=SHORT):
        first = lease_of(queue)
        wait_until(lambda: lease_of(queue) > first)
        assert queue.database.run(upkeep.reclaim(now=first)) == {}
        assert states(queue, ids) == [(JobState.RUNNING, 1)]
    assert states(queue, ids) == [(JobState.SUCCEEDED, 1)]


async def test_who_lost_the_lease_is_told_and_changes_nothing(queue: PgQueue) -> None:
    ids = enqueued(queue, 1)
    with pytest.raises(Superseded, match=f"job {ids[0]}"), queue.take():  # noqa: PT012 - how a block is left is the claim
        ask(queue, "delete from pgqueue.workers")
        queue.database.run(upkeep.reclaim())
    with pytest.raises(Superseded):  # noqa: PT012 - how a block is left is the claim
        async with queue.atake() as jobs:
            ask(queue, "delete from pgqueue.workers")
            queue.database.run(upkeep.reclaim())
            await jobs[0].acomplete()
    assert states(queue, ids) == [(JobState.READY, 2)]


def test_an_interruption_goes_on_though_the_lease_was_lost(queue: PgQueue) -> None:
    enqueued(queue, 1)
    with pytest.raises(KeyboardInterrupt), queue.take():  # noqa: PT012 - how a block is left is the claim
        ask(queue, "delete from pgqueue.workers")
        queue.database.run(upkeep.reclaim())
        raise KeyboardInterrupt


def test_an_exception_goes_on_though_the_connection_was_lost(dsn: str, queue: PgQueue) -> None:
    enqueued(queue, 1)
    kill = """select pg_terminate_backend(pid, 10000) from pg_stat_activity
              where pid <> pg_backend_pid() and datname = current_database()"""
    with pytest.raises(ValueError, match="mine"), queue.take():  # noqa: PT012 - how a block is left is the claim
        with psycopg.connect(dsn, autocommit=True) as own:
            own.execute(kill)
        raise ValueError("mine")
    queue.close()


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (0, {}),
        (-1, {}),
        (1, {"timeout": -1}),
        (1, {"timeout": "soon"}),
        (1, {"queues": ["two words"]}),
        (1, {"queues": "mail"}),
        (1, {"lease": timedelta(0)}),
        (1, {"lease": timedelta(seconds=-1)}),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(count: int, options: dict[str, Any]) -> None:
    for take in (PgQueue("").take, PgQueue("").atake):
        with pytest.raises(InvalidOption):
            take(count, **options)


def test_queues_that_were_not_declared_are_refused_and_the_declared_ones_are_the_default(dsn: str) -> None:
    strict = PgQueue(dsn, queues=["mail"])
    with pytest.raises(UnknownQueue):
        strict.take(queues=["post"])
    ask(strict, "select pgqueue.enqueue('note'), pgqueue.enqueue('note', queue => 'mail')")
    with strict.take(5, timeout=20) as jobs:
        assert [job.queue for job in jobs] == ["mail"]
    strict.close()


def test_a_take_hears_of_a_job_to_cancel_long_before_it_renews_its_lease(queue: PgQueue) -> None:
    ids = enqueued(queue, 2)
    with queue.take(2, lease=3600) as jobs:
        assert queue.cancel(ids[0]) is JobState.RUNNING
        wait_until(lambda: jobs[0].cancelled)
        assert not jobs[1].cancelled


def test_queues_share_a_take_equally_where_their_jobs_come_in_small_portions(queue: PgQueue) -> None:
    @queue.task
    def keep(text: str) -> None: ...

    text = "x" * (LARGEST_ANSWER // 2)
    queue.enqueue_many(keep.using(queue=name).call(text) for name in ("a", "b", "c") for _ in range(60))
    with queue.take(150, queues=["a", "b", "c"], timeout=5) as jobs:
        assert Counter(job.queue for job in jobs) == {"a": 50, "b": 50, "c": 50}


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
    assert max(most.values()) == 2


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


class Waiting:
    """Takes that wait, and in which order they got a job each."""

    def __init__(self, queue: PgQueue) -> None:
        self._queue = queue
        self._threads: list[threading.Thread] = []
        self.served: list[int] = []

    def add(self, number: int, **options: Any) -> None:
        """Start a take, and wait until it waits."""

        def wait() -> None:
            with self._queue.take(timeout=60, **options) as jobs:
                self.served += [number] * len(jobs)

        before = self.count()
        self._threads.append(threading.Thread(target=wait))
        self._threads[-1].start()
        wait_until(lambda: self.count() > before)

    def count(self) -> int:
        return int(ask(self._queue, "select count(*) from pgqueue.workers where idle")[0][0])

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)


def test_blocked_takes_are_served_in_the_order_in_which_they_came(queue: PgQueue) -> None:
    waiting = Waiting(queue)
    for number in range(5):
        waiting.add(number)
    for served in range(1, 6):
        enqueued(queue, 1)
        wait_until(lambda served=served: len(waiting.served) == served)  # type: ignore[misc]  # of this turn
    waiting.join()
    assert waiting.served == [0, 1, 2, 3, 4]


def test_as_many_jobs_as_blocked_takes_serve_all_of_them(queue: PgQueue) -> None:
    waiting = Waiting(queue)
    for number in range(5):
        waiting.add(number)
    enqueued(queue, 5)
    waiting.join()
    assert sorted(waiting.served) == [0, 1, 2, 3, 4]


def test_a_blocked_take_that_hangs_or_serves_other_queues_keeps_no_job_from_the_others(
    queue: PgQueue,
) -> None:
    waiting = Waiting(queue)
    hanging = leases.WorkerInfo.here(1, None)
    queue.database.run(upkeep.arrive(hanging, timedelta(minutes=1)))
    queue.database.run(leases.set_idle(hanging.id, idle=True))
    waiting.add(0, queues=["default"])
    other = leases.WorkerInfo.here(1, ["mail"])
    queue.database.run(upkeep.arrive(other, timedelta(minutes=1)))
    queue.database.run(leases.set_idle(other.id, idle=True))
    waiting.add(1, queues=["mail", "default"])
    second = [row for (row,) in ask(queue, "select id from pgqueue.workers order by started_at desc limit 1")]
    assert [queue.database.run(leases.earlier_takes(one)) for one in (hanging.id, other.id, second[0])] == [
        0, 1, 1,
    ]  # fmt: skip
    enqueued(queue, 2)
    waiting.join()
    assert sorted(waiting.served) == [0, 1]


def test_a_take_that_holds_jobs_is_not_notified(queue: PgQueue) -> None:
    """A notification costs each enqueue time, and this take does not need one."""
    enqueued(queue, 1)
    with queue.take():
        assert ask(queue, "select idle from pgqueue.workers") == [(False,)]
        assert ask(queue, "select pg_sequence_last_value('pgqueue.idle_workers')") == [(1,)]


def test_a_take_that_has_waited_and_holds_a_job_is_before_no_other(queue: PgQueue) -> None:
    held, release = threading.Event(), threading.Event()

    def wait() -> None:
        with queue.take(timeout=60):
            held.set()
            release.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: ask(queue, "select idle from pgqueue.workers") == [(True,)])
    enqueued(queue, 1)
    assert held.wait(60)
    assert ask(queue, "select idle from pgqueue.workers") == [(False,)]
    release.set()
    thread.join()


def test_a_take_that_lets_others_before_it_does_not_overshoot_its_timeout(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takes_base, "POLL", timedelta(seconds=100))
    hanging = leases.WorkerInfo.here(1, None)
    queue.database.run(upkeep.arrive(hanging, timedelta(minutes=1)))
    enqueued(queue, 1, queue="other")
    queue.control.pause("other")
    began = time.monotonic()
    with queue.take(timeout=0.3, lease=600) as jobs:
        assert not jobs
    assert time.monotonic() - began < 60
