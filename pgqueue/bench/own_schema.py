"""A command's own schema in the user's database: marked by a comment, locked against a second run, dropped at the end.

A schema without the mark is never changed; one that an interrupted run left behind is dropped and made again. ``pgqueue bench``,
``pgqueue demo`` and ``pgqueue chaos`` work in such schemas.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg

from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database

Connection: TypeAlias = psycopg.Connection[Any]

MARKED = "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s"


@contextmanager
def own_schema(database: Database, command: str) -> Iterator[Connection]:
    """Make the database's schema, empty, for this command alone; drop it at the end.

    Args:
        database: where; its schema is the one that is made.
        command: the command, for example ``pgqueue demo``.

    Yields:
        The connection that holds the lock, apart from the work: an interrupt may leave the work's unusable.

    Raises:
        ConfigurationError: the schema has no mark of this command, or the command already runs, or this user may not
            make the schema.
        ConnectionFailed: no connection could be made.
    """
    schema = database.catalogue.schema
    with alone(database, command) as connection:
        make(connection, schema, command)
        try:
            yield connection
        finally:
            try:
                drop(connection, schema, command)
            except psycopg.OperationalError:
                if not connection.closed:
                    raise
                with database.connect() as again:  # the server restarted meanwhile
                    drop(again, schema, command)


@contextmanager
def alone(database: Database, command: str) -> Iterator[Connection]:
    """A connection that keeps every other run of the command out of this database.

    Raises:
        ConfigurationError: another one runs.
    """
    with database.connect() as connection:
        free = connection.execute("select pg_try_advisory_lock(hashtext(%s))", [mark_of(command)]).fetchone()
        if free != (True,):
            raise ConfigurationError(f"another `{command}` runs in this database; wait until it has ended")
        try:
            yield connection
        finally:  # the server ends a backend some time after its client has gone; the next run may be sooner
            if not connection.closed:
                connection.execute("select pg_advisory_unlock_all()")


def make(connection: Connection, schema: str, command: str) -> None:
    """Drop the schema if there is one, and make an empty, marked one.

    Raises:
        ConfigurationError: it is not the command's, or this user may not make it.
    """
    try:
        with connection.transaction():
            drop(connection, schema, command)
            connection.execute(f"create schema {schema}".encode())
            connection.execute(f"comment on schema {schema} is '{mark_of(command)}'".encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f'this user may not make the schema "{schema}" ({error.diag.message_primary}); '
            "use a user who may, or another database"
        ) from error


def drop(connection: Connection, schema: str, command: str) -> bool:
    """Drop the schema; False: there is none.

    Raises:
        ConfigurationError: it is not the command's.
    """
    found = connection.execute(MARKED, [schema]).fetchone()
    if found is None:
        return False
    if found != (mark_of(command),):
        raise ConfigurationError(
            f'schema "{schema}" exists and was not made by `{command}`, so it was not changed; '
            "rename it, or use another database"
        )
    connection.execute(f"drop schema {schema} cascade".encode())
    return True


def mark_of(command: str) -> str:
    """The comment that says which command made a schema."""
    return f"made by `{command}`, which drops it at the end"
