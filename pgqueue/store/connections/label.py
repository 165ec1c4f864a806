"""What people read as the name of a database: like ``shop on db-1.example, schema jobs``, and no secret."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgqueue.errors import PgQueueError
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import tails_of_password
from pgqueue.store.jobs import control

SCHEMA: Final = "pgqueue"
"""The schema that is not named."""
LOCAL: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})


def label_of(database: Database, *, ask: bool = True) -> tuple[str, bool]:
    """The name of a database, its host if that is another machine, and its schema if that is another one; and whether the name is sure.

    Args:
        database: which.
        ask: whether the database is asked for its name; else its DSN says it.
    """
    given = _named(database)
    name, sure = _name(database, given) if ask else (given.get("dbname") or "", False)
    host = given.get("host") or ""
    on = f" on {host}" if host not in LOCAL and not host.startswith("/") else ""
    schema = database.catalogue.schema
    return f"{name}{on}{f', schema {schema}' if schema != SCHEMA else ''}".strip(), sure


def address_of(database: Database) -> tuple[str, str]:
    """The server as other programs name it, like ``postgres://db-1.example:5432``, and the database's name."""
    given = _named(database)
    host, port = ((given.get(key) or "").partition(",")[0] for key in ("host", "port"))
    here = host in LOCAL or host.startswith("/")
    return f"postgres://{'localhost' if here else host}:{port or '5432'}", _name(database, given)[0]


def _name(database: Database, given: Mapping[str, str]) -> tuple[str, bool]:
    """The database's name, and whether it is sure: the database itself is asked, else its DSN says it."""
    with suppress(PgQueueError, psycopg.Error):  # several shards have no one name
        return database.run(control.database_name()), True
    return given.get("dbname") or "", False


def _named(database: Database) -> Mapping[str, str]:
    """What the DSN says of host and database, unless it may be the tail of a password."""
    try:
        dsn = database.dsn
        hidden = tails_of_password(dsn)
        return {key: str(value) for key, value in conninfo_to_dict(dsn).items() if key not in hidden}
    except (PgQueueError, psycopg.Error):
        return {}
