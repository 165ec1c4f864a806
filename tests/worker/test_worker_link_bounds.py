"""A worker's connections: what they are set to, and what a server that is silent, busy or read-only does to them."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest
from looking import ask, until
from psycopg import errors
from psycopg.conninfo import make_conninfo
from running import Running
from servers import free_port
from worker.helping import ended
from worker.proxy import Proxy

from pgqueue import PgQueue
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.errors import ConnectionFailed
from pgqueue.store.connections.answering import NoAnswer, within
from pgqueue.store.connections.session import OWN, POOLED
from pgqueue.store.jobs.claim import LARGEST_ANSWER
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.workers import upkeep
from pgqueue.worker.connection import Connections, WorkerConnection, passes
from pgqueue.worker.worker import Worker

SHORT = timedelta(seconds=3)
ENQUEUE: LiteralString = "insert into pgqueue.jobs (queue, task) values ('default', %s)"
ENDED: LiteralString = "select count(*) from pgqueue.job_history"
LOCKED_ROWS: LiteralString = "select id from public.held for update skip locked"
CONNECTED: LiteralString = """
    select count(*) from pg_stat_activity
    where application_name = 'pgqueue' and datname = current_database()"""

WAITING: LiteralString = """
    select pid from pg_locks where relation = 'pgqueue.jobs'::regclass and not granted"""


@plan
def setting(name: str) -> Steps[str]:
    """What a setting is on the connection that runs this plan."""
    rows = yield Statement("setting", {"name": name})
    return str(rows[0][0])


@plan(transaction=True)
def setting_within(name: str) -> Steps[str]:
    """What a setting is in a transaction on the connection that runs this plan."""
    return (yield from setting(name))


@pytest.fixture
def asked(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> PgQueue:
    """A queue whose catalogue has one statement more, which tells a setting."""
    monkeypatch.setitem(
        queue.database.catalogue._texts,  # noqa: SLF001 - no statement of ours tells a setting
        "setting",
        b"select current_setting(%(name)s::text)",
    )
    return queue


async def test_a_role_that_sets_timeouts_of_its_own_does_not_set_the_workers(
    asked: PgQueue, dsn: str
) -> None:
    """M3, M4: these ended or stalled workers."""
    with psycopg.connect(dsn, autocommit=True) as own:
        (name,) = own.execute("select current_database()").fetchone() or ("",)
        for theirs in (
            "statement_timeout = '30ms'",
            "lock_timeout = '30ms'",
            "search_path = public",
            "default_transaction_isolation = serializable",
        ):
            own.execute(f'alter database "{name}" set {theirs}'.encode())
    parts = Worker(asked).parts.connections
    links = (parts.claiming, parts.finishing, parts.upkeep)
    found = {
        link.name: [
            await link.run(setting(name))
            for name in (
                "statement_timeout",
                "lock_timeout",
                "search_path",
                "enable_seqscan",
                "default_transaction_isolation",
            )
        ]
        for link in links
    }
    for link in links:
        await link.close()
    assert asked.database.run(setting("default_transaction_isolation")) == "read committed"
    assert found == {
        "claims": ["0", "7500ms", "pg_catalog", "off", "read committed"],
        "finishes": ["0", "100ms", "pg_catalog", "off", "read committed"],
        "upkeep": ["0", "7500ms", "pg_catalog", "off", "read committed"],
    }


async def test_options_of_the_users_own_are_kept_beside_ours(asked: PgQueue, dsn: str) -> None:
    queue = PgQueue(make_conninfo(dsn, options="-c work_mem=7MB -c search_path=theirs"))
    queue.database.catalogue = asked.database.catalogue
    link = WorkerConnection("test", queue.database)
    found = [await link.run(setting("work_mem")), await link.run(setting("search_path"))]
    await link.close()
    assert found == ["7MB", "pg_catalog"]


def test_behind_a_pooler_only_the_direct_connection_gets_settings() -> None:
    """A pooler refuses startup options; a take's heartbeat adds a connect_timeout to the DSN."""
    pooler, direct = "host=pooler dbname=shop", "host=direct dbname=shop"
    database = PgQueue(pooler, behind_pooler=True, direct_dsn=direct).database

    def has_settings(dsn: str) -> bool:
        return "options" in database.connect_options(dsn, {"lock_timeout": "0"})

    assert has_settings(direct)
    assert not has_settings(pooler)
    assert not has_settings(make_conninfo(pooler, connect_timeout=2))


async def test_behind_a_pooler_the_server_ends_a_transaction_whose_worker_has_gone_silent(
    asked: PgQueue, dsn: str
) -> None:
    """PgBouncer kept such a transaction, and with it the lock of a limit: no worker claimed a job under it any more."""
    queue = PgQueue(dsn, behind_pooler=True)
    queue.database.catalogue = asked.database.catalogue
    link, name = WorkerConnection("test", queue.database), "idle_in_transaction_session_timeout"
    found = [await link.run(plan) for plan in (setting_within(name), setting(name))]
    await link.close()
    assert found == ["5s", "0"], "and no transaction of another application has our setting"


async def test_a_setting_that_the_server_does_not_know_is_left_out(asked: PgQueue) -> None:
    """As transaction_timeout before PostgreSQL 17."""
    link = WorkerConnection("test", asked.database, settings={"not_known_here": "0", "work_mem": "7MB"})
    assert await link.run(setting("work_mem")) == "7MB"
    await link.close()


async def test_a_plan_that_gets_no_answer_is_run_on_a_new_connection(dsn: str) -> None:
    async with Proxy(dsn).running() as proxy:
        silent = PgQueue(proxy.dsn)
        link = WorkerConnection("test", silent.database, bound=0.5)
        await link.run(upkeep.poll())
        before = proxy.opened
        proxy.silence_those_open()
        async with asyncio.timeout(20):
            await link.run(upkeep.poll())
        await link.close()
        assert (proxy.opened - before, link.losses) == (1, 1)


async def test_a_server_that_accepts_and_says_nothing_is_no_connection(dsn: str) -> None:
    async with Proxy(dsn).running() as proxy:
        link = WorkerConnection("test", PgQueue(proxy.dsn).database, bound=0.5)
        proxy._flow.clear()  # noqa: SLF001 - silent from the first byte
        with pytest.raises(ConnectionFailed):
            await link.once(upkeep.poll())


async def test_a_connection_whose_answer_has_come_is_not_cut_though_the_loop_was_blocked(
    queue: PgQueue,
) -> None:
    """A task that blocks the event loop makes the answer late, not the server silent."""
    link = WorkerConnection("test", queue.database, bound=0.2)
    await link.run(upkeep.poll())
    running = asyncio.create_task(link.run(upkeep.poll()))
    for _ in range(3):
        await asyncio.sleep(0)  # until the statement is on its way
    time.sleep(0.5)  # noqa: ASYNC251 - what a task does that must not
    await running
    await link.run(upkeep.poll())  # on the same connection, which would else be shut
    assert link.losses == 0
    await link.close()


async def test_a_long_read_may_have_a_longer_deadline(queue: PgQueue) -> None:
    link = WorkerConnection("test", queue.database, bound=0.2)
    with psycopg.connect(queue.database.dsn) as other:
        other.execute("lock table pgqueue.lost_workers in access exclusive mode")
        reading = asyncio.create_task(link.run(upkeep.reclaim(), bound=60))
        await asyncio.sleep(0.5)
        assert not reading.done()
        other.rollback()
    await reading
    assert link.losses == 0
    await link.close()


async def test_a_link_can_be_open_for_a_block_only(queue: PgQueue) -> None:
    link = WorkerConnection("tidy", queue.database)
    for _ in range(2):
        async with link:
            await link.run(upkeep.poll())
        await until(lambda: ask(queue, CONNECTED) == [(1,)])  # the one that asks
    assert link.losses == 0


async def test_jobs_run_on_new_connections_when_all_have_gone_silent(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    """H8: the worker looked alive, its lease was lost, and nothing ran for as long as it was waited for."""

    async with Proxy(dsn).running() as proxy:
        silent = PgQueue(proxy.dsn)

        @silent.task
        async def note() -> None: ...

        async with running(silent, lease=SHORT, poll=timedelta(seconds=0.1)):
            ask(queue, ENQUEUE, note.name)
            await until(lambda: ask(queue, ENDED) == [(1,)])
            proxy.silence_those_open()
            ask(queue, ENQUEUE, note.name)
            await until(lambda: ask(queue, ENDED) == [(2,)])
            assert ask(queue, "select count(*) from pgqueue.workers where lease_until > now()") == [(1,)]


@pytest.fixture
def over_tcp() -> Iterator[str]:
    """A server that is reached over TCP, as those of other tests are not."""
    with throwaway_server(embedded_binaries()) as server:
        server.stop()
        port = str(free_port())
        server.settings |= {"listen_addresses": "127.0.0.1", "port": port}
        server.start()
        yield make_conninfo(host="127.0.0.1", port=port, user="postgres", dbname="postgres")


async def test_an_answer_that_nobody_reads_holds_its_locks_for_a_bounded_time(over_tcp: str) -> None:
    """A silent proxy: the server could not send the rest of the answer, and other workers passed over what it had locked."""
    with psycopg.connect(over_tcp, autocommit=True) as other:
        other.execute("create table public.held as select 1 as id")
        short = {name: "200ms" if name == "tcp_user_timeout" else value for name, value in OWN.items()}
        silent = PgQueue(over_tcp).database.connect(settings=short)
        # Longer than all that the two ends of a connection keep of it: up to 36 MB with the settings of Linux.
        silent.pgconn.send_query(
            b"begin; select id from public.held for update; select repeat('x', 1000) from generate_series(1, 100000)"
        )
        await until(lambda: other.execute(LOCKED_ROWS).fetchall() == [])
        await until(lambda: other.execute(LOCKED_ROWS).fetchall() == [(1,)])
        silent.close()


@pytest.mark.parametrize("settings", [OWN, POOLED])
async def test_a_session_that_waits_for_a_lock_ends_when_its_client_has_gone(
    dsn: str, settings: Mapping[str, str]
) -> None:
    """Callers that waited with a timeout left one each time, until the server had no connection free."""
    soon = {
        name: "50ms" if name == "client_connection_check_interval" else value
        for name, value in settings.items()
    }
    with psycopg.connect(dsn) as other:
        other.execute("lock table pgqueue.jobs")
        waiting = PgQueue(dsn).database.connect(settings=soon)
        with within(0.01, waiting), pytest.raises(NoAnswer):
            waiting.execute("select from pgqueue.jobs")
        await until(lambda: other.execute(WAITING).fetchall() == [])


async def test_behind_a_pooler_that_time_is_bounded_too(
    over_tcp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, name = PgQueue(over_tcp, behind_pooler=True), "tcp_user_timeout"
    text = b"select current_setting(%(name)s::text)"
    monkeypatch.setitem(queue.database.catalogue._texts, "setting", text)  # noqa: SLF001 - as in the fixture
    link = WorkerConnection("test", queue.database)
    found = [await link.run(plan) for plan in (setting_within(name), setting(name))]
    await link.close()
    assert found == ["10000", "0"]


async def test_a_server_that_is_read_only_for_a_while_is_waited_for_and_loses_no_verdict(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    """M2: as a standby is before its promotion. The worker ended, and the verdict was thrown away."""
    started, release = asyncio.Event(), asyncio.Event()
    runs: list[None] = []

    @queue.task
    async def note() -> str:
        runs.append(None)
        started.set()
        await release.wait()
        return "done"

    job = note.enqueue()
    with psycopg.connect(dsn, autocommit=True) as own:
        (name,) = own.execute("select current_database()").fetchone() or ("",)
        async with running(queue, poll=timedelta(seconds=0.1)) as worker:
            await asyncio.wait_for(started.wait(), 20)
            own.execute(f'alter database "{name}" set default_transaction_read_only = on'.encode())
            own.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgqueue'"
                " and datname = current_database() and pid <> pg_backend_pid()"
            )
            release.set()
            finishes = worker.parts.connections.finishing
            await until(lambda: finishes.losses > 2)
            own.execute("set default_transaction_read_only = off")
            own.execute(f'alter database "{name}" reset default_transaction_read_only'.encode())
            await until(
                lambda: own.execute(
                    "select result from pgqueue.job_history where id = %s", [job.id]
                ).fetchone()
            )
            queue.close()
            await ended(queue, job)
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("error", "later"),
    [
        (errors.ReadOnlySqlTransaction(), True),
        (errors.AdminShutdown(), True),
        (errors.CrashShutdown(), True),
        (errors.CannotConnectNow(), True),
        (errors.DiskFull(), True),
        (errors.TooManyConnections(), True),
        (errors.ConnectionException(), True),
        (errors.DeadlockDetected(), True),
        (errors.LockNotAvailable(), True),
        (errors.QueryCanceled(), True),
        (errors.IdleInTransactionSessionTimeout(), True),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (ConnectionFailed("refused"), True),
        (errors.StatementTooComplex(), False),
        (errors.ProgramLimitExceeded(), False),
        (errors.NumericValueOutOfRange(), False),
        (errors.InsufficientPrivilege(), False),
        (errors.RaiseException(), False),
        (errors.CheckViolation(), False),
        (ValueError(), False),
    ],
    ids=repr,
)
def test_only_what_may_succeed_later_is_tried_again(error: Exception, *, later: bool) -> None:
    assert passes(error) is later


async def test_the_connection_for_claims_reads_long_answers_at_once(queue: PgQueue) -> None:
    """Its buffer grows to the longest message so far, so that is the connection's first one."""
    connection = Connections(queue.database, lease=timedelta(seconds=10)).claiming
    own = await connection.connect()

    ((statement,),) = ask(queue, "select query from pg_stat_activity where pid = %s", own.info.backend_pid)
    await connection.close()
    assert "repeat(" in statement
    assert connection._reads == LARGEST_ANSWER  # noqa: SLF001 - libpq does not tell the size of its buffer


async def test_a_lock_on_the_jobs_costs_no_lease_and_the_worker_does_not_say_that_it_looks_for_jobs(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    """A heartbeat that was sent again said what was true at its first try, and counted as a renewal only when jobs were read."""
    release = asyncio.Event()

    @queue.task
    async def hold() -> None:
        await release.wait()

    lease = timedelta(seconds=2)
    async with running(queue, concurrency=2, lease=lease, poll=timedelta(seconds=0.1)) as worker:
        job = await hold.aenqueue()
        await until(lambda: worker.inspect().running)
        before = worker.id
        with psycopg.connect(dsn) as other:
            other.execute("lock table pgqueue.jobs in access exclusive mode")
            stale = "select clock_timestamp() - looked_at > interval '3 s' and lease_until > now() from pgqueue.workers"
            await until(lambda: ask(dsn, stale) == [(True,)])
            renewed = worker.vitals().renewed
            assert renewed is not None
            assert renewed < lease.total_seconds()
        release.set()
        await ended(queue, job)
        assert worker.id == before
