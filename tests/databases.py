"""Fresh databases, made ahead. A copy takes 20 ms of the server's CPU, and its first session 6 ms more; so a database whose
schema a test has left as it was is emptied for the next test. Tests see no difference: it has a new name, no sessions, the
template's rows, and sequences and statistics that begin anew. (Of an index that was emptied the planner knows no size in pages,
and looks at its file.)
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

AHEAD = 3
USES = 50
"""Tests that use one copy: each emptying leaves dead rows in the system catalogues."""
FAILURES = 5
"""Errors of the server in a row after which no more copies are tried: one may come of a busy machine or a lost connection."""

TOUCHED = """
select oid::regclass::text, oid < 16384, relkind = 'S'
from pg_class
where relkind in ('r', 'm', 'S') and not relisshared and relnamespace is distinct from to_regnamespace('watched')
    and case when relkind = 'S' then pg_stat_get_blocks_fetched(oid) else
        pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid)
        + pg_stat_get_vacuum_count(oid) + pg_stat_get_analyze_count(oid)
        + pg_stat_get_autovacuum_count(oid) + pg_stat_get_autoanalyze_count(oid)
    end > 0
"""
"""Relations that sessions have written to, whether each is a system catalogue, and whether it is a sequence. Every session
reports before it ends. A change of the schema, and ANALYZE of rows, write to catalogues. What ``transitions`` has noted stays
until the copy is dropped."""
FILLED = """
select oid::regclass::text from pg_class
where relkind = 'r' and oid >= 16384 and relnamespace <> 'information_schema'::regnamespace and pg_relation_size(oid) > 0
"""
SETTINGS = """
select datconnlimit, datallowconn, datacl::text, datdba, pg_stat_get_db_stat_reset_time(oid),
    array(select setconfig from pg_db_role_setting where setdatabase = d.oid)
from pg_database d where datname = %s
"""
"""What is set for a database, and since when PostgreSQL counts what was written in it."""
SEQUENCES = "select oid::regclass::text from pg_class where relkind = 'S' and oid >= 16384"
COUNTED = "select last_value, is_called from {}"


def dsn_of(server: Any, name: str) -> str:
    """The DSN of a database on the server that pytest-postgresql knows."""
    return f"postgresql://{server.user}:{server.password or ''}@/{name}?host={server.host}&port={server.port}"


class Copies:
    """Copies of a database. One thread makes them ahead of the tests, and drops those that they have done with."""

    def __init__(
        self, server: str, template: str, last_look: Callable[[str], None], prefix: str | None = None
    ) -> None:
        """Begin to copy.

        Args:
            server: the DSN of a database there.
            template: what to copy; no session may be connected to it.
            last_look: called with the DSN of a copy before it is dropped.
            prefix: with which the names of the copies begin; None: the template's name.
        """
        self._server = server
        self._template = template
        self._last_look = last_look
        self._prefix = prefix or template
        self._numbers = count(1)
        self._ready: queue.Queue[_Copy | BaseException] = queue.Queue(AHEAD)
        self._used: queue.SimpleQueue[_Copy] = queue.SimpleQueue()
        self._new: _New | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="database copies", daemon=True)
        self._thread.start()

    @contextmanager
    def one(self) -> Iterator[str]:
        """A copy, for the length of a block; its name."""
        copy = self._ready.get()
        if not isinstance(copy, _Copy):
            raise RuntimeError("no copy could be made") from copy  # noqa: TRY004 - it is not the caller's type
        try:
            yield copy.name
        finally:
            self._used.put(copy)

    def stop(self) -> None:
        """Copy no more, and drop what is left."""
        self._stopping.set()
        while self._thread.is_alive() or not self._ready.empty():
            with suppress(queue.Empty):
                left = self._ready.get(timeout=0.1)
                if isinstance(left, _Copy):
                    self._used.put(left)
        with psycopg.connect(self._server, autocommit=True) as connection:
            while not self._used.empty():
                self._drop(connection, self._used.get().name)

    def _work(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._server, autocommit=True) as connection:
                    self._new = self._new or _New.of(self._dsn(self._template))
                    _leave(connection, self._template)
                    while not self._stopping.is_set():
                        self._ready.put(self._emptied(connection) or self._copied(connection))
                        failures = 0
            except (
                psycopg.Error
            ) as error:  # the connection was lost, or a session did not leave a database in time
                failures += 1
                if failures > FAILURES:
                    self._fail(error)
                self._stopping.wait(0.1 * failures)
            except BaseException as error:  # noqa: BLE001 - it is raised in the threads that wait for a copy
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Raise an error in every test that waits for a copy, from now on."""
        while not self._stopping.is_set():
            self._ready.put(error)

    def _copied(self, connection: psycopg.Connection[Any]) -> "_Copy":
        name = self._name()
        _do(connection, "create database {} template {} strategy file_copy", name, self._template)
        return _Copy(name, _settings(connection, name))

    def _emptied(self, connection: psycopg.Connection[Any]) -> "_Copy | None":
        """A copy that was used, as good as new; None: there is none, and those that are not as good are dropped."""
        while not self._used.empty():
            used = self._used.get()
            copy = _Copy(self._name(), None, used.uses + 1)
            if copy.uses > USES:
                self._drop(connection, used.name)
            elif self._empty(connection, used, copy):
                return copy
        return None

    def _empty(self, connection: psycopg.Connection[Any], used: "_Copy", copy: "_Copy") -> bool:
        """Give a copy a new name, which the programs of its last test do not know, and empty it; whether it could be done."""
        name = used.name
        try:
            if _settings(connection, name) == used.settings:
                _leave(connection, name)
                _do(connection, "alter database {} rename to {}", name, copy.name)
                name = copy.name
                if self._new and _restored(self._dsn(name), self._new):
                    _leave(connection, name)
                    copy.settings = _settings(connection, name)
                    return True
        except psycopg.Error:  # a test may have dropped it
            pass
        self._drop(connection, name)
        return False

    def _drop(self, connection: psycopg.Connection[Any], name: str) -> None:
        self._last_look(self._dsn(name))
        _do(connection, "drop database if exists {} with (force)", name)

    def _name(self) -> str:
        return f"{self._prefix}_{next(self._numbers)}"

    def _dsn(self, name: str) -> str:
        return make_conninfo(self._server, dbname=name)


@dataclass
class _Copy:
    name: str
    settings: object
    uses: int = 1


@dataclass(frozen=True)
class _New:
    """What a new database holds: the rows of each table that has some, as COPY writes them, and where each sequence is."""

    rows: dict[str, bytes]
    sequences: dict[str, tuple[int, bool]]

    @classmethod
    def of(cls, dsn: str) -> "_New":
        with psycopg.connect(dsn) as connection:
            rows: dict[str, bytes] = {}
            for (name,) in connection.execute(FILLED).fetchall():
                with connection.cursor().copy(f"copy {name} to stdout".encode()) as copy:
                    rows[name] = b"".join(bytes(block) for block in copy)
            sequences: dict[str, tuple[int, bool]] = {}
            for (name,) in connection.execute(SEQUENCES).fetchall():
                ((last, called),) = connection.execute(COUNTED.format(name).encode()).fetchall()
                sequences[name] = (last, called)
            return cls(rows, sequences)


def _restored(dsn: str, new: _New) -> bool:
    """Give a database the rows of a new one; False: its schema, or what the planner knows of it, has changed."""
    with psycopg.connect(dsn) as connection:
        touched = connection.execute(TOUCHED).fetchall()
        if any(catalogue for _, catalogue, _ in touched):
            return False
        tables = [name for name, _, sequence in touched if not sequence]
        if tables:
            connection.execute("set local session_replication_role = replica")
            connection.execute(f"truncate {', '.join(tables)} cascade".encode())
        for name in new.rows.keys() & set(tables):
            with connection.cursor().copy(f"copy {name} from stdin".encode()) as copy:
                copy.write(new.rows[name])
        for name in (name for name, _, sequence in touched if sequence):
            connection.execute("select setval(%s, %s, %s)", (name, *new.sequences[name]))
        connection.execute("select pg_stat_force_next_flush()")
        connection.commit()
        connection.execute("select pg_stat_reset()")
    return True


def _settings(connection: psycopg.Connection[Any], name: str) -> object:
    return connection.execute(SETTINGS, (name,)).fetchall()


def _leave(connection: psycopg.Connection[Any], name: str) -> None:
    """End the sessions of a database, and wait until they have ended."""
    asked = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
    for _ in range(2000):
        if not connection.execute(asked, (name,)).fetchall():
            return
        time.sleep(0.001)


def _do(connection: psycopg.Connection[Any], statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
