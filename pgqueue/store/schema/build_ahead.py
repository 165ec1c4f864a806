"""Does before an upgrade what would otherwise lock a large table while the table is read: columns, then their indices.

A revision's file ``sql/schema/NNNN_MM_large.up.sql`` holds those statements. Each of them does nothing if it has been done. A revision
runs them in its own transaction, where an index keeps the table locked for as long as it takes to read it: 0.5 s for a million
rows. Where the tables are large, :func:`pgqueue.store.schema.schema.migrate` runs them first, outside of a transaction: the columns
under a short lock, and each index concurrently, so that claims, ends and enqueues go on. If this is interrupted, the tables
stay usable for both releases, and the next upgrade goes on with it.

SQL that is printed, and upgrades within a caller's transaction, do not come by here.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pgqueue.errors import ConfigurationError, DatabaseError
from pgqueue.store.catalogue import in_schema
from pgqueue.store.shipped import shipped

if TYPE_CHECKING:
    import psycopg

LARGE = 64 * 2**20
"""Bytes of a table from which on its indices are built before the upgrade. Below, the lock of an upgrade lasts for 0.3 s at most."""
TRIES = 120
LOCK_WITHIN, PAUSE = "200ms", 0.3
"""Each try waits for the lock so long, and workers wait behind it; between two tries, in seconds, they go on."""
BUILD_WITHIN = "60s"
"""To build an index, PostgreSQL waits for older transactions: for each at most so long."""
FILE = "_large.up.sql"
INDEX = re.compile(r"create index if not exists (\w+) on (\w+\.(\w+)) (.*)", re.DOTALL)
LARGEST = """
select coalesce(max(pg_relation_size(oid)), 0) from pg_class
where relnamespace = %(schema)s::regnamespace and relkind = 'r' and relname ~ '^(jobs|dead_jobs|job_history_.*)$'
"""
PARTS = """
select relname, false from pg_inherits join pg_class on oid = inhrelid where inhparent = %(table)s::regclass
union all
select relname, true from pg_class where oid = %(table)s::regclass and relkind = 'r'
order by 1
"""


def prepare(driver: "psycopg.Connection[Any]", *, schema: str, newest: str) -> None:
    """Do ahead what an upgrade does with large tables; nothing where no table is large, or nothing is installed yet.

    Args:
        driver: a connection outside of a transaction; it commits each statement meanwhile.
        schema: the schema's name.
        newest: the last revision that is to be installed.

    Raises:
        ConfigurationError: a pooler stands between, so the next statement may be another session's.
        DatabaseError: another transaction kept a table open for a minute.
    """
    before, driver.autocommit = driver.autocommit, True
    try:
        scripts = [
            script for one in _missing_revisions(driver, schema, newest) if (script := _script(one, schema))
        ]
        if scripts and _value(driver, LARGEST, schema=schema) >= LARGE:
            _require_own_session(driver)
            with _one_at_a_time(driver, schema), _patience(driver):
                for script in scripts:
                    _run(driver, script)
    finally:
        driver.autocommit = before


def _missing_revisions(driver: "psycopg.Connection[Any]", schema: str, newest: str) -> list[str]:
    """Return the revisions that an upgrade of the installed schema runs."""
    if _value(driver, "select to_regclass(%(table)s)", table=f"{schema}.alembic_version") is None:
        return []
    current = _value(driver, f"select max(version_num) from {schema}.alembic_version")
    return [] if current is None else [f"{one:04}" for one in range(int(current) + 1, int(newest) + 1)]


def _script(revision: str, schema: str) -> list[str]:
    """The statements of a revision's file, without comments; none where it has no such file."""
    texts = [
        file.read_text(encoding="utf-8")
        for file in shipped("sql").joinpath("schema").iterdir()
        if file.name.startswith(f"{revision}_") and file.name.endswith(FILE)
    ]
    lines = (line for text in texts for line in text.splitlines() if not line.startswith("--"))
    return [one.strip() for one in in_schema("\n".join(lines), schema).split(";") if one.strip()]


def _require_own_session(driver: "psycopg.Connection[Any]") -> None:
    """Refuse a pooler, which says another process id: settings and locks of this session would be other programs'."""
    if _value(driver, "select pg_backend_pid()") != driver.info.backend_pid:
        raise ConfigurationError(
            "the tables are large, so indices are built before the upgrade, in one session; but this connection goes through a pooler "
            "(PgBouncer): run the migration with the DSN of PostgreSQL itself"
        )


@contextmanager
def _one_at_a_time(driver: "psycopg.Connection[Any]", schema: str) -> Iterator[None]:
    """Hold a lock. It is asked for again and again: an index that is built waits for statements that wait."""
    name = {"name": f"{schema}.ahead"}
    while not _value(driver, "select pg_try_advisory_lock(hashtext(%(name)s))", **name):
        time.sleep(PAUSE)
    try:
        yield
    finally:
        if not driver.closed:
            _value(driver, "select pg_advisory_unlock(hashtext(%(name)s))", **name)


@contextmanager
def _patience(driver: "psycopg.Connection[Any]") -> Iterator[None]:
    """Settings of the role end neither statements nor their waits here; these have bounds of their own."""
    driver.execute("set statement_timeout = 0")
    try:
        yield
    finally:
        if not driver.closed:
            driver.execute("reset statement_timeout")
            driver.execute("reset lock_timeout")


def _run(driver: "psycopg.Connection[Any]", script: list[str]) -> None:
    _add(driver, [one for one in script if not INDEX.fullmatch(one)])
    driver.execute(f"set lock_timeout = '{BUILD_WITHIN}'".encode())
    for found in filter(None, map(INDEX.fullmatch, script)):
        name, table, bare, definition = found.groups()
        for part, whole in _parts(driver, table):
            _build(
                driver, name if whole else part + name.removeprefix(bare) + "_idx", part, table, definition
            )


def _add(driver: "psycopg.Connection[Any]", statements: list[str]) -> None:
    """Add columns in short attempts: workers wait behind a statement that waits for a table."""
    import psycopg  # noqa: PLC0415 - only migrations need it

    driver.execute(f"set lock_timeout = '{LOCK_WITHIN}'".encode())
    for _ in range(TRIES):
        try:
            with driver.transaction():
                for statement in statements:
                    driver.execute(statement.encode())
        except psycopg.errors.LockNotAvailable:
            time.sleep(PAUSE)
        else:
            return
    raise _kept_open("add a column", statements[0])


def _parts(driver: "psycopg.Connection[Any]", table: str) -> list[tuple[str, bool]]:
    """Return the tables in which a table's rows are, by name, and whether that is the table itself."""
    return driver.execute(PARTS, {"table": table}).fetchall()


def _build(driver: "psycopg.Connection[Any]", name: str, part: str, table: str, definition: str) -> None:
    import psycopg  # noqa: PLC0415 - only migrations need it

    schema = table.split(".", 1)[0]
    query = "select indisvalid from pg_index where indexrelid = to_regclass(%(index)s)"
    found = driver.execute(query, {"index": f"{schema}.{name}"}).fetchone()
    if found is not None and found[0]:
        return
    try:
        if found is not None:
            # An interrupted attempt has left it.
            driver.execute(f"drop index concurrently {schema}.{name}".encode())
        driver.execute(f"create index concurrently {name} on {schema}.{part} {definition}".encode())
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise _kept_open("build an index", f"{schema}.{part}") from error


def _kept_open(what: str, where: str) -> DatabaseError:
    return DatabaseError(
        f"the upgrade could not {what} ({where}): a transaction that is older has been open for a minute. The schema is still at "
        "its former revision, and workers go on. End that transaction (pg_locks and pg_stat_activity say whose it is), "
        "then migrate again"
    )


def _value(driver: "psycopg.Connection[Any]", query: str, **params: object) -> Any:  # noqa: ANN401 - as the query says
    row = driver.execute(query.encode(), params).fetchone()
    return None if row is None else row[0]
