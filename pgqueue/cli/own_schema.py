"""A schema of a command's own in somebody's database: marked by a comment, held against a second run, dropped at the end.

One that somebody else made is never touched; one that an interrupted run left behind is made anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg

from pgqueue.errors import ConfigurationError
from pgqueue.store.database import Database

Connection: TypeAlias = psycopg.Connection[Any]


@contextmanager
def own_schema(database: Database, command: str) -> Iterator[None]:
    """Have the database's schema, empty, for this command alone; it is dropped at the end.

    Args:
        database: which; its schema is the one that is made.
        command: whose it is, for example ``pgqueue demo``.

    Raises:
        ConfigurationError: the schema is somebody else's, or the command runs already, or this user may not make it.
        ConnectionFailed: there is no connection to be had.
    """
    schema = database.catalogue.schema
    with database.connect() as keeper:  # apart from the work: an interrupt may leave that connection unusable
        make(keeper, schema, command)
        try:
            yield
        finally:
            keeper.execute(f"drop schema {schema} cascade")


def mark_of(command: str) -> str:
    """The comment that says whose a schema is."""
    return f"made by `{command}`, which drops it at the end"


def make(connection: Connection, schema: str, command: str) -> None:
    """Make the schema, empty, for this run alone. The lock lasts as long as the connection."""
    mark = mark_of(command)
    alone = connection.execute("select pg_try_advisory_lock(hashtext(%s))", [mark]).fetchone()
    if alone != (True,):
        raise ConfigurationError(f"another `{command}` runs in this database; wait until it has ended")
    found = connection.execute(
        "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s", [schema]
    ).fetchone()
    if found not in {None, (mark,)}:
        raise ConfigurationError(
            f'schema "{schema}" exists and was not made by `{command}`, so it is left alone; '
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
            "use one who may, or no DSN at all for a server of the command's own"
        ) from error
