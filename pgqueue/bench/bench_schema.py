"""The bench's place in a database: the schema ``pgqueue_bench``, and everything that is asked of the server.

Nothing else in the database is changed, and no setting of the server.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue.bench.own_schema import Connection, make, own_schema
from pgqueue.store.connections.database import Database

SCHEMA = "pgqueue_bench"
COMMAND = "pgqueue bench"
"""It marks the schema, and is the application's name on the bench's connections."""
SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
)
"""Settings of the server that move the figures."""
OWN_TABLES = """
select format('%%I.%%I', schemaname, relname) from pg_stat_user_tables where schemaname = %s"""
OTHERS = """
select distinct coalesce(nullif(application_name, ''), usename::text, '?')
from pg_stat_activity
where backend_type = 'client backend' and state <> 'idle' and pid <> pg_backend_pid() and application_name <> %s"""
END_OWN_BACKENDS = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and usename = current_user and application_name = %s"""


class BenchSchema:
    """The bench's schema in one database, for as long as the bench lasts."""

    def __init__(self, dsn: str, connection: Connection) -> None:
        """``connection`` is in autocommit mode, for questions."""
        self.dsn = dsn
        self.connection = connection

    def fresh(self) -> None:
        """Drop the schema and make an empty one."""
        make(self.connection, SCHEMA, COMMAND)

    def settle(self) -> None:
        """Let the server finish its work after a load, so that no measurement runs meanwhile.

        A million jobs cause a checkpoint by themselves, which goes on for minutes; where this user may ask for one,
        it is over before anything is measured.
        """
        self.vacuum()
        with suppress(psycopg.errors.InsufficientPrivilege):
            self.connection.execute("checkpoint")

    def vacuum(self) -> None:
        """Vacuum and analyze the bench's own tables, as autovacuum would in time."""
        for (table,) in self.connection.execute(OWN_TABLES, [SCHEMA]).fetchall():
            self.connection.execute(f"vacuum analyze {table}".encode())

    def settings(self) -> dict[str, str]:
        """The server's settings that move the figures."""
        return {name: self.one(f"show {name}") for name in SETTINGS}

    def others(self) -> list[str]:
        """Who else is at work on this server, by name."""
        return sorted(name for (name,) in self.connection.execute(OTHERS, [COMMAND]))

    def one(self, query: str, *values: object) -> Any:  # noqa: ANN401 - any value
        """The only value of a query."""
        (value,) = self.connection.execute(query.encode(), values).fetchone() or (None,)
        return value

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Hold a snapshot for the length of the block, as pg_dump or a long report does."""
        with Database(self.dsn).connect() as holder, holder.transaction():
            holder.execute("set transaction isolation level repeatable read")
            holder.execute("select 1")
            yield


@contextmanager
def open_schema(dsn: str) -> Iterator[BenchSchema]:
    """Take the schema for the bench; drop it at the end, however that comes.

    Raises:
        ConfigurationError: the schema is not the bench's, or another bench runs, or this user may not make it.
        ConnectionFailed: there is no connection to be had.
    """
    with own_schema(Database(dsn, schema=SCHEMA), COMMAND) as keeper:
        dsn = make_conninfo(dsn, application_name=COMMAND)
        try:
            with Database(dsn).connect() as connection:
                yield BenchSchema(dsn, connection)
        finally:
            keeper.execute(END_OWN_BACKENDS, [COMMAND])
