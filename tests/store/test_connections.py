"""The first connection of a pool: the schema is checked on it, and the first statement runs on it.

A connection is cut at each statement of a transaction: its caller hears an error, or everything is committed.
"""

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any

import psycopg
import pytest
from app.silence import way_to
from cutter import Cutter, tell_the_truth
from looking import ask
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from store.drivers import KINDS, Ask, Kind, entered
from store.samples import adding, new_job

import pgqueue
from pgqueue import PgQueue
from pgqueue.errors import ConnectionFailed, JobNotDone, SchemaMissing, UnsupportedConnection
from pgqueue.store.connections.answering import within
from pgqueue.store.connections.connection import OwnAsyncConnection, OwnConnection
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.session import OWN, settings_after
from pgqueue.store.jobs.enqueue import FEW
from pgqueue.store.plan import Steps, plan
from pgqueue.store.queues import queues
from pgqueue.testing.standin import StandIn
from pgqueue.values.jobs.job import NewJob

NEW_SETTINGS = {"transaction_timeout", "idle_session_timeout"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    blocking, awaited = psycopg.Connection.connect, psycopg.AsyncConnection.connect

    def connect(cls: Any, *args: Any, **options: Any) -> Any:
        made.append(blocking.__func__(cls, *args, **options))  # type: ignore[attr-defined]
        return made[-1]

    async def aconnect(cls: Any, *args: Any, **options: Any) -> Any:
        made.append(await awaited.__func__(cls, *args, **options))  # type: ignore[attr-defined]
        return made[-1]

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(connect))
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", classmethod(aconnect))
    return made


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_caller_that_waits_has_its_connection_soon_after_the_server_is_back(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, *, awaited: bool
) -> None:
    """The pool gives up after two tries, and has to begin again while the caller waits."""
    monkeypatch.setattr(queue.database.pools, "_wait", 20.0)
    monkeypatch.setattr(queue.database.pools, "_reconnect", 0.1)
    kind: Any = OwnAsyncConnection if awaited else OwnConnection
    connect, refused = kind.connect, list[int]()

    def away(cls: Any, *args: Any, **options: Any) -> Any:
        if not options["made"] and len(refused) < 4:
            refused.append(1)
            raise psycopg.OperationalError("the server is away")
        return connect.__func__(cls, *args, **options)

    known = [*queue.database.run(queues.known()), *await queue.database.arun(queues.known())]
    monkeypatch.setattr(kind, "connect", classmethod(away))
    try:
        if awaited:
            async with queue.database.apooled():
                assert await queue.database.arun(queues.known()) == known
        else:
            with queue.database.pooled():
                assert await asyncio.to_thread(queue.database.run, queues.known()) == known
    finally:
        await queue.aclose()
    assert len(refused) == 4


RETYPE = "alter table pgqueue.queues alter column paused_by type varchar(9)"


async def test_a_connection_serves_on_when_a_table_was_altered_below_what_it_has_prepared(
    queue: PgQueue, dsn: str
) -> None:
    for _ in range(5):
        queue.database.run(queues.known())
        await queue.database.arun(queues.known())
    ask(dsn, RETYPE)
    try:
        await asyncio.gather(*(queue.database.arun(queues.known()) for _ in range(3)))
        queue.database.run(queues.known())
    finally:
        await queue.aclose()


def test_the_first_call_of_a_process_makes_one_connection(queue: PgQueue, opened: list[Any]) -> None:
    assert queue.insight.search().jobs == ()
    assert queue.insight.search().jobs == ()
    assert len(opened) == 1


async def test_the_first_call_of_a_loop_makes_one_connection(queue: PgQueue, opened: list[Any]) -> None:
    assert (await queue.insight.asearch()).jobs == ()
    assert (await queue.insight.asearch()).jobs == ()
    assert len(opened) == 1
    await queue.aclose()


async def test_first_calls_at_the_same_time_share_a_pool_and_leave_no_connection_open(
    queue: PgQueue, opened: list[Any]
) -> None:
    assert await asyncio.gather(*(queue.insight.acounts() for _ in range(5))) == [([], [])] * 5
    await queue.aclose()
    assert [connection.closed for connection in opened] == [True] * len(opened)


async def test_a_pool_that_no_call_has_used_is_closed_with_its_connection(
    queue: PgQueue, opened: list[Any]
) -> None:
    queue.database.pools.blocking()
    await queue.database.pools.awaitable()
    await queue.aclose()
    queue.close()
    assert [connection.closed for connection in opened] == [True, True]


def test_texts_of_all_languages_can_be_sent_whatever_the_client_is_set_to(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with closing(PgQueue(make_conninfo(dsn, client_encoding="LATIN1"))) as queue:

        @queue.task
        def note(text: str) -> None: ...

        assert queue.job(note.enqueue("日本").id).args == {"text": "日本"}


def test_many_jobs_in_pipeline_mode_are_refused_with_what_to_do(
    queue: PgQueue, connection: psycopg.Connection[Any]
) -> None:
    @queue.task
    def note() -> None: ...

    with connection.pipeline():
        note.using(connection=connection).enqueue()
        queue.enqueue_many([note.call(), note.call()], connection=connection)
        with pytest.raises(UnsupportedConnection, match=r"leave connection.pipeline\(\)"):
            queue.enqueue_many([note.call()] * (FEW + 1), connection=connection)


def test_loops_that_have_ended_leave_no_connection_open(queue: PgQueue, opened: list[Any]) -> None:
    """As Flask's ``async def`` views do: each runs in a loop of its own, and nothing is closed at its end."""

    async def two() -> None:
        async with queue.database.apooled(), queue.database.apooled():
            pass

    for _ in range(3):
        asyncio.run(two())
    assert [connection.closed for connection in opened] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("calls", ["enqueue", "result", "take", "transaction"])
def test_an_app_of_short_loops_holds_no_more_connections_after_many_than_after_a_few(
    queue: PgQueue, opened: list[Any], calls: str
) -> None:
    """A loop's own, and that which waits for the ends of jobs."""

    @queue.task
    def note() -> None: ...

    async def call() -> None:
        if calls == "enqueue":
            await note.aenqueue()
        elif calls == "result":
            with suppress(JobNotDone):
                await (await note.aenqueue()).aresult(timeout=0.01)
        elif calls == "take":
            async with queue.atake(1, timeout=0.01):
                pass
        else:
            async with queue.database.atransaction():
                pass

    for _ in range(6):
        asyncio.run(call())
    assert sum(not connection.closed for connection in opened) <= 2


async def test_a_database_without_the_tables_is_left_without_a_connection(
    empty_dsn: str, opened: list[Any]
) -> None:
    queue = PgQueue(empty_dsn)
    with pytest.raises(SchemaMissing):
        queue.insight.search()
    with pytest.raises(SchemaMissing):
        await queue.insight.asearch()
    assert [connection.closed for connection in opened] == [True, True]


@pytest.mark.parametrize("kind", ["blocking", "awaitable"])
async def test_settings_that_the_server_does_not_know_are_left_out_after_the_first_call(
    queue: PgQueue, kind: str
) -> None:
    (await queue.insight.asearch()).jobs if kind == "awaitable" else queue.insight.search().jobs
    options = queue.database.connect_options(queue.database.dsn, OWN)["options"]
    await queue.aclose()
    sent = {name for name in OWN if f"-c {name}=" in options}
    known = {name for (name,) in ask(queue, "select name from pg_settings")}
    assert sent == known & set(OWN)


async def test_a_pool_compiles_no_statement_also_after_a_transaction_that_did(queue: PgQueue) -> None:
    """Servers with LLVM compile what the planner holds to be long: 25 ms for each of our statements on tables without statistics."""
    with queue.database.transaction() as first:
        first.execute("set jit = on")
    with queue.database.pooled() as same, queue.database.pooled() as second:
        found = [one.execute("show jit").fetchone() for one in (same, second)]
    async with queue.database.apooled() as third, queue.database.apooled() as fourth:
        found += [await (await one.execute("show jit")).fetchone() for one in (third, fourth)]
    await queue.aclose()
    assert found == [("off",)] * 4


def test_a_setting_is_left_out_before_the_version_that_brought_it() -> None:
    assert settings_after(13_00_22) == NEW_SETTINGS
    assert settings_after(14_00_00) == {"transaction_timeout"}
    assert settings_after(16_00_09) == {"transaction_timeout"}
    assert settings_after(17_00_00) == set()


async def test_a_connection_that_is_lost_while_the_schema_is_checked_is_a_failed_connection(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, aconnect = queue.database.connect, queue.database.aconnect

    def lost(opened: Any) -> Any:
        ask(dsn, "select pg_terminate_backend(%s, 5000)", opened.info.backend_pid)
        return opened

    async def alost(**given: Any) -> Any:
        return lost(await aconnect(**given))

    monkeypatch.setattr(queue.database, "connect", lambda **given: lost(connect(**given)))
    monkeypatch.setattr(queue.database, "aconnect", alost)
    with pytest.raises(ConnectionFailed, match="the connection was lost") as verified:
        queue.database.verify()
    with pytest.raises(ConnectionFailed, match="the connection was lost") as averified:
        await queue.database.averified()
    for error in (verified.value, averified.value):
        assert (error.maybe_done, str(error).endswith("; nothing was done")) == (False, True)


WRITE = "insert into effects default values"
"""What each act does once."""


@pytest.fixture
def cutter(dsn: str) -> Iterator[Cutter]:
    """A proxy before the test's database, which has a table of effects."""
    with psycopg.connect(dsn) as connection:
        connection.execute("create table effects (id bigint generated always as identity)")
    with Cutter(dsn).running() as cutter:
        yield cutter


@pytest.fixture
def done(dsn: str) -> Iterator[Callable[[], int]]:
    with psycopg.connect(dsn, autocommit=True) as connection:

        def counted() -> int:
            query = "select (select count(*) from effects) + (select count(*) from pgqueue.jobs)"
            ((found,),) = connection.execute(query).fetchall()
            return int(found)

        yield counted


@contextmanager
def _of_a_pool(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.transaction() as connection:
        yield connection


@asynccontextmanager
async def _of_a_pool_awaited(database: Database) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with database.atransaction() as connection:
        yield connection


@contextmanager
def _of_its_own(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def _of_its_own_awaited(database: Database) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await database.aconnect() as connection, connection.transaction():
        yield connection


@contextmanager
def _of_a_test(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with (
        psycopg.connect(database.dsn, autocommit=True) as given,
        StandIn(database, connection=given).transaction() as connection,
    ):
        yield connection


@asynccontextmanager
async def _of_a_test_awaited(database: Database) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with (
        await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as given,
        StandIn(database, connection=given).atransaction() as connection,
    ):
        yield connection


Block = Callable[[Database], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
BLOCKS: list[Block] = [
    _of_a_pool,
    _of_a_pool_awaited,
    _of_its_own,
    _of_its_own_awaited,
    _of_a_test,
    _of_a_test_awaited,
]
each_block = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__.removeprefix("_of_"))


@pytest.fixture
async def database(cutter: Cutter) -> AsyncIterator[Database]:
    database = Database(cutter.dsn, pool_size=1)
    yield database
    await database.aclose()
    database.close()


def _give_up() -> None:
    raise psycopg.Rollback


async def _write(connection: Any) -> None:
    done = connection.execute(WRITE)
    if not isinstance(connection, psycopg.Connection):
        await done


@each_block
async def test_a_block_commits_or_raises(
    block: Block, database: Database, cutter: Cutter, done: Callable[[], int]
) -> None:
    async def act() -> None:
        async with entered(block(database)) as connection:
            await _write(connection)

    ends = await tell_the_truth(cutter, act, done, commits=True)
    assert len([end for end in ends if end]) >= 3  # BEGIN, the statement, COMMIT


@each_block
async def test_a_block_that_is_rolled_back_ends_quietly_or_raises(
    block: Block, database: Database, cutter: Cutter, done: Callable[[], int]
) -> None:
    async def act() -> None:
        async with entered(block(database)) as connection:
            await _write(connection)
            raise psycopg.Rollback

    ends = await tell_the_truth(cutter, act, done, commits=False)
    assert len([end for end in ends if end]) >= 3  # BEGIN, the statement, ROLLBACK


@each_block
async def test_a_savepoint_that_cannot_be_rolled_back_does_not_end_the_transaction_quietly(
    block: Block, database: Database, cutter: Cutter, done: Callable[[], int]
) -> None:
    async def act() -> None:
        async with entered(block(database)) as connection:
            async with entered(connection.transaction()):
                await _write(connection)
                _give_up()
            await _write(connection)

    await tell_the_truth(cutter, act, done, commits=True)


@each_block
async def test_a_block_whose_own_error_handling_hides_the_loss_raises(
    block: Block, database: Database, cutter: Cutter, done: Callable[[], int]
) -> None:
    """psycopg alone ends such a block as if it had committed."""

    async def act() -> None:
        async with entered(block(database)) as connection:
            try:
                await _write(connection)
            except psycopg.OperationalError:
                assert connection.info.transaction_status is TransactionStatus.UNKNOWN

    await tell_the_truth(cutter, act, done, commits=True)


@plan(transaction=True)
def _two_steps(first: NewJob) -> Steps[None]:
    """One job, in a transaction: with the BEGIN and the COMMIT it is three requests or more."""
    yield from adding(first).steps()


CUT = [kind for kind in KINDS if kind.name != "libpq"]
"""That one waits for the server without letting other threads run, and the proxy is one."""


@pytest.mark.parametrize("kind", CUT, ids=lambda kind: kind.name)
async def test_a_plan_on_a_users_connection_commits_or_raises(
    kind: Kind, cutter: Cutter, done: Callable[[], int]
) -> None:
    async def act() -> None:
        left = False
        try:
            async with entered(kind.open(cutter.dsn)) as connection:
                ask = Ask(kind, connection, cutter.dsn)
                async with ask.transaction():
                    await ask.within(_two_steps(new_job("one")))
                left = True
        except Exception:
            if not left:  # a pool of the user's resets the connection, too
                raise

    await tell_the_truth(cutter, act, done, commits=True)


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaited"])
async def test_a_plan_on_a_connection_of_the_queues_commits_or_raises(
    *, awaits: bool, database: Database, cutter: Cutter, done: Callable[[], int]
) -> None:
    async def act() -> None:
        if awaits:
            await database.arun(_two_steps(new_job("one")))
        else:
            database.run(_two_steps(new_job("one")))

    await tell_the_truth(cutter, act, done, commits=True)


def test_a_module_that_opens_connections_of_psycopgs_has_no_blocks_on_them() -> None:
    """``Database.connect`` opens connections whose blocks raise an error; psycopg's own lets a Rollback out."""
    for file in Path(pgqueue.__file__).parent.rglob("*.py"):
        called = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call)
        }
        opens = called & {"psycopg.connect", "psycopg.Connection.connect", "psycopg.AsyncConnection.connect"}
        assert not (opens and any(name.endswith(".transaction") for name in called)), file


@pytest.mark.parametrize("kind", [OwnConnection, OwnAsyncConnection])
async def test_what_is_not_answered_in_time_fails_and_its_connection_is_closed(dsn: str, kind: Any) -> None:
    with way_to(dsn) as way:
        connection = await _outcome(kind.connect(way.dsn, autocommit=True))
        way.silence()
        with (
            within(0.01, connection),
            pytest.raises(psycopg.OperationalError, match="no answer for"),
        ):
            await _outcome(connection.execute("select 1"))
        assert connection.closed


@pytest.mark.parametrize("kind", [OwnConnection, OwnAsyncConnection])
async def test_an_answer_that_is_there_is_read_though_it_was_due_before(dsn: str, kind: Any) -> None:
    """The program may not have looked: its event loop was blocked."""
    connection = await _outcome(kind.connect(dsn, autocommit=True))
    with within(-1.0, connection):
        await _outcome(connection.execute("select 1"))
    await _outcome(connection.execute("select pg_sleep(0.3)"))  # due at no time: psycopg looks each 0.1 s
    await _outcome(connection.close())


async def _outcome(what: Any) -> Any:
    return await what if inspect.isawaitable(what) else what
