"""Fixtures for the tests of apps that use pgqueue. A suite that uses none of them imports nothing else of pgqueue."""

import os
import pkgutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from pgqueue.errors import ConfigurationError

if TYPE_CHECKING:  # each is imported by the fixture that needs it
    from pgqueue.app.pgqueue import PgQueue
    from pgqueue.testing import Clock, Databases, Memory

APP_SETTING = "PGQUEUE_APP"
SERVER_SETTING = "PGQUEUE_TEST_DSN"
TESTING_SETTING = "PGQUEUE_TESTING"
NO_APP = (
    "pgqueue's fixtures do not know your queue, and would leave it on its real database: write "
    'pgqueue_app = "module:attribute" under [tool.pytest.ini_options] in pyproject.toml (for pgqueue\'s Django app '
    f'"pgqueue.django:queue"), or set {APP_SETTING}, or override the fixture pgqueue_app'
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the app and the server."""
    group = parser.getgroup("pgqueue")
    group.addoption(
        "--pgqueue-dsn",
        metavar="DSN",
        help="the PostgreSQL server on which pgqueue's fixtures make databases (default: the ini option, "
        f"{SERVER_SETTING}, or a throwaway server)",
    )
    parser.addini("pgqueue_dsn", f"the server, as --pgqueue-dsn; it has precedence over {SERVER_SETTING}")
    parser.addini("pgqueue_app", f"your PgQueue, as module:attribute (default: {APP_SETTING})")


def pytest_configure() -> None:
    """Exclude pgqueue and its connection pools from freezegun: with a stopped clock their waits would not end."""
    if find_spec("freezegun") is not None:
        import freezegun  # noqa: PLC0415 - not every suite has it

        freezegun.configure(extend_ignore_list=["pgqueue.", "psycopg_pool"])


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Keep every queue's jobs in memory where PGQUEUE_TESTING says so; before a conftest.py imports the app."""
    mode = os.environ.get(TESTING_SETTING)
    if mode:
        from pgqueue.testing import every_queue  # noqa: PLC0415 - most suites do without

        try:
            every_queue(mode)
        except ConfigurationError as error:
            raise pytest.UsageError(f"{TESTING_SETTING}: {error}") from error


def pytest_unconfigure() -> None:
    """Give every queue its database again."""
    if os.environ.get(TESTING_SETTING):
        from pgqueue.testing import every_queue  # noqa: PLC0415 - most suites do without

        every_queue(None)


@pytest.fixture
def pgqueue_app(pytestconfig: pytest.Config) -> "PgQueue":
    """The app's queue, as the ini option ``pgqueue_app`` names it. Override this fixture to name the queue in code."""
    from pgqueue.app.pgqueue import PgQueue  # noqa: PLC0415 - most tests of a suite need none of this

    named = pytestconfig.getini("pgqueue_app") or os.environ.get(APP_SETTING)
    if not named:
        raise pytest.UsageError(NO_APP)
    try:
        found = pkgutil.resolve_name(named)
    except (ValueError, ImportError, AttributeError) as error:
        raise pytest.UsageError(
            f"pgqueue_app = {named}: {error}; name your PgQueue as module:attribute"
        ) from error
    if not isinstance(found, PgQueue):
        raise pytest.UsageError(f"pgqueue_app = {named}: this is not a PgQueue but {found!r}")
    return found


@pytest.fixture
def pgqueue_clock() -> "Clock":
    """The clock of jobs, which the test sets; this test's other fixtures of pgqueue use it, too."""
    from pgqueue.testing import Clock  # noqa: PLC0415 - only for this fixture

    return Clock()


@pytest.fixture
def pgqueue_memory(pgqueue_app: "PgQueue", pgqueue_clock: "Clock") -> Iterator["Memory"]:
    """The app's jobs are kept in memory, and run when the test calls ``drain``; no database is needed."""
    from pgqueue.testing import in_memory  # noqa: PLC0415 - only for this fixture

    with in_memory(pgqueue_app, clock=pgqueue_clock) as memory:
        yield memory


@pytest.fixture
def pgqueue_eager(pgqueue_app: "PgQueue", pgqueue_clock: "Clock") -> Iterator["Memory"]:
    """The app's jobs run at once, inside the call that enqueues them; no database is needed."""
    from pgqueue.testing import eager  # noqa: PLC0415 - only for this fixture

    with eager(pgqueue_app, clock=pgqueue_clock) as memory:
        yield memory


@pytest.fixture(scope="session")
def pgqueue_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The DSN of a server on which databases may be made: the named server, or a throwaway one."""
    from pgqueue.embedded import embedded_server  # noqa: PLC0415 - only for this fixture
    from pgqueue.testing.databases import hasten  # noqa: PLC0415 - only for this fixture

    named = pytestconfig.getoption("--pgqueue-dsn") or pytestconfig.getini("pgqueue_dsn")
    if named or os.environ.get(SERVER_SETTING):
        yield named or os.environ[SERVER_SETTING]
        return
    instead = f"name a server on which databases may be made in {SERVER_SETTING} or with --pgqueue-dsn"
    with embedded_server(instead=instead) as dsn:
        hasten(dsn)
        yield dsn


@pytest.fixture(scope="session")
def pgqueue_prepare() -> Callable[[str], object]:
    """A function that is called once, with the DSN of the database that is copied for each test; override it to add tables."""
    return str


@pytest.fixture(scope="session")
def pgqueue_databases(pgqueue_server: str, pgqueue_prepare: Callable[[str], object]) -> Iterator["Databases"]:
    """The source of fresh databases: the schema is installed once, and the database is copied."""
    from pgqueue.testing import databases  # noqa: PLC0415 - only for this fixture

    with databases(pgqueue_server, prepare=pgqueue_prepare) as made:
        yield made


@pytest.fixture
def pgqueue_dsn(pgqueue_databases: "Databases") -> Iterator[str]:
    """The DSN of a fresh database with the schema in it; it is dropped after the test."""
    with pgqueue_databases.fresh() as dsn:
        yield dsn


@pytest.fixture
def pgqueue_queue(
    request: pytest.FixtureRequest, pgqueue_app: "PgQueue", pgqueue_dsn: str
) -> Iterator["PgQueue"]:
    """The app's queue on a fresh database; if the test uses ``pgqueue_clock``, too, at its instant."""
    from pgqueue.testing import in_database  # noqa: PLC0415 - only for this fixture

    clock = request.getfixturevalue("pgqueue_clock") if "pgqueue_clock" in request.fixturenames else None
    with in_database(pgqueue_app, pgqueue_dsn, clock=clock) as queue:
        yield queue


@pytest.fixture
def pgqueue_emptied(pgqueue_app: "PgQueue") -> Iterator["PgQueue"]:
    """The app's queue, on the database that the test uses: its jobs are deleted when the test ends. For tests that commit."""
    from pgqueue.testing import empty  # noqa: PLC0415 - only for this fixture

    yield pgqueue_app
    empty(pgqueue_app)
