"""DSNs: where one is looked for, how libpq reads it, and what is said when no connection can be made with it.

A secret of a DSN never stands in a message. What is done on a connection is decided in
:mod:`pgqueue.store.database`; how connections are kept, in :mod:`pgqueue.store.pools`.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from pgqueue.errors import ConfigurationError, ConnectionFailed, DatabaseError

DSN_SETTINGS = ("PGQUEUE_DSN", "DATABASE_URL")
DIRECT_DSN_SETTING = "PGQUEUE_DIRECT_DSN"
FORM = "postgresql://user:password@host:port/name"
# libpq marks secrets by the display character "*", but not all of them, and an older libpq does not know all names.
SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"} | {
    option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults() if option.dispchar == b"*"
}
# A peer that vanished without a word is noticed within half a minute, not after TCP's two hours.
CONNECTION_DEFAULTS: dict[str, Any] = {
    "application_name": "pgqueue",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_URI = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9.-]*)(?:\+[A-Za-z0-9_]+)?://")
_NO_DATABASE = re.compile(r'FATAL: +database "(?P<name>.+)" does not exist')
_QUESTION = re.compile(r"\s*Is the server running [^?]*\?")


def dsn_in_environment() -> str | None:
    """The DSN that this process's environment gives; None: it gives none."""
    return next(filter(None, map(os.environ.get, DSN_SETTINGS)), None)


def for_libpq(dsn: str) -> str:
    """The DSN without SQLAlchemy's driver name.

    Raises:
        ConfigurationError: it is the address of another kind of database.
    """
    uri = _URI.match(dsn)
    if uri is None:
        return dsn
    if uri["kind"].lower() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"the DSN begins with {uri['kind']}://, and pgqueue works on PostgreSQL only: write {FORM}"
        )
    return f"{uri['kind']}://{dsn[uri.end() :]}"


def without_secrets(dsn: str) -> str:
    """The DSN as libpq's keywords, without what must not be shown."""
    named = conninfo_to_dict(dsn)
    return make_conninfo("", **{key: str(value) for key, value in named.items() if key not in SECRETS})


@contextmanager
def connection_errors(dsn: str, settings: str) -> Iterator[None]:
    """Turn errors of connecting into errors of ours.

    Args:
        dsn: what is connected to.
        settings: which settings the DSN may have come from, for the message.

    Raises:
        ConfigurationError: the DSN cannot be read.
        ConnectionFailed: no connection can be made.
    """
    try:
        yield
    except psycopg.ProgrammingError:
        raise ConfigurationError(  # libpq's own words repeat the DSN, password included
            f"the database's DSN cannot be read; write {FORM}, with %25 for % and %40 for @ in a password"
        ) from None
    except psycopg.OperationalError as error:
        raise ConnectionFailed(
            f"cannot connect to {without_secrets(dsn)}: {_reason(error)}; {_remedy(error, settings)}"
        ) from error


def failure(error: psycopg.OperationalError) -> DatabaseError:
    """The error of ours for one on a connection from a pool: none to be had, lost, or the statement was refused."""
    if isinstance(error, PoolTimeout):
        return ConnectionFailed(
            f"no connection from the pool: {_reason(error)}, so nothing was done; check that the server runs, "
            "or raise pool_size if all connections are in use"
        )
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
        return ConnectionFailed(
            f"the connection was lost: {_reason(error)}; whether the statement was done is not known"
        )
    return DatabaseError(f"the database could not do it: {_reason(error)}")


def _reason(error: psycopg.OperationalError) -> str:
    """What the driver said, in one line, without the punctuation at its end."""
    said = _QUESTION.sub("", str(error).removeprefix("connection failed: "))
    return " ".join(said.split()).rstrip(".?!")


def _remedy(error: psycopg.OperationalError, settings: str) -> str:
    missing = _NO_DATABASE.search(str(error))
    if missing is not None:
        return f"create it with `createdb {missing['name']}`, or check {settings}"
    if "startup parameter" in str(error):  # PgBouncer's words for settings that it cannot keep apart
        return "this is a connection pooler: say so with PgQueue(behind_pooler=True) or --behind-pooler"
    if "FATAL:" in str(error):  # the server answered
        return f"check {settings}"
    return f"check {settings}, and that the server runs"
