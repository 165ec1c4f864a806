"""Connections of an app's own: one pool a process and one an event loop, opened when needed, and errors in words."""

import asyncio
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from app.silence import way_to
from looking import ask
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from servers import free_port

from pgqueue import PgQueue, Task
from pgqueue.errors import ConfigurationError, ConnectionFailed, SchemaMissing
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import SECRETS, without_secrets
from pgqueue.store.connections.patience import Patience, answered_by, connect_patience, waiting_at_most
from pgqueue.store.connections.pools import Pools, _AsyncPool
from pgqueue.store.jobs import control


@pytest.fixture
def note(queue: PgQueue) -> "Task[[], None]":
    @queue.task(name="note")
    def note() -> None: ...

    return note


def count(queue: PgQueue) -> int:
    return int(ask(queue, "select count(*) from pgqueue.jobs")[0][0])


def in_child(work: Any) -> int:
    """Fork, do the work in the child, and return how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # later Pythons warn of threads: they are the point
        child = os.fork()
    if child == 0:
        status = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # a child that hangs must not outlive the test
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_enqueues_on_connections_of_its_own(queue: PgQueue, note: "Task[[], None]") -> None:
    note.enqueue()
    assert in_child(note.enqueue) == 0
    assert [note.enqueue().id for _ in range(3)] == [3, 4, 5]
    assert count(queue) == 5


async def test_a_forked_child_enqueues_in_a_loop_of_its_own(queue: PgQueue, note: "Task[[], None]") -> None:
    await note.aenqueue()

    async def add() -> None:
        await note.aenqueue()
        await queue.aclose()

    def work() -> None:
        thread = threading.Thread(
            target=asyncio.run, args=(add(),)
        )  # the forked loop still counts as running
        thread.start()
        thread.join()

    assert in_child(work) == 0
    await note.aenqueue()
    assert count(queue) == 3
    await queue.aclose()


def test_a_fork_in_the_middle_of_another_threads_enqueue_does_not_hang(
    queue: PgQueue, note: "Task[[], None]"
) -> None:
    note.enqueue()
    with queue.database.pools._lock:  # noqa: SLF001 - as another thread would hold it at the moment of the fork
        assert in_child(note.enqueue) == 0
    assert count(queue) == 2


def test_every_event_loop_has_a_pool_of_its_own(queue: PgQueue, note: "Task[[], None]") -> None:
    async def add() -> int:
        await asyncio.gather(*(note.aenqueue() for _ in range(5)))
        job = await note.aenqueue()
        await queue.aclose()
        return job.id

    assert len({asyncio.run(add()) for _ in range(3)}) == 3
    assert count(queue) == 18


def test_loops_in_several_threads_do_not_disturb_each_other(queue: PgQueue, note: "Task[[], None]") -> None:
    async def add() -> None:
        for _ in range(10):
            await note.aenqueue()
        await queue.aclose()

    threads = [threading.Thread(target=asyncio.run, args=(add(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(queue) == 40


def test_threads_share_one_pool_of_bounded_size(dsn: str) -> None:
    queue = PgQueue(dsn, pool_size=2)

    @queue.task
    def note() -> None: ...

    threads = [threading.Thread(target=lambda: [note.enqueue() for _ in range(10)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    open_now = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgqueue'"
    assert (count(queue), ask(queue, open_now)[0][0] <= 2) == (60, True)
    queue.close()


async def test_a_closed_queue_opens_again_when_it_is_used(queue: PgQueue, note: "Task[[], None]") -> None:
    note.enqueue()
    queue.close()
    queue.close()
    note.enqueue()
    await note.aenqueue()
    await queue.aclose()
    await queue.aclose()
    await note.aenqueue()
    await queue.aclose()
    assert count(queue) == 4


@pytest.mark.parametrize("secret", ["password=hush%21", "sslpassword=hush%21"])
async def test_the_message_of_a_failed_connection_hides_the_password(secret: str) -> None:
    port = free_port()
    queue = PgQueue(f"postgresql://127.0.0.1:{port}/app?user=me&{secret}")

    @queue.task
    def note() -> None: ...

    with pytest.raises(ConnectionFailed) as blocking:
        note.enqueue()
    with pytest.raises(ConnectionFailed) as awaited:
        await note.aenqueue()
    for caught in (blocking, awaited):
        assert "hush" not in str(caught.value)
        assert str(port) in str(caught.value)
        assert "check --dsn, PGQUEUE_DSN or DATABASE_URL" in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:hush%zz@db/app",
        "postgresql://me:hu%sh@db/app",
        "postgresql://me:hush@[::1]x/app",
        "host=db password=some hush",
    ],
)
async def test_the_message_of_a_dsn_that_cannot_be_read_hides_the_password(dsn: str) -> None:
    queue = PgQueue(dsn)

    @queue.task
    def note() -> None: ...

    for attempt in (note.enqueue, lambda: asyncio.run(note.aenqueue())):
        with pytest.raises(ConfigurationError) as caught:
            await asyncio.to_thread(attempt)
        error: BaseException | None = caught.value
        while error is not None:  # a traceback shows the causes, too
            assert "hush" not in str(error)
            assert "hu%sh" not in str(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("name", ["PGQUEUE_DSN", "DATABASE_URL"])
def test_the_environment_says_where_the_database_is(
    dsn: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for setting in ("PGQUEUE_DSN", "DATABASE_URL"):
        monkeypatch.delenv(setting, raising=False)
    queue = PgQueue()
    with pytest.raises(ConfigurationError, match="PGQUEUE_DSN or DATABASE_URL"):
        queue.insight.counts()
    monkeypatch.setenv(name, dsn.replace("postgresql://", "postgresql+psycopg://"))
    assert queue.insight.counts() == ([], [])
    queue.close()


def test_a_missing_schema_is_named_with_the_remedy(empty_dsn: str) -> None:
    queue = PgQueue(empty_dsn)

    @queue.task
    def note() -> None: ...

    with pytest.raises(SchemaMissing, match="pgqueue migrate"):
        note.enqueue()
    with psycopg.connect(empty_dsn) as own, pytest.raises(SchemaMissing, match="pgqueue migrate"):
        note.using(connection=own).enqueue()


def cut_off(dsn: str) -> None:
    """End every connection of ours, as a restart of the server does, and wait until they are gone."""
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute(
            """select pg_terminate_backend(pid, 10000) from pg_stat_activity
               where datname = current_database() and application_name = 'pgqueue'"""
        )


def test_after_the_server_closed_every_connection_the_next_enqueue_works_at_the_first_try(
    dsn: str, queue: PgQueue, note: "Task[[], None]"
) -> None:
    together = threading.Barrier(10, timeout=20)

    def add() -> None:
        with queue.database.pooled():
            together.wait()  # so that the pool has ten connections

    threads = [threading.Thread(target=add) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cut_off(dsn)
    for _ in range(15):
        note.enqueue()
    assert count(queue) == 15


async def test_after_the_server_closed_every_connection_the_next_awaited_enqueue_works_at_the_first_try(
    dsn: str, queue: PgQueue, note: "Task[[], None]"
) -> None:
    together = asyncio.Barrier(10)

    async def add() -> None:
        async with queue.database.apooled():
            await together.wait()

    await asyncio.gather(*(add() for _ in range(10)))
    await asyncio.to_thread(cut_off, dsn)
    for _ in range(15):
        await note.aenqueue()
    await queue.aclose()
    assert count(queue) == 15


async def test_a_cancellation_that_the_pool_forgets_is_not_forgotten(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``asyncio.wait_for`` of Python 3.11 gives the connection that arrives with a cancellation, and forgets the latter."""
    pool = await queue.database.pools.awaitable()
    getconn, entered = pool.getconn, []

    async def forgetful(timeout: float | None = None) -> Any:  # noqa: ASYNC109 - the pool's own
        connection = await getconn(timeout)
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return connection

    monkeypatch.setattr(pool, "getconn", forgetful)

    async def hold() -> None:
        async with queue.database.apooled():
            entered.append(True)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(hold())
    monkeypatch.undo()
    assert entered == []
    await queue.insight.acounts()
    assert pool.get_stats()["pool_available"] == 1
    await queue.aclose()


async def test_what_clears_up_after_a_cancellation_gets_its_connection(queue: PgQueue) -> None:
    begun, cleared = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await queue.insight.acounts()
            cleared.set()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleared.is_set()
    await queue.aclose()


def test_a_connection_on_which_the_server_said_something_is_not_used_again(
    dsn: str, queue: PgQueue, note: "Task[[], None]"
) -> None:
    """A message on an idle connection is most often its end; asking which costs more than another connection."""
    with queue.database.pooled() as before:
        backend = before.info.backend_pid
        before.execute("listen said")
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("notify said")
    assert select.select([before.fileno()], [], [], 20)[0]
    note.enqueue()
    with queue.database.pooled() as after:
        assert after.info.backend_pid != backend
    assert before.closed


def test_a_pool_without_a_free_connection_says_that_nothing_was_done(
    queue: PgQueue, note: "Task[[], None]", monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = queue.database.pools.blocking()
    with ExitStack() as held:
        for _ in range(10):
            held.enter_context(queue.database.pooled())
        monkeypatch.setattr(pool, "timeout", 0.05)
        with pytest.raises(
            ConnectionFailed, match="so nothing was done; check that the server runs, or raise pool_size"
        ):
            note.enqueue()
    monkeypatch.undo()
    note.enqueue()
    assert count(queue) == 1


async def test_connections_opened_at_once_all_do_without_a_setting_that_the_server_does_not_know(
    dsn: str,
) -> None:
    database = PgQueue(dsn).database
    settings = {"a_setting_of_tomorrow": "1", "lock_timeout": "7s"}
    opened = await asyncio.gather(*[database.aconnect(settings=settings) for _ in range(3)])
    for connection in opened:
        async with connection:
            cursor = await connection.execute("show lock_timeout")
            assert await cursor.fetchone() == ("7s",)


def test_nobody_listens_through_a_pooler_but_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGQUEUE_DIRECT_DSN", raising=False)
    pooled, direct = "postgresql://pooler/app", "postgresql://server/app"
    assert PgQueue(pooled).database.listen_dsn == pooled
    assert PgQueue(pooled, behind_pooler=True).database.listen_dsn is None
    assert PgQueue(pooled, behind_pooler=True, direct_dsn=direct).database.listen_dsn == direct
    monkeypatch.setenv("PGQUEUE_DIRECT_DSN", direct)
    assert PgQueue(pooled, behind_pooler=True).database.listen_dsn == direct


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "postgresql://shop:secret@localhost/shop?schema=public",
            "libpq does not know, 'schema': leave it out",
        ),
        ("postgresql://localhost/shop?ssl=require", "does not know, 'ssl'; did you mean 'sslmode'"),
        ("host=localhost pool_size=5", "does not know, 'pool_size'"),
        ("'postgresql://localhost/shop'", "begins with a quotation mark"),
        ("postgresql://shop:se/s?cr=et@localhost/shop", "cannot be read; write"),
    ],
)
def test_a_dsn_that_libpq_refuses_is_refused_by_what_is_wrong_with_it(written: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as refusal:
        PgQueue(written).insight.counts()
    assert not {"secret", "cr=et", "'cr'"} & set(re.split(r"[ :@?]", str(refusal.value)))


def test_white_space_around_a_dsn_is_not_part_of_it(dsn: str) -> None:
    with closing(PgQueue(f" {dsn}\n")) as queue:
        assert count(queue) == 0
        assert queue.insight.search().jobs == ()


@pytest.mark.parametrize(
    "dsn", ["mysql://root@localhost/app", "sqlite:///app.db", "mysql+pymysql://root@localhost/app"]
)
def test_the_address_of_another_kind_of_database_is_refused_by_its_name(dsn: str) -> None:
    kind = dsn.partition(":")[0].partition("+")[0]
    with pytest.raises(
        ConfigurationError, match=f"begins with {kind}://, and pgqueue works on PostgreSQL only"
    ):
        PgQueue(dsn).insight.counts()


def test_a_password_that_looks_like_an_address_is_left_alone(dsn: str) -> None:
    where = conninfo_to_dict(dsn)
    given = make_conninfo("", **(where | {"password": "a+b://c"}))
    assert conninfo_to_dict(PgQueue(given).database.dsn)["password"] == "a+b://c"  # noqa: S105 - no password


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_no_secret_of_a_dsn_stands_in_a_message(name: str) -> None:
    shown = without_secrets("host=db user=me")
    assert ("host=db" in shown, "user=me" in shown) == (True, True)
    if name.encode() in {option.keyword for option in psycopg.pq.Conninfo.get_defaults()}:
        assert "hush" not in without_secrets(f"host=db {name}=hush")


@pytest.mark.parametrize("password", ["p@hush", "p@hu:hush", "p@hush,hush", "p@hush/hush", "p/hush"])
def test_a_password_with_an_unescaped_character_stands_in_no_message(password: str) -> None:
    dsn = f"postgresql://me:{password}@localhost/shop"
    with pytest.raises(
        ConfigurationError, match=r"cannot be read; write .* %40 for @ and %2F for /"
    ) as caught:
        PgQueue(dsn).insight.counts()
    assert "hush" not in f"{caught.value!r} {without_secrets(dsn)}"
    assert caught.value.__cause__ is None


def test_an_at_sign_that_is_no_part_of_a_password_is_left_alone() -> None:
    assert "host=@/run/pg" in without_secrets("host=@/run/pg user=me")
    assert "dbname=a@b" in without_secrets("host=db dbname=a@b")


def test_every_secret_that_libpq_knows_is_one() -> None:
    known = {option.keyword.decode(): option.dispchar for option in psycopg.pq.Conninfo.get_defaults()}
    assert {name for name, shown in known.items() if shown == b"*"} <= SECRETS
    assert {name for name in known if re.search("secret|password|_key$", name)} <= SECRETS


def test_a_database_that_does_not_exist_is_to_be_created(dsn: str) -> None:
    missing = make_conninfo("", **(conninfo_to_dict(dsn) | {"dbname": "nowhere"}))
    with pytest.raises(
        ConnectionFailed, match=r"create it with `createdb nowhere`, or check --dsn, PGQUEUE_DSN"
    ) as caught:
        PgQueue(missing).insight.counts()
    assert "that the server runs" not in str(caught.value)


def test_a_server_that_does_not_answer_is_told_in_one_line_with_one_stop() -> None:
    with pytest.raises(ConnectionFailed) as caught:
        PgQueue(f"postgresql://me@127.0.0.1:{free_port()}/app").insight.counts()
    said = str(caught.value)
    assert re.search(r"failed: Connection refused; check --dsn, .*, and that the server runs$", said)
    assert not re.search(r"[?!.];|\n|\t", said)


async def test_a_framework_says_in_its_own_words_what_to_do(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Framework(Database):
        dsn_hint = "set FRAMEWORK_DSN"
        dsn_settings = "FRAMEWORK_DSN"
        migrate_hint = "run `framework migrate`"

    for setting in ("PGQUEUE_DSN", "DATABASE_URL"):
        monkeypatch.delenv(setting, raising=False)
    with pytest.raises(ConfigurationError, match=r"^no database: set FRAMEWORK_DSN$"):
        Framework().run(control.counts())
    with pytest.raises(ConnectionFailed, match=r"; check FRAMEWORK_DSN, and that the server runs$"):
        Framework(f"postgresql://me@127.0.0.1:{free_port()}/app").run(control.counts())
    message = 'schema "pgqueue" has no tables yet; run `framework migrate`$'
    with pytest.raises(SchemaMissing, match=message):
        Framework(empty_dsn).run(control.counts())
    with pytest.raises(SchemaMissing, match=message):
        await Framework(empty_dsn).arun(control.counts())
    with psycopg.connect(empty_dsn) as own, pytest.raises(SchemaMissing, match=message):
        Framework(empty_dsn).run(control.counts(), own)


def test_a_program_that_enqueues_and_ends_without_closing_says_nothing(dsn: str) -> None:
    """Since Python 3.13, its pool would wait 20 s for its threads, and log that they cannot be stopped."""
    program = (
        "import sys; from pgqueue import PgQueue\n"
        "queue = PgQueue(sys.argv[1])\n"
        "@queue.task(name='work')\n"
        "def work(): ...\n"
        "work.enqueue()\n"
    )
    ran = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program, dsn], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


class SilentLater:
    """A database that answers its first connection, and no other one."""

    folder = None

    def __init__(self, dsn: str, silent: socket.socket) -> None:
        self._database = Database(dsn)
        self.dsn = "host={} port={}".format(*silent.getsockname())
        self.connect_options = self._database.connect_options
        self.verified = self._database.verified
        self.averified = self._database.averified


@pytest.mark.timeout(30)
def test_a_program_ends_while_its_pool_connects(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """``asyncio.run`` cancels what the pool does, and waits for it."""

    async def program() -> socket.socket:
        pool = await Pools(SilentLater(dsn, silent), 2).awaitable()
        first = await pool.getconn()
        second = asyncio.create_task(pool.getconn())
        connecting, _ = await asyncio.get_running_loop().sock_accept(silent)
        await first.close()
        assert not second.done()
        return connecting

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        asyncio.run(program()).close()
    assert [one.message for one in caplog.records] == []


@pytest.mark.timeout(30)
def test_a_program_ends_while_its_pool_is_told_of_the_next_thing_to_do(dsn: str) -> None:
    """On Python 3.11 the pool's scheduler loses a cancellation that comes at one of these instants."""

    async def program(ticks: int) -> None:
        queue = PgQueue(dsn)
        pool = await queue.database.pools.awaitable()
        await (await pool.getconn()).close()
        await pool.schedule_task(SimpleNamespace(tick=lambda: None), 500)  # type: ignore[arg-type]
        for _ in range(ticks):
            await asyncio.sleep(0)

    for ticks in range(6):
        asyncio.run(program(ticks))


async def test_the_first_calls_of_a_loop_open_no_more_connections_than_the_pool_may(dsn: str) -> None:
    """Each of 200 opened one of its own, and the server refused 100 of them."""
    with way_to(dsn) as way, closing(PgQueue(way.dsn, pool_size=2)) as queue:
        note = queue.task(name="note")(lambda: None)
        await asyncio.gather(*(note.aenqueue() for _ in range(20)))
        assert way.opened <= 2
        await queue.aclose()


async def test_the_first_calls_of_a_loop_fail_with_the_one_that_connects() -> None:
    queue = PgQueue(f"postgresql://nobody@127.0.0.1:{free_port()}/nowhere")
    note = queue.task(name="note")(lambda: None)
    found = await asyncio.gather(*(note.aenqueue() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [ConnectionFailed] * 3


async def test_a_caller_waits_for_the_first_connection_no_longer_than_it_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        queue = PgQueue(f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nowhere")
        first = asyncio.create_task(queue.database.arun(control.show(1)))
        await asyncio.sleep(0)
        with waiting_at_most(Patience(0.01, 0.01)), pytest.raises(ConnectionFailed, match="first connection"):
            await queue.database.arun(control.show(1))
        first.cancel()


async def test_a_pool_whose_closing_is_cancelled_ends_all_the_same(queue: PgQueue) -> None:
    await queue.database.arun(control.show(1))
    (end,) = [one for one in asyncio.all_tasks() if "end_when_cancelled" in repr(one.get_coro())]
    closing = asyncio.create_task(queue.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing, end], timeout=20)
    assert end.cancelled()


async def test_a_pool_that_is_cancelled_leaves_no_error_that_is_read_by_no_caller() -> None:
    """psycopg's ``close()`` gathers its tasks, and goes away after some seconds: asyncio told of the gathering on stderr."""
    work = asyncio.create_task(_AsyncPool.worker(asyncio.Queue()))
    await asyncio.sleep(0)
    work.cancel()
    await asyncio.wait([work])
    assert not work.cancelled()


@pytest.mark.parametrize(
    ("hosts", "wait", "each"), [("a", 5.9, 6), ("a,b", 60, 10), ("a,b", 5, 3), ("a", 0.1, 2)]
)
def test_each_host_has_its_part_of_a_callers_time_and_no_more_than_another_caller_gives_it(
    hosts: str, wait: float, each: int
) -> None:
    """A caller with 120 s waited for 60 s for the first host, which was down, and other callers with it."""
    with waiting_at_most(Patience(wait, wait)):
        assert connect_patience(f"host={hosts}") == {"connect_timeout": each}


def test_a_caller_that_finds_no_free_connection_is_not_told_that_the_database_is_silent(dsn: str) -> None:
    with (
        closing(PgQueue(dsn, pool_size=1)) as queue,
        queue.database.transaction(),
        pytest.raises(TimeoutError, match="no connection was free in time"),
        answered_by(0.0, spare=0.05),
    ):
        queue.database.run(control.show(1))
