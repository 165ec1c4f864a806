"""Fixtures of the whole suite: a server, a fresh migrated database per test, a queue, running workers."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from databases import Copies, dsn_of
from hypothesis import HealthCheck, settings
from java import java_options
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pytest_postgresql import factories
from running import Running
from servers import on_the_oldest, server, use_memory
from transitions import Comparison, install

from pgqueue import PgQueue
from pgqueue.spark.session import session
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A suite that was started in the background ignores Ctrl-C, and so would every process that it starts and interrupts.
# SIGTERM ends it in the same way: the server is stopped, and its folder deleted.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
use_memory()

# How long an example takes to make or to run is no verdict: the machine may be busy. What failed is printed, not stored.
settings.register_profile("suite", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

LONGEST = (
    "spark",
    "test_chaos.py",
    "test_spark_cluster.py",
    "test_11_texts_of_any_length.py",
    "test_docs_run.py",
    "test_site.py",
    "test_bench.py",
    "test_worker_processes.py",
    "test_worker_asked.py",
    "test_flows.py",
    "test_testing_plugin.py",
    "test_guards.py",
    "test_schedules_in_trouble.py",
    "test_demo.py",
    "test_dashboard_chromium.py",
    "test_dashboard_pages.py",
    "test_secrets.py",
    "test_cli_workers.py",
    "test_embedded_folder.py",
    "test_flow_retry.py",
    "test_spark_session.py",
    "test_top.py",
    "test_retrying.py",
    "test_testing_conformance.py",
    "test_spark_stream_offsets.py",
    "test_bench_figures.py",
    "test_flow_results.py",
    "test_app_registering.py",
    "test_django_backend.py",
    "test_cli_worker.py",
    "test_django_checks.py",
    "test_unique_keys_race.py",
    "test_7_clock_skew.py",
    "test_wheel.py",
    "test_django_example.py",
    "test_fastapi_example.py",
    "test_codec.py",
    "test_django_command.py",
    "test_dashboard_guard.py",
    "test_app_ends.py",
    "test_worker_waits.py",
    "test_spark_sink_killed.py",
    "test_flask_example.py",
    "test_worker_steps_run_once.py",
    "test_1_a_signal_is_not_lost.py",
    "test_6_dead_workers_jobs_run_elsewhere.py",
    "test_plans_upkeep.py",
    "test_worker_verdicts.py",
    "test_imports.py",
    "test_flask_command.py",
)
"""The groups that take longest, and what starts processes; the order decides only how long the suite takes."""

BEHIND_SPARK = 5
"""By how much the processes of other tests are nicer: where all want a core, Spark's get three times as much."""

WORKERS_ON_THE_OLDEST = ("test_worker_claims.py", "test_worker_upkeep.py")
"""Of the tests of a worker these run on the oldest server, too. The subject of the others is Python: on the oldest server all that
a worker sends is planned in ``tests/store/test_sql_files.py``, and workers run in ``tests/promises``."""
OF_PYTHON = ("test_11_texts_of_any_length.py", "test_roles_in_the_shell.py")
"""Other tests of what Python does. They take long, and are left out there, too; roles try each method in other files."""

OF_A_SERVER = {"migrated_server", "empty_server", "request"}
"""The fixtures by which tests use the server of the run; with ``request`` a fixture may choose one of them by its name."""

COMPARISON = "transitions"

_open = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Start the server, and point pytest-postgresql's no-process fixture at it."""
    config.pluginmanager.register(Comparison(config), COMPARISON)
    spreads = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if config.option.collectonly or config.option.help or spreads:
        return  # of the processes of xdist, each that runs tests has a server
    where = conninfo_to_dict(_open.enter_context(server()))
    config.option.postgresql_host = where["host"]
    config.option.postgresql_port = where.get("port", 5432)
    config.option.postgresql_user = where["user"]
    config.option.postgresql_password = where.get("password")
    config.option.postgresql_dbname = "pgqueue_tests"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files of the oldest server's run; None: it is decided elsewhere."""
    name = collection_path.name
    is_python = name.startswith("test_worker_") and name not in WORKERS_ON_THE_OLDEST
    return (on_the_oldest() and (is_python or name in OF_PYTHON)) or None


def pytest_collection() -> None:
    """Look for no garbage among the tests: each process keeps all of them, and looking takes 0.8 s of its CPU."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of the same name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group what runs in one process: the tests of a file, and all tests that share the Spark session. Longest first.

    On the oldest server only those run that use a server.
    """
    if on_the_oldest():
        items[:] = [item for item in items if OF_A_SERVER & {*getattr(item, "fixturenames", ())}]
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            shares = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shares else item.nodeid.partition("::")[0]))
    items.sort(key=_place)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run without groups: the suite would start Spark, and what modules share, in each process."""
    gc.freeze()
    gc.enable()
    if getattr(session.config.option, "loadgroup", False) and any(
        "@" not in item.nodeid for item in session.items
    ):
        raise pytest.UsageError("pytest-xdist groups no tests under this pytest: pip install -e '.[dev]'")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Have the tests that share Spark go before those beside them: they are one chain, the longest of the suite."""
    if "PYTEST_XDIST_WORKER" in os.environ and not nodeid.endswith("@spark"):
        _give_way()


@cache
def _give_way() -> None:
    os.nice(BEHIND_SPARK)


def _place(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker else ""
    return next((place for place, name in enumerate(LONGEST) if group.endswith(name)), len(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a hostile task has logged may hold half a surrogate pair, which pytest-xdist cannot send to its main process."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_unconfigure() -> None:
    """Stop the server; let the interpreter end as it does elsewhere, or DuckDB says that its types leaked."""
    _open.close()
    gc.unfreeze()


def _migrate(**where: Any) -> None:
    known = {key: where[key] for key in ("host", "port", "user", "password", "dbname") if where.get(key)}
    schema.migrate(dsn := make_conninfo(**known))
    install(dsn)


migrated_server = factories.postgresql_noproc(load=[_migrate])
empty_server = factories.postgresql_noproc(dbname="pgqueue_test_empty")
empty = factories.postgresql("empty_server")


def _dsn(connection: psycopg.Connection[Any]) -> str:
    info = connection.info
    return f"postgresql://{info.user}:{info.password}@/{info.dbname}?host={info.host}&port={info.port}"


@pytest.fixture(scope="session")
def copies(migrated_server: Any, pytestconfig: pytest.Config) -> Iterator[Copies]:
    """Copies of a database with the schema in it, and with triggers that note the transitions of jobs."""
    comparison = pytestconfig.pluginmanager.get_plugin(COMPARISON)
    assert isinstance(comparison, Comparison)
    made = Copies(
        dsn_of(migrated_server, "postgres"), migrated_server.template_dbname, comparison.seen.gather
    )
    yield made
    made.stop()


@pytest.fixture
def dsn(copies: Copies, migrated_server: Any) -> Iterator[str]:
    """A fresh database with the schema in it."""
    with copies.one() as name:
        yield dsn_of(migrated_server, name)


@pytest.fixture
def empty_dsn(empty: psycopg.Connection[Any]) -> str:
    """A fresh database with nothing in it."""
    return _dsn(empty)


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A user's own connection, not in autocommit mode."""
    with psycopg.connect(dsn) as opened:
        yield opened


@pytest.fixture
def queue(dsn: str) -> Iterator[PgQueue]:
    opened = PgQueue(dsn)
    yield opened
    opened.close()


@pytest.fixture
def running() -> Running:
    """``async with running(queue, concurrency=2) as worker``: a worker that runs for the length of the block."""

    @asynccontextmanager
    async def run(queue: PgQueue, **options: Any) -> AsyncIterator[Worker]:
        worker = Worker(queue, **options)
        runner = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            async with asyncio.timeout(60):
                await runner
            await queue.aclose()

    return run


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A Spark session with our data source: two threads, no UI, UTC, ANSI. It starts in seconds, so all tests share it."""
    started = session(
        master="local[2]",
        settings={
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # Else PySpark looks at the stack, and asks Java four questions, at each call: a fifth of a test's own CPU.
            "spark.python.sql.dataFrameDebugging.enabled": "false",
        },
    )
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail a test that leaves threads of ours behind (asyncio reports forgotten tasks by itself)."""
    before = set(threading.enumerate())
    yield
    left = [
        thread
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith(("pgqueue-take", "pgqueue-ends"))
        or (thread.name.startswith("pool-") and thread.is_alive())
    ]
    for thread in left:
        thread.join(timeout=5)
    assert not [thread for thread in left if thread.is_alive()]
