"""A command's temporary schema in the user's database: marked by a comment, locked against a second run, dropped at the end.

A schema without the mark is never changed; one that an interrupted run left behind is dropped and made again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg

from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database

Connection: TypeAlias = psycopg.Connection[Any]


@contextmanager
def own_schema(database: Database, command: str) -> Iterator[None]:
    """Make the database's schema, empty, for this command alone; drop it at the end.

    Args:
        database: where; its schema is the one that is made.
        command: the command, for example ``pgqueue demo``.

    Raises:
        ConfigurationError: the schema has no mark of this command, or the command already runs, or this user may not
            make the schema.
        ConnectionFailed: no connection could be made.
    """
    schema = database.catalogue.schema
    with database.connect() as connection:  # a separate one: an interrupt may leave the work's unusable
        make(connection, schema, command)
        try:
            yield
        finally:
            _drop(database, connection)
            # The next run may come before the server has noticed that this one has left.
            if not connection.closed:
                connection.execute("select pg_advisory_unlock_all()")


def _drop(database: Database, connection: Connection) -> None:
    statement = f"drop schema {database.catalogue.schema} cascade"
    try:
        connection.execute(statement.encode())
    except psycopg.OperationalError:
        if not connection.closed:
            raise
        # The server restarted meanwhile.
        with database.connect() as again:
            again.execute(statement.encode())


def mark_of(command: str) -> str:
    """The comment that says which command made a schema."""
    return f"made by `{command}`, which drops it at the end"


def make(connection: Connection, schema: str, command: str) -> None:
    """Make the schema, empty, for this run alone. The connection holds the lock until it releases it or is closed."""
    mark = mark_of(command)
    alone = connection.execute("select pg_try_advisory_lock(hashtext(%s))", [mark]).fetchone()
    if alone != (True,):
        raise ConfigurationError(f"another `{command}` runs in this database; wait until it has ended")
    found = connection.execute(
        "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s", [schema]
    ).fetchone()
    if found not in {None, (mark,)}:
        raise ConfigurationError(
            f'schema "{schema}" exists and was not made by `{command}`, so it was not changed; '
            "rename it, or use another database"
        )
    try:
        with connection.transaction():
            connection.execute(f"drop schema if exists {schema} cascade")
            connection.execute(f"create schema {schema}")
            connection.execute(f"comment on schema {schema} is '{mark}'")
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f'this user may not make the schema "{schema}" ({error.diag.message_primary}); '
            "use a user who may, or give no DSN, so that the command starts a server"
        ) from error
