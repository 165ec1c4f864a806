"""Limits hold across workers: concurrency, order, rates and whole queues; decided from what the tasks recorded."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import FOR_EVER, dismantle, ended

from pgqueue import Limit, PgQueue, Rate
from pgqueue.store.jobs import finish
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Succeeded
from pgqueue.worker.worker import Worker


class Most:
    def __init__(self) -> None:
        self.now = self.most = self.count = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1
        self.count += 1


async def test_jobs_of_one_key_run_one_at_a_time_and_in_order_and_those_of_other_keys_beside_them(
    queue: PgQueue, running: Running
) -> None:
    order: dict[int, list[int]] = {}
    seen: dict[int, Most] = {}
    all_of_them = Most()

    @queue.task(limit=Limit(1, by="customer"))
    async def charge(customer: int, number: int) -> None:
        async with seen.setdefault(customer, Most()), all_of_them:
            order.setdefault(customer, []).append(number)
            await asyncio.sleep(0.002)

    jobs = await queue.aenqueue_many(charge.call(number % 5, number=number) for number in range(50))
    async with running(queue, concurrency=20):
        await ended(queue, *jobs)
    assert {customer: most.most for customer, most in seen.items()} == dict.fromkeys(range(5), 1)
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert all_of_them.most > 1


def test_a_claim_of_a_rate_waits_for_its_instant_and_starts_then(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.task(limit=Rate(every=0.02))
    async def tick() -> None: ...

    claims = Worker(queue, concurrency=5).parts.claims
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    first, second, third = (_claim(number, tick.name) for number in range(3))
    claims.add([first, second, third], {second.id: 0.03, third.id: 0.05}, since=99.99)
    assert claims.release_due() == pytest.approx(0.02)
    assert [*claims.waiting] == [first]
    assert claims.unstarted() == [first, second, third]
    assert claims.room(0) == 2  # of five slots, one is for each of them
    monkeypatch.setattr(time, "monotonic", lambda: 100.03)
    assert claims.release_due() == pytest.approx(0.01)
    assert [*claims.waiting] == [first, second]
    assert claims.drop(Returned) == 3
    assert claims.release_due() is None


def _claim(job_id: int, task: str) -> Claim:
    now = datetime.now(UTC)
    return Claim(
        job_id,
        uuid4(),
        1,
        1,
        25,
        0,
        "default",
        task,
        "{}",
        now.timestamp(),
        now.timestamp(),
        0.0,
        lane="lane",
    )


async def test_the_places_of_a_lost_worker_come_back_with_its_jobs(queue: PgQueue, running: Running) -> None:
    @queue.task(limit=Limit(2))
    async def call() -> None: ...

    jobs = [await call.aenqueue() for _ in range(5)]
    lost = Worker(queue, poll=FOR_EVER, concurrency=10)
    await lost.parts.heartbeat.register()
    taken = await lost.parts.connections.claiming.run(lost.parts.lanes.claim(lost.id, 10))
    assert [one.id for one in taken.claims] == [jobs[0].id, jobs[1].id]
    again = await lost.parts.connections.claiming.run(lost.parts.lanes.claim(lost.id, 10))
    assert not again.claims
    ask(queue, "update pgqueue.workers set lease_until = now() - interval '1 minute'")
    async with running(queue):
        await ended(queue, *jobs)
    await dismantle(lost)


async def test_a_limit_that_another_transaction_has_locked_keeps_no_other_job_waiting(
    queue: PgQueue, running: Running, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has to store the limit waited for that transaction, and claimed nothing meanwhile."""
    monkeypatch.setattr("pgqueue.worker.fetcher.LANES_LOCKED_FOR", 0.1)

    @queue.task(limit=Limit(1, name="new"))
    async def limited() -> None: ...

    @queue.task
    async def plain() -> None: ...

    with psycopg.connect(dsn) as other:
        other.execute("insert into pgqueue.limits (name, most, declared) values ('name:new', 1, 'other')")
        async with running(queue, lease=timedelta(seconds=3), poll=timedelta(seconds=0.1)):
            waits = await limited.aenqueue()
            await ended(queue, *[await plain.aenqueue() for _ in range(3)])
            assert not (await waits.astatus()).ended
            other.rollback()
            await ended(queue, waits)


async def test_a_place_that_becomes_free_without_a_notification_is_found_by_the_next_poll(
    queue: PgQueue, running: Running
) -> None:
    """As where a worker of other queues has finished the last job of its queue under a shared limit."""

    @queue.task(limit=Limit(1, name="shared"))
    async def call() -> None: ...

    elsewhere = await call.using(queue="theirs").aenqueue()
    other = Worker(queue, poll=FOR_EVER, queues=["theirs"])
    await other.parts.heartbeat.register()
    claiming = other.parts.connections.claiming
    (claim,) = (await claiming.run(other.parts.lanes.claim(other.id, 10))).claims
    async with running(queue, queues=["ours"], poll=FOR_EVER, sweep=FOR_EVER) as worker:
        ours = await call.using(queue="ours").aenqueue()
        await until(lambda: worker.parts.fetcher.waits)
        await claiming.run(finish.finish(other.id, [Succeeded(claim, 0.1)], keep=True))
        worker.parts.signals.poll.set()
        await ended(queue, ours, elsewhere)
    await dismantle(other)


async def test_a_limit_on_a_queue_holds_for_jobs_that_were_ready_before(
    queue: PgQueue, running: Running
) -> None:
    seen = Most()

    @queue.task
    async def call() -> None:
        async with seen:
            await asyncio.sleep(0.002)

    jobs = await queue.aenqueue_many(call.using(queue="mail").call() for _ in range(30))
    others = await queue.aenqueue_many(call.using(queue="other").call() for _ in range(3))
    ask(queue, "insert into pgqueue.limits (name, most, declared) values ('queue:mail', 2, '')")
    async with running(queue, concurrency=10, queues=["mail"]):
        await ended(queue, *jobs)
    assert (seen.count, seen.most) == (30, 2)
    async with running(queue):
        await ended(queue, *others)


async def test_a_worker_whose_first_claim_failed_stores_limits_with_the_next_one(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.worker.fetcher.LANES_LOCKED_FOR", 0.1)

    @queue.task(name="send", limit=Limit(1))
    async def send() -> None: ...

    ask(queue, "create sequence public.refused")  # a rollback leaves it as it is
    ask(
        queue,
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin perform nextval('public.refused'); raise lock_not_available; end $$",
    )
    ask(queue, "create trigger refuse before insert on pgqueue.limited_tasks execute function refuse()")
    async with running(queue):
        await until(lambda: ask(queue, "select is_called from public.refused") == [(True,)])
        ask(queue, "drop trigger refuse on pgqueue.limited_tasks")
        await until(lambda: ask(queue, "select task from pgqueue.limited_tasks"))
    assert ask(queue, "select task from pgqueue.limited_tasks") == [("send",)]
