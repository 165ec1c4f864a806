"""Limits hold across workers: concurrency, order, rates and whole queues; decided from what the tasks recorded.

Limits under hostile rows and settings: whatever one limit's rows say, jobs of other limits are claimed.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
from limits.test_claims_from_lanes import NOON, Workers
from looking import ask, until
from promises.processes import do
from running import Running
from worker.helping import FOR_EVER, dismantle, ended, register

from pgqueue import Limit, PgQueue, Rate, Task, Throttle, Unique
from pgqueue.store.jobs import finish
from pgqueue.store.limits import lanes, limit_control
from pgqueue.store.limits.served_lanes import START
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Succeeded
from pgqueue.worker import claims as worker_claims
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

    claims, now = Worker(queue, concurrency=5).parts.claims, 100.0
    monkeypatch.setattr(worker_claims, "time", SimpleNamespace(monotonic=lambda: now))
    first, second, third = (_claim(number, tick.name) for number in range(3))
    claims.add([first, second, third], {second.id: 0.03, third.id: 0.05}, since=99.99)
    assert claims.release_due() == pytest.approx(0.02)
    assert [*claims.waiting] == [first]
    assert claims.unstarted() == [first, second, third]
    assert claims.room(0) == 2  # of five slots, one is for each of them
    now = 100.03
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
    await register(lost)
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
    await register(other)
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


@pytest.fixture
def workers(queue: PgQueue) -> Workers:
    return Workers(queue)


def claimed(workers: Workers) -> list[str]:
    """The tasks of the jobs that a worker claims that has just polled."""
    polled = do(workers.queue, upkeep.poll(now=NOON))
    taken = workers.claim(0, 9, limited=polled.limited, weighted=polled.weighted, seen=polled.in_lanes)
    return sorted(one.task for one in taken.claims)


HOSTILE_LIMITS: dict[str, LiteralString] = {
    "every and burst at their end": "update pgqueue.limits set every = 9223372036854775807, burst = 9223372036854775807 where name = 'task:bad:per-second'",
    "every at its end": "update pgqueue.limits set every = 9223372036854775807 where name = 'task:bad:per-second'",
    "a rate that became a limit": "update pgqueue.limits set every = null, burst = null, most = 1 where name = 'task:bad:per-second'",
    "no place": "update pgqueue.limits set every = null, burst = null, most = 0 where name = 'task:bad:per-second'",
    "a state at the end of time": "insert into pgqueue.rates values ('task:bad:per-second', 9223372036854775807)",
    "a state before all times": "insert into pgqueue.rates values ('task:bad:per-second', -9223372036854775808)",
    "a weight of 0": "insert into pgqueue.limits (name, most, declared) values (' {\"tenant\":1}', 0, '')",
    "a weight that is a rate": "insert into pgqueue.limits (name, every, burst, declared) values (' {\"tenant\":1}', 5, 5, '')",
    "no name": "insert into pgqueue.limits (name, most, declared) values ('', 1, '')",
    "a queue of no name": "insert into pgqueue.limits (name, most, declared) values ('queue:', 1, '')",
    "a name of lines": "insert into pgqueue.limits (name, most, declared) values (E'task:bad\\nqueue:default', 0, '')",
    "no limits at all": "delete from pgqueue.limits",
    "a cost below 0": "update pgqueue.jobs set cost = -5 where task = 'bad'",
    "a cost of 0": "update pgqueue.jobs set cost = 0 where task = 'bad'",
    "a cost at its end": "update pgqueue.jobs set cost = 2147483647 where task = 'bad'",
    "a lane of no limit": "update pgqueue.jobs set lane = 'nothing' where task = 'bad'",
    "a lane of lines": "update pgqueue.jobs set lane = repeat(E'\\n', 2000) where task = 'bad'",
    "a lane of one key twice": "update pgqueue.jobs set lane = E'task:good\\ntask:good' where task = 'bad'",
    "an empty lane": "update pgqueue.jobs set lane = '' where task = 'bad'",
}


@pytest.mark.parametrize("statement", HOSTILE_LIMITS.values(), ids=HOSTILE_LIMITS.keys())
def test_hostile_rows_of_one_limit_keep_no_job_of_another_from_its_start(
    queue: PgQueue, workers: Workers, statement: LiteralString
) -> None:
    @queue.task(name="bad", limit=Rate("1/second", burst=9), fair_by="tenant")
    def bad(tenant: int) -> None: ...

    @queue.task(name="good", limit=Limit(1))
    def good() -> None: ...

    do(queue, lanes.declare(queue.limits))
    queue.enqueue_many([bad.call(1), bad.call(1), good.call()])
    ask(queue, statement)
    assert "good" in claimed(workers)
    queue.insight.limits()
    for name in queue.limits:
        queue.insight.limit(name)


def test_a_rate_of_the_largest_numbers_that_are_allowed_starts_its_job(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(name="bad", limit=Rate("1/365d", burst=1_000_000, cost=1_000_000))
    def bad() -> None: ...

    queue.enqueue_many([bad.call(), bad.call()])
    assert claimed(workers) == ["bad"]
    assert claimed(workers) == []
    assert queue.insight.limit("task:bad:per-365d").keys[0].next_start is not None
    queue.control.limits.set("task:bad:per-365d", Rate("1/second"))
    queue.insight.limit("task:bad:per-365d")


def test_a_job_that_costs_more_than_the_burst_starts_when_the_burst_is_whole_and_keeps_no_lane(
    queue: PgQueue, workers: Workers
) -> None:
    """Its cost may be written by SQL, or the burst lowered after it was enqueued."""

    @queue.task(name="send", limit=Rate("10/second", burst=50, cost="size"))
    def send(size: int) -> None: ...

    queue.enqueue_many([send.call(40), send.call(1)])
    queue.control.limits.set("task:send:per-second", Rate("10/second", burst=5))
    first = workers.claim(0, 9, 0.0)
    assert [one.args for one in first.claims] == ['{"size":40}']
    later = workers.claim(0, 9, 5.0)
    assert [one.args for one in later.claims] == ['{"size":1}']


def test_lanes_of_a_queue_that_is_not_served_hide_no_lane_behind_them(queue: PgQueue) -> None:
    """No text is the last in every collation: in en_US.UTF-8 of the C library, U+10FFFF stands before all letters."""

    @queue.task(name="a", queue="a", limit=Limit(1))
    def a() -> None: ...

    @queue.task(name="b", queue="b", limit=Limit(1))
    def b() -> None: ...

    queue.enqueue_many([a.call(), b.call()])
    ask(queue, "update pgqueue.jobs set lane = chr(1114111) || lane where task = 'a'")
    found = do(queue, lanes.find(["b"], START, 9))
    assert ([one.queue for one in found.lanes], found.looked_at) == (["b"], 2)


@pytest.mark.parametrize("changed", ["by hand", "in the code"])
async def test_a_rate_that_is_made_faster_holds_for_the_jobs_that_wait_and_for_new_ones(
    queue: PgQueue, dsn: str, running: Running, changed: str
) -> None:
    """The state of the slow rate lies an hour ahead; read anew at each claim, it lay ahead of the clock for that hour."""

    def task_of(queue: PgQueue, rate: Rate) -> Task[[], None]:
        @queue.task(name="tick", limit=rate)
        async def tick() -> None: ...

        return tick

    tick = task_of(queue, Rate(every=3_600))
    jobs = [tick.enqueue() for _ in range(3)]
    async with running(queue):
        await ended(queue, jobs[0])
        if changed == "by hand":
            queue.control.limits.set("task:tick:per-interval", Rate(every=0.01), by="ann")
            assert "opens in" not in (why := queue.why(jobs[1].id).sentence) or "opens in 0.1" in why
            await ended(queue, *jobs, tick.enqueue())
    if changed == "in the code":
        later = PgQueue(dsn)
        jobs.append(task_of(later, Rate(every=0.01)).enqueue())
        async with running(later):
            await ended(later, *jobs)
        later.close()
    (key,) = queue.insight.limit("task:tick:per-interval").keys
    assert key.next_start is not None
    assert key.next_start < datetime.now(UTC) + timedelta(seconds=60)


def test_the_state_of_a_rate_that_reaches_too_far_is_stored_anew_by_the_first_claim(
    queue: PgQueue, workers: Workers
) -> None:
    """So after a clock was set back, too."""

    @queue.task(name="tick", limit=Rate(every=2))
    def tick() -> None: ...

    queue.enqueue_many([tick.call(), tick.call(), tick.call()])
    assert workers.starts(0, 9, 0.0) == [0.0]
    ask(queue, "update pgqueue.rates set tat = tat + 3600 * 1000000::bigint")
    shown = queue.database.run(limit_control.show("task:tick:per-interval", queue.limits, now=NOON))
    assert shown.keys[0].next_start == NOON + timedelta(seconds=2.1)
    assert workers.starts(0, 9, 1.0) == []
    assert workers.starts(0, 9, 3.0) == [3.1]
    assert workers.starts(0, 9, 5.05) == [5.1]


@pytest.mark.parametrize(
    "unique",
    [
        Unique(),
        Unique(period=timedelta(minutes=1)),
        Throttle(timedelta(minutes=1)),
        Throttle(timedelta(minutes=1), trailing=True),
        Unique(collision="replace"),
    ],
    ids=["rejects", "period", "throttle", "trailing", "replaces"],
)
@pytest.mark.parametrize("many", [False, True])
def test_a_job_with_a_unique_key_waits_in_the_lane_of_its_arguments(
    queue: PgQueue, unique: Unique, *, many: bool
) -> None:
    send = queue.task(
        name="send", limit=[Limit(1, by="to"), Rate("9/second", burst=9, cost="size")], unique=unique
    )(_send)
    keyed = send.using(unique_key="k")
    for to in (1, 2):
        if many:
            queue.enqueue_many([keyed.call(to, 3)])
        else:
            keyed.enqueue(to, 3)
        lanes = ask(
            queue, "select substring(lane from '\"to\":([0-9])'), status, in_lane, cost from pgqueue.jobs"
        )
        assert lanes == [(f"{to if unique.collision == 'replace' else 1}", "blocked", True, 3)]


def _send(to: int, size: int) -> None: ...
