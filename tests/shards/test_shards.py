"""Several databases hold the jobs of one queue: keys have one home, also while a shard is added or does not answer."""

import asyncio
import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest
from databases import Copies, dsn_of
from looking import ask, until
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from pgqueue import Context, JobHandle, Limit, PgQueue, Rate, Unique, chain
from pgqueue.app.shards import sharded_database
from pgqueue.errors import (
    ConfigurationError,
    ConnectionFailed,
    InvalidCallback,
    InvalidOption,
    NotInMemory,
    ShardDown,
    SignalRefused,
    WrongShard,
)
from pgqueue.store.connections.database import Database
from pgqueue.store.queues import queues
from pgqueue.store.schedules import ticks
from pgqueue.store.shards import resharding, shards
from pgqueue.testing import failing, in_memory, replay
from pgqueue.values.schedules.schedule import ScheduleChange
from pgqueue.values.shards import ShardState, home_of, shard_of_id, slots_of
from pgqueue.worker.sharded import ShardedWorker

Databases = Callable[[int], list[str]]


@pytest.fixture
def databases(copies: Copies, migrated_server: Any) -> Iterator[Databases]:
    """``databases(3)``: so many migrated databases."""
    with ExitStack() as stack:
        yield lambda number: [
            dsn_of(migrated_server, stack.enter_context(copies.one())) for _ in range(number)
        ]


def made(dsns: Sequence[str], **options: Any) -> PgQueue:
    """A queue on these, with tasks of each kind."""
    queue = PgQueue(shards=dsns, **options)
    queue.task(name="plain")(_echo)
    queue.task(name="keyed", unique=Unique(by="n"))(_echo)
    queue.task(name="limited", limit=Limit(1, by="n"))(_echo)
    return queue


def _echo(n: int) -> int:
    return n


@pytest.fixture
def three(databases: Databases) -> Iterator[PgQueue]:
    queue = made(databases(3))
    resharding.declare(sharded_database(queue))
    yield queue
    queue.close()


def live(queue: PgQueue) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for number, one in enumerate(sharded_database(queue).databases):
        with one.connect() as connection:
            for (key,) in connection.execute(
                "select coalesce(unique_key, lane) from pgqueue.jobs"
            ).fetchall():
                if key is not None:
                    found.setdefault(key, set()).add(number)
    return found


def test_the_database_and_python_agree_on_the_home_of_every_key(three: PgQueue) -> None:
    keys = [*(f"key {n}" for n in range(200)), "", "ü\U0001f600", "a\nb", '{"n":1}']
    with sharded_database(three).databases[0].connect() as connection:
        found = connection.execute(
            "select pgqueue.shard_of(key, '{4,0,17}') from unnest(%s::text[]) with ordinality as one (key, place) order by place",
            (keys,),
        ).fetchall()
    assert [home for (home,) in found] == [home_of(key, (4, 0, 17)) for key in keys]
    assert len({*found}) == 3


def test_an_added_shard_takes_an_equal_part_of_the_keys_and_none_moves_between_the_others() -> None:
    keys = [f"tenant {n}" for n in range(3_000)]
    before, after = ([home_of(key, members) for key in keys] for members in ((0, 1, 2), (0, 1, 2, 3)))
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {3}
    assert 600 < len(moved) < 900
    assert all(200 < count < 300 for count in Counter(old for old, _ in moved).values())


def test_a_job_lives_where_its_key_says_and_its_id_says_where(three: PgQueue) -> None:
    keyed, limited, plain = (three.find_task(name) for name in ("keyed", "limited", "plain"))
    handles = [keyed.enqueue(n) for n in range(20)] + [limited.enqueue(n) for n in range(20)]
    again = [keyed.enqueue(n) for n in range(20)]
    anywhere = [plain.enqueue(n) for n in range(6)]

    assert [one.id for one in again] == [one.id for one in handles[:20]]
    assert {one.accepted for one in again} == {False}
    assert Counter(shard_of_id(one.id) for one in anywhere) == {0: 2, 1: 2, 2: 2}
    assert {shard_of_id(one.id) for one in handles} == {0, 1, 2}
    assert all(len(where) == 1 for where in live(three).values())
    assert all(
        shard_of_id(one.id) == three.shards.of_key(three.job(one.id).unique_key or "") for one in handles[:20]
    )
    assert handles[0].status() == "ready"
    assert handles[0].cancel() == "cancelled"
    assert len(three.insight.search(limit=500).jobs) == 46
    assert sum(one.count for one in three.insight.counts()[0]) == 45
    assert [(one.queue, one.ready, one.blocked) for one in three.insight.queues()] == [("default", 25, 20)]
    assert three.control.pause("default")
    assert [
        one.paused_at is not None for number in range(3) for one in three.shard(number).insight.queues()
    ] == [True] * 3


def test_a_task_that_is_found_on_the_queue_of_one_shard_adds_its_jobs_there(three: PgQueue) -> None:
    for number in (2, 0, 1):
        task = three.shard(number).find_task("plain")
        other = three.shard(number).find_task("limited")
        jobs = [
            task.enqueue(1),
            task.using(priority=3).enqueue(2),
            *chain(task.call(3), task.call(4)).enqueue().jobs,
        ]
        assert [shard_of_id(job.id) for job in jobs] == [number] * 4
        with failing(other, error=ValueError("no")), pytest.raises(ValueError, match="no"):
            replay(three, "limited", {"n": 1})


async def test_a_key_of_another_shard_is_refused_on_the_queue_of_one_shard_in_our_words(
    three: PgQueue,
) -> None:
    n = next(
        n
        for n in range(99)
        if three.shards.of_key(three.find_task("keyed").call(n).job.unique_key or "") != 1
    )
    task = three.shard(1).find_task("keyed")
    with pytest.raises(WrongShard, match=r"lives on shard .* with all shards in its list"):
        task.enqueue(n)
    with pytest.raises(WrongShard, match="lives on shard"):
        await (await three.ashard(1)).find_task("keyed").aenqueue(n)
    with pytest.raises(WrongShard, match="lives on shard"):
        three.shard(1).enqueue_many([task.call(n)])
    with pytest.raises(WrongShard, match="lives on shard"):
        chain(task.call(n), task.call(n + 1)).enqueue()
    assert three.insight.search().jobs == ()
    await three.aclose()


def test_in_memory_a_shard_is_refused_with_what_to_use(three: PgQueue) -> None:
    with in_memory(three), pytest.raises(NotInMemory, match="use the fixture pgqueue_queue"):
        three.shard(1)


@pytest.mark.parametrize("number", ["0", None, True, 1.0, -1])
async def test_what_is_no_number_of_a_shard_is_refused(three: PgQueue, number: Any) -> None:
    with pytest.raises(InvalidOption, match="use a whole number from 0 to"):
        three.shard(number)
    with pytest.raises(InvalidOption, match="use a whole number from 0 to"):
        await three.ashard(number)


def test_many_jobs_are_added_on_every_shard_in_the_order_of_the_calls(three: PgQueue) -> None:
    keyed, plain = three.find_task("keyed"), three.find_task("plain")
    handles = three.enqueue_many(task.call(n) for n in range(40) for task in (keyed, plain))
    assert [three.job(one.id).args["n"] for one in handles] == [n for n in range(40) for _ in "ab"]
    assert not any(one.accepted for one in three.enqueue_many(keyed.call(n) for n in range(40)))


async def test_a_worker_runs_the_jobs_of_all_shards_and_results_come_back(three: PgQueue) -> None:
    handles = [
        await three.find_task(name).aenqueue(n) for n in range(9) for name in ("keyed", "limited", "plain")
    ]
    seen: list[tuple[int, int, int]] = []

    @three.task(name="parent")
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            joined = await three.find_task("plain").aenqueue(100)
            refused = 0
            for n in range(9):
                try:
                    await three.find_task("limited").aenqueue(200 + n)
                except WrongShard:
                    refused += 1
        seen.append((shard_of_id(joined.id) - shard_of_id(ctx.job.id), refused, joined.id))

    parents = [await parent.aenqueue() for _ in range(3)]
    worker = ShardedWorker(three, concurrency=6)
    runner = asyncio.create_task(worker.run())
    assert [await one.aresult(30) for one in handles] == [n for n in range(9) for _ in "abc"]
    assert sum(one.parts.claims.size for one in worker.workers.values()) <= 6
    await until(lambda: len(seen) == len(parents))
    assert {apart for apart, _, _ in seen} == {0}, "it commits with the job's own transaction"
    assert sum(refused for _, refused, _ in seen) == 18, "each of nine keys lives on one of three shards"
    assert [await three.aresult(job_id, timeout=30) for _, _, job_id in seen] == [100] * 3
    worker.stop()
    await runner
    await three.aclose()


async def test_an_attempt_in_a_process_is_on_the_shard_of_its_job(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsns = databases(2)
    monkeypatch.setenv("PGQUEUE_TEST_SHARDS", " ".join(dsns))
    module = importlib.import_module("shards.in_processes")
    queue: PgQueue = module.queue
    resharding.declare(sharded_database(queue))
    for dsn in dsns:
        with psycopg.connect(dsn) as connection:
            connection.execute("create table witness (job bigint)")
    jobs = [await module.commit.aenqueue() for _ in range(4)]
    worker = ShardedWorker(queue, concurrency=4)
    runner = asyncio.create_task(worker.run())
    for job in jobs:
        await job.aresult(timeout=30)
    worker.stop()
    await runner
    await queue.aclose()
    queue.close()
    found = [ask(dsn, "select job from witness") for dsn in dsns]
    assert sorted(job for rows in found for (job,) in rows) == sorted(job.id for job in jobs)
    assert all(found)


async def test_signals_reach_waiting_jobs_on_whichever_shard_they_are(three: PgQueue) -> None:
    tokens: dict[int, str] = {}

    @three.task(name="asks")
    async def asks(ctx: Context) -> list[Any]:
        tokens[ctx.job.id] = await ctx.acallback("paid")
        return [
            await ctx.await_for("own"),
            await ctx.await_for("all", key="order:1"),
            await ctx.await_for("paid"),
        ]

    handles = [await asks.aenqueue() for _ in range(3)]
    assert len({shard_of_id(one.id) for one in handles}) == 3
    assert [await three.asignal(one, "own", place) for place, one in enumerate(handles)] == [True] * 3
    assert await three.asignal("order:1", "all", "text")
    assert not await three.asignal("order:1", "all", "again")
    worker = ShardedWorker(three, concurrency=6)
    runner = asyncio.create_task(worker.run())
    await until(lambda: len(tokens) == 3)
    assert [await three.aresolve(tokens[one.id], 9) for one in handles] == [True] * 3
    assert [await one.aresult(30) for one in handles] == [[place, "text", 9] for place in range(3)]
    worker.stop()
    await runner
    await three.aclose()


@pytest.mark.parametrize(
    "token", ["", "x", "bm8.x", "LTE6Og.x", "OTk5OTk5OTk5OTk5OTk5OTk5OTk6Og.x", "\x00", "é.x"]
)
def test_a_token_that_no_shard_has_made_is_refused(three: PgQueue, token: str) -> None:
    with pytest.raises(InvalidCallback):
        three.resolve(token)


def test_a_signal_to_a_job_that_never_was_is_refused_by_its_shard(three: PgQueue) -> None:
    with pytest.raises(SignalRefused):
        three.signal(three.find_task("plain").enqueue(1).id + 1_000, "own")


def test_a_signal_to_a_key_is_not_sent_in_a_transaction_which_is_on_one_shard(three: PgQueue) -> None:
    job = three.find_task("plain").enqueue(1)
    with psycopg.connect(sharded_database(three).of_job(job.id).dsn) as connection:
        with pytest.raises(WrongShard, match="a signal to a key goes to every shard"):
            three.signal("order:1", "paid", connection=connection)
        assert three.signal(job, "own", connection=connection)
    assert not three.signal(job, "own")


def test_a_signal_that_a_shard_has_missed_is_the_first_when_it_is_repeated(
    three: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.find_task("plain").enqueue(1)

    def away(*_: object) -> None:
        raise ConnectionFailed("away")

    with monkeypatch.context() as patched:
        patched.setattr(sharded_database(three).of_number(2), "run", away)
        with pytest.raises(ShardDown, match="repeat the call"):
            three.signal("order:1", "paid")
    assert three.signal("order:1", "paid")
    assert not three.signal("order:1", "paid")


def test_slots_go_to_the_shards_that_have_jobs() -> None:
    assert slots_of(10, [10, 1, 1]) == [8, 1, 1]
    assert slots_of(9, [9, 9, 9]) == [3, 3, 3]
    assert sum(slots_of(20, [1, 1, 1])) == 20


def test_a_transaction_of_the_caller_adds_only_what_lives_on_its_shard_and_stays_usable(
    three: PgQueue,
) -> None:
    keyed, plain = three.find_task("keyed"), three.find_task("plain")
    here = next(n for n in range(99) if three.shards.of_key(f'keyed{{"n":{n}}}') == 1)
    other = next(n for n in range(99) if three.shards.of_key(f'keyed{{"n":{n}}}') == 2)
    with psycopg.connect(sharded_database(three).databases[1].dsn) as connection:
        one = keyed.using(connection=connection).enqueue(here)
        any_ = plain.using(connection=connection).enqueue(1)
        with pytest.raises(WrongShard, match="OWN_CONNECTION"):
            keyed.using(connection=connection).enqueue(other)
        connection.commit()
    assert {shard_of_id(job.id) for job in (one, any_)} == {1}
    assert three.job(one.id).state == "ready"


def test_a_few_limited_jobs_on_the_callers_connection_are_refused_before_anything_is_written(
    three: PgQueue,
) -> None:
    limited = three.find_task("limited")
    with psycopg.connect(sharded_database(three).databases[1].dsn) as connection:
        with pytest.raises(WrongShard, match="OWN_CONNECTION"):
            three.enqueue_many([limited.call(n) for n in range(9)], connection=connection)
        assert connection.execute("select count(*) from pgqueue.jobs").fetchall() == [(0,)]
        connection.commit()


def test_what_two_shards_would_have_to_count_together_is_refused(three: PgQueue) -> None:
    three.task(name="a", limit=Limit(1, name="x", by="n"))(_echo)
    three.task(name="b", limit=[Limit(1, name="x", by="n"), Limit(2, name="b")])(_echo)
    with pytest.raises(InvalidOption, match="share a limit"):
        three.find_task("a").enqueue(1)
    with pytest.raises(InvalidOption, match="its unique key must be made of arguments"):
        three.find_task("limited").using(unique_key="mine").enqueue(1)
    assert three.find_task("limited").using(unique=Unique(by="n")).enqueue(1).accepted
    keyed = three.find_task("keyed")
    with pytest.raises(WrongShard, match="a flow lives on one"):
        chain(*(keyed.call(n) for n in range(9))).enqueue()
    assert chain(three.find_task("plain").call(1), keyed.call(1)).enqueue().id
    with pytest.raises(ConfigurationError, match="the queue on one shard"):
        three.insight.store()
    with pytest.raises(ConfigurationError, match="the queue on one shard"), three.take(timeout=0):
        pass
    assert sum(len(three.shard(number).insight.search().jobs) for number in range(3)) == len(
        three.insight.search().jobs
    )
    with pytest.raises(InvalidOption, match="page through one shard"):
        three.insight.search(before=9)
    assert three.insight.errors().complete
    assert three.insight.running().jobs == ()


def test_one_shard_that_is_down_leaves_the_others_serving(databases: Databases) -> None:
    dsns = databases(2)
    queue = made(dsns)
    resharding.declare(sharded_database(queue))
    queue.close()
    queue = made([dsns[0], "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"])
    homes = {n: home_of(f'keyed{{"n":{n}}}', (0, 1)) for n in range(12)}
    for n, home in homes.items():
        if home == 0:
            assert queue.find_task("keyed").enqueue(n).accepted
        else:
            with pytest.raises(ShardDown, match="jobs of other shards go on"):
                queue.find_task("keyed").enqueue(n)
    with pytest.raises(ShardDown, match="does not answer"):
        sharded_database(queue).of_number(1)
    assert {shard_of_id(queue.find_task("plain").enqueue(n).id) for n in range(4)} == {0}
    assert len(queue.insight.search().jobs) == 4 + sum(home == 0 for home in homes.values())
    assert [one.error is None for one in queue.shards.list()] == [True, False]
    queue.close()


async def test_a_worker_serves_the_shards_that_answer_and_the_other_when_it_does(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.worker.sharded.AGAIN_AFTER", 0.05)
    monkeypatch.setattr("pgqueue.store.shards.shard_databases.AGAIN_AFTER", 0.0)
    monkeypatch.setattr("pgqueue.store.shards.sharded.CONNECT_WITHIN", 1)
    dsns = databases(2)
    queue = made(dsns)
    resharding.declare(sharded_database(queue))
    handles = [await queue.find_task("keyed").aenqueue(n) for n in range(12)]
    by_shard = {number: [one for one in handles if shard_of_id(one.id) == number] for number in (0, 1)}
    with psycopg.connect(dsns[0], autocommit=True) as connection:
        name = conninfo_to_dict(dsns[1])["dbname"]
        connection.execute(
            sql.SQL("alter database {} allow_connections false").format(sql.Identifier(str(name)))
        )
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,)
        )
        worker = ShardedWorker(queue, concurrency=4)
        runner = asyncio.create_task(worker.run())
        assert [await one.aresult(30) is not None for one in by_shard[0]] == [True] * len(by_shard[0])
        connection.execute(
            sql.SQL("alter database {} allow_connections true").format(sql.Identifier(str(name)))
        )
    assert [await _when_it_answers(one) is not None for one in by_shard[1]] == [True] * len(by_shard[1])
    worker.stop()
    await runner
    await queue.aclose()
    queue.close()


async def test_a_worker_that_starts_while_the_first_shard_is_away_keeps_its_schedules(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.worker.sharded.AGAIN_AFTER", 0.05)
    monkeypatch.setattr("pgqueue.store.shards.shard_databases.AGAIN_AFTER", 0.0)
    dsns = databases(2)
    queue = made(dsns)
    resharding.declare(sharded_database(queue))
    queue.schedule(every=timedelta(hours=1), name="hourly", arguments={"n": 1})(queue.find_task("plain"))
    assert queue.schedules.apply().added == ("hourly",)
    handles = [await queue.find_task("plain").aenqueue(n) for n in range(2)]
    name = sql.Identifier(str(conninfo_to_dict(dsns[0])["dbname"]))
    with psycopg.connect(dsns[1], autocommit=True) as connection:
        connection.execute(sql.SQL("alter database {} allow_connections false").format(name))
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
            (conninfo_to_dict(dsns[0])["dbname"],),
        )
        worker = ShardedWorker(queue, concurrency=4)
        runner = asyncio.create_task(worker.run())
        assert await handles[1].aresult(30) == 1
        connection.execute(sql.SQL("alter database {} allow_connections true").format(name))
    assert await _when_it_answers(handles[0]) == 0
    assert [one.name for one in queue.schedules.find()] == ["hourly"]
    worker.stop()
    await runner
    await queue.aclose()
    queue.close()


def test_only_the_first_shard_stores_what_an_app_declares_of_schedules(three: PgQueue) -> None:
    three.schedule(every=timedelta(hours=1), name="hourly", arguments={"n": 1})(three.find_task("plain"))
    assert [three.shard(number).schedules.apply().added for number in range(3)] == [("hourly",), (), ()]
    assert [len(three.shard(number).schedules.find()) for number in range(3)] == [1, 0, 0]
    alone = PgQueue(sharded_database(three).of_number(1).dsn)  # as `pgqueue worker --dsn` of one database
    alone.schedule(every=timedelta(hours=1), name="hourly")(_tick)
    assert alone.schedules.apply().added == ()
    alone.close()


def _tick() -> None: ...


def test_operators_steer_the_schedules_of_the_first_shard(three: PgQueue) -> None:
    schedules, plain = three.schedules, three.find_task("plain")
    schedules.add("nightly", plain.call(1), "0 3 * * *")
    assert schedules.put("nightly", plain.call(2), "0 4 * * *", by="ann") == ScheduleChange.CHANGED
    assert (schedules.pause("nightly"), schedules.resume("nightly")) == (True, True)
    fired = schedules.fire("nightly")
    assert fired is not None
    assert shard_of_id(fired.id) == 0
    now = datetime.now(UTC)
    assert len(schedules.backfill("nightly", now - timedelta(days=2), now)) == 2
    assert len(schedules.runs("nightly")) == 3
    assert [one.name for one in three.insight.schedules()] == ["nightly"]
    assert schedules.remove("nightly")
    assert [len(three.shard(number).schedules.find()) for number in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("task", ["keyed", "limited"])
def test_a_schedule_whose_jobs_have_keys_is_refused_at_run_time_too(three: PgQueue, task: str) -> None:
    with pytest.raises(InvalidOption, match="no unique key and no limit"):
        three.schedules.put("of ann", three.find_task(task).call(1), "0 3 * * *", by="ann")


def test_a_schedule_whose_key_lives_on_another_shard_is_set_aside_and_the_others_fire(three: PgQueue) -> None:
    first, keyed = three.shard(0), three.find_task("keyed")
    n = next(n for n in range(99) if home_of(f'keyed{{"n":{n}}}', (0, 1, 2)) != 0)
    first.schedules.add("a", keyed.call(n), every=1)  # as one that was stored before there were shards
    first.schedules.add("b", three.find_task("plain").call(1), every=1)
    fired = first.database.run(ticks.fire_due(now=datetime.now(UTC) + timedelta(seconds=5)))
    assert [(name, "lives on shard" in why) for name, why in fired.set_aside] == [("a", True)]
    assert {first.job(one).task for one in fired.jobs} == {"plain"}


def test_a_pattern_pauses_its_queues_on_shards_too_that_have_none_of_their_jobs(three: PgQueue) -> None:
    plain = three.find_task("plain")
    for name in ("mail-a", "mail-b", "post"):
        plain.using(queue=name).enqueue(1)  # each on another shard
    assert three.database.run(queues.pause("mail-*")) == ["mail-a", "mail-b"]
    assert three.database.run(queues.close("mail-*")) == ["mail-a", "mail-b"]
    for number in range(3):
        held = {one.queue: one.paused_at is not None for one in three.shard(number).insight.queues()}
        assert {name for name, paused in held.items() if paused} == {"mail-a", "mail-b"}
    three.shard(0).control.resume("mail-a")
    assert three.database.run(queues.resume("mail-*")) == ["mail-a", "mail-b"]


def test_what_holds_for_a_queue_on_one_shard_is_shown_of_all(three: PgQueue) -> None:
    three.find_task("plain").enqueue(1)
    three.shard(1).database.run(queues.pause("default", why="disk", by="ann"))
    three.shard(2).database.run(queues.close("default", by="bob"))
    three.shard(2).control.set("default", priority=3)
    with three.shard(1).database.connect() as connection:
        connection.execute(UNKNOWN)
    (one,) = three.insight.queues()
    assert (one.ready, one.paused_by, one.paused_why, one.closed_by) == (2, "ann", "disk", "bob")
    assert one.settings.priority == 3
    assert (one.unknown, one.unknown_tasks) == (1, ("gone",))


UNKNOWN = """
insert into pgqueue.jobs (task, queue) values ('gone', 'default');
insert into pgqueue.unknown_tasks values ('default', 'gone', now(), now())
"""


async def _when_it_answers(handle: JobHandle[Any]) -> object:
    async with asyncio.timeout(30):
        while True:
            with suppress(ShardDown):
                return await handle.aresult(30)


def test_a_job_that_one_shard_may_have_stored_is_not_given_to_another(three: PgQueue) -> None:
    first = sharded_database(three).of_number(0)
    task = three.find_task("plain")
    assert {shard_of_id(task.enqueue(n).id) for n in range(3)} == {0, 1, 2}
    with ThreadPoolExecutor(1) as pool, first.connect() as locking, locking.transaction():
        locking.execute("lock table pgqueue.jobs")
        adding = [pool.submit(task.enqueue, 9)]
        while not (waiting := locking.execute(WAITING).fetchall()):
            pass
        locking.execute("select pg_terminate_backend(%s)", waiting[0])
        with pytest.raises(ConnectionFailed, match="is not known") as lost:
            adding[0].result()
    assert lost.value.maybe_done
    assert len(three.insight.search().jobs) == 3


WAITING = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def test_whatever_adds_a_job_the_database_refuses_a_key_of_another_shard(three: PgQueue) -> None:
    foreign = next(n for n in range(99) if home_of(f"mine {n}", (0, 1, 2)) != 0)
    with psycopg.connect(sharded_database(three).databases[0].dsn) as connection:
        connection.execute(
            "select pgqueue.enqueue('plain', '{\"n\": 1}', unique_key => %s)", (f"mine {foreign}",)
        )
        with pytest.raises(psycopg.DatabaseError, match="lives on shard") as refused:
            connection.commit()
    assert refused.value.sqlstate == "PQ001"
    former = PgQueue(sharded_database(three).databases[0].dsn)  # a program that knows nothing of shards
    former.task(name="plain")(_echo)
    with pytest.raises(psycopg.DatabaseError, match="with all shards in its list"):
        former.find_task("plain").using(unique_key=f"mine {foreign}").enqueue(1)
    former.close()


SAID = """
select (select jsonb_agg(to_jsonb(queues) - 'created_at' order by name) from pgqueue.queues),
       (select jsonb_agg(to_jsonb(limits) order by name) from pgqueue.limits)
"""
TIMES = {"paused_at", "closed_at", "set_at"}


def said_on(database: Database) -> list[list[dict[str, Any]]]:
    """What operators have said of queues and limits on a shard; of instants only whether there is one."""
    with database.connect() as connection:
        found = connection.execute(SAID).fetchall()[0]
    return [
        [{key: bool(value) if key in TIMES else value for key, value in row.items()} for row in rows or ()]
        for rows in found
    ]


def say(queue: PgQueue) -> None:
    queue.control.set(
        "mail",
        priority=3,
        max_attempts=4,
        timeout=5,
        keep_history=0,
        keep_dead=6,
        backlog=7,
        when_full="warn",
        ageing=8,
        ageing_to=9,
    )
    queue.control.pause("mail", why="disk", by="ann")
    queue.control.close("mail", why="moves", by="bob")
    queue.control.limits.set("task:limited:n", Limit(7), by="cyd")
    queue.control.limits.set("queue:mail", Rate("9/minute"), by="dee")
    queue.control.limits.weigh({"n": 1}, 5, by="eve")


async def serve(queue: PgQueue) -> None:
    """Run a worker until it has run a job, so that it has stored the limits of its tasks on each database."""
    worker = ShardedWorker(queue, concurrency=4)
    runner = asyncio.create_task(worker.run())
    await (await queue.find_task("limited").aenqueue(1)).aresult(30)
    worker.stop()
    await runner
    await queue.aclose()


@pytest.fixture
def opened() -> Iterator[Callable[..., PgQueue]]:
    """``opened(dsns)``: a queue on these, closed at the end."""
    with ExitStack() as stack:
        yield lambda *dsns: stack.enter_context(closing(made(dsns)))


def test_an_added_shard_has_what_operators_have_said_of_queues_and_limits(
    databases: Databases, opened: Callable[..., PgQueue]
) -> None:
    one, other, third = databases(3)
    old, queue = opened(one, other), opened(one, other, third)
    resharding.declare(sharded_database(old))
    say(old)
    resharding.add(sharded_database(queue))
    known = said_on(sharded_database(queue).of_number(0))
    assert [len(rows) for rows in known] == [1, 3]
    assert said_on(sharded_database(queue).of_number(2)) == known


async def test_it_has_them_though_workers_and_apps_have_declared_their_own_there_before(
    databases: Databases, opened: Callable[..., PgQueue]
) -> None:
    one, other, third = databases(3)
    old, queue = opened(one, other), opened(one, other, third)
    resharding.declare(sharded_database(old))
    say(old)
    with closing(made_of_one(third)) as app:  # as an app with the longer list does there, too
        app.control.declare("mail", priority=1)
    await serve(queue)
    resharding.add(sharded_database(queue))
    assert said_on(sharded_database(queue).of_number(2)) == said_on(sharded_database(queue).of_number(0))


@pytest.fixture
def interrupted(
    databases: Databases, opened: Callable[..., PgQueue], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Three databases: two are shards, and the third was declared one when `pgqueue shards add` was interrupted."""
    one, other, third = databases(3)
    old = opened(one, other)
    resharding.declare(sharded_database(old))
    say(old)
    with monkeypatch.context() as broken:
        broken.setattr(shards, "settings", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            resharding.add(sharded_database(opened(one, other, third)))
    return [one, other, third]


def test_it_has_them_though_the_first_try_to_add_it_was_interrupted(
    interrupted: list[str], opened: Callable[..., PgQueue]
) -> None:
    queue = opened(*reversed(interrupted))
    resharding.add(sharded_database(queue))
    assert said_on(sharded_database(queue).of_number(2)) == said_on(sharded_database(queue).of_number(0))


def test_another_database_is_not_added_before_the_one_whose_addition_was_interrupted(
    interrupted: list[str], databases: Databases, opened: Callable[..., PgQueue]
) -> None:
    queue = opened(*interrupted, *databases(1))
    with pytest.raises(ConfigurationError, match="2 databases of the list are no shards"):
        resharding.add(sharded_database(queue))


def test_a_shard_can_be_declared_by_several_operators_at_once(
    databases: Databases, opened: Callable[..., PgQueue]
) -> None:
    (dsn,) = databases(1)
    queues, start = [opened(dsn) for _ in range(6)], Barrier(6)

    def declare(queue: PgQueue) -> object:
        sharded_database(queue).databases[0].verify()
        start.wait()
        return resharding.declare(sharded_database(queue))

    with ThreadPoolExecutor(6) as pool:
        assert [*pool.map(declare, queues)] == [[ShardState(0, (0,), moving=False)]] * 6


def test_the_shards_of_a_new_queue_have_what_was_said_on_the_first(
    databases: Databases, opened: Callable[..., PgQueue]
) -> None:
    one, other = databases(2)
    with closing(made_of_one(one)) as alone:
        alone.control.pause("mail", why="disk", by="ann")
    queue = opened(one, other)
    resharding.declare(sharded_database(queue))
    assert [row["paused_by"] for row in said_on(sharded_database(queue).of_number(1))[0]] == ["ann"]


def test_shards_that_are_declared_again_keep_what_was_said_on_one_of_them(three: PgQueue) -> None:
    for queue in ("mail", "post"):
        three.control.pause(queue)
        three.control.resume(queue)
    three.shard(1).control.pause("mail")
    resharding.declare(sharded_database(three))
    assert [one.queue for one in three.shard(1).insight.queues() if one.paused_at] == ["mail"]
    assert [one.queue for one in three.shard(2).insight.queues() if one.paused_at] == []


@pytest.fixture
def growing(databases: Databases) -> Iterator[PgQueue]:
    """A queue of two shards to which a third is being added; shard 0 holds a moving key, ``held(growing)``."""
    dsns = databases(3)
    old = made(dsns[:2])
    resharding.declare(sharded_database(old))
    for n in moving_keys():
        assert old.find_task("keyed").enqueue(n).accepted
    queue = made(dsns)
    resharding.add(sharded_database(queue))
    yield queue
    old.close()
    queue.close()


def moving_keys() -> list[int]:
    """Two numbers whose keys move from shard 0 to shard 2."""
    names = {n: f'keyed{{"n":{n}}}' for n in range(99)}
    return [n for n, key in names.items() if (home_of(key, (0, 1)), home_of(key, (0, 1, 2))) == (0, 2)][:2]


def test_while_keys_move_a_held_key_stays_where_it_is_and_a_free_one_goes_to_the_new_shard(
    growing: PgQueue,
) -> None:
    keyed, (held, freed) = growing.find_task("keyed"), moving_keys()
    assert not keyed.enqueue(held).accepted
    (first,) = [job for job in growing.insight.search().jobs if job.args == {"n": freed}]
    assert growing.cancel(first.id) == "cancelled"

    former, new = (sharded_database(growing).of_number(number) for number in (0, 2))
    key, other = f'keyed{{"n":{freed}}}', f'keyed{{"n":{held}}}'
    assert new.run(shards.enter(key, shards.remaining())).verdict == "elsewhere", (
        "not unless the former home let it go"
    )
    with psycopg.connect(former.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(WrongShard, match="READ COMMITTED"):
            keyed.using(connection=connection).enqueue(freed)
    unaware = made_of_one(former.dsn)
    with pytest.raises(psycopg.DatabaseError, match="lives on shard 2"):
        unaware.find_task("keyed").enqueue(freed)
    unaware.close()
    some = growing.enqueue_many([keyed.call(freed), keyed.call(held), keyed.call(1_000)])
    assert [one.accepted for one in some] == [True, False, True]
    assert shard_of_id(some[0].id) == 2
    assert live(growing)[key] == {2}
    assert live(growing)[other] == {0}


def made_of_one(dsn: str) -> PgQueue:
    queue = PgQueue(dsn)
    queue.task(name="keyed", unique=Unique(by="n"))(_echo)
    return queue


def test_a_key_is_not_let_go_while_a_transaction_that_adds_a_job_by_it_is_open(growing: PgQueue) -> None:
    former, (held, _) = sharded_database(growing).of_number(0), moving_keys()
    key = f'keyed{{"n":{held}}}'
    with psycopg.connect(former.dsn) as adding, psycopg.connect(former.dsn) as asking:
        assert former.run(shards.enter(key, shards.remaining()), adding).verdict == "here"
        (job,) = [job for job in growing.insight.search().jobs if job.args == {"n": held}]
        assert growing.cancel(job.id) == "cancelled"
        asking.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            former.run(shards.enter(key, shards.remaining()), asking)


def test_a_period_holds_a_moving_key_and_a_dead_job_by_one_that_has_moved_comes_back_only_without_it(
    growing: PgQueue,
) -> None:
    (held, freed), former = moving_keys(), sharded_database(growing).of_number(0)
    key = f'keyed{{"n":{freed}}}'
    (job,) = [one for one in growing.insight.search().jobs if one.args == {"n": freed}]
    with former.connect() as connection:
        connection.execute(DIES, (job.id,))
        connection.execute(
            "insert into pgqueue.unique_holds values (%s, %s, now() + interval '1 hour')", (key, job.id)
        )
    assert former.run(shards.remaining()) == 2
    assert shard_of_id(growing.find_task("keyed").enqueue(freed).id) == 0
    (again,) = [one for one in growing.insight.search(state="ready").jobs if one.args == {"n": freed}]
    growing.cancel(again.id)
    with former.connect() as connection:
        connection.execute("delete from pgqueue.unique_holds")
    assert shard_of_id(growing.find_task("keyed").enqueue(freed).id) == 2
    with pytest.raises(WrongShard, match="retry it without its key"):
        growing.retry(job.id)
    assert growing.retry(job.id, without_key=True)
    assert growing.job(job.id).state == "ready"
    assert held


DIES = """
with gone as (delete from pgqueue.jobs where id = %s returning *)
insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason, queue, task,
                               unique_key, args)
select id, run_at, created_at, now(), 0, 0, 1, 1, 'asked', queue, task, unique_key, args::jsonb from gone
"""
