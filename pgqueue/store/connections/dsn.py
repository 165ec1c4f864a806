"""DSNs: finds one in the environment, gives it libpq's form, and makes the errors for a failed connection.

A message never contains a secret of a DSN. :mod:`pgqueue.store.connections.database` decides what is done on a connection,
:mod:`pgqueue.store.connections.pools` how connections are kept.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from pgqueue.errors import ConfigurationError, ConnectionFailed, DatabaseError
from pgqueue.store.connections.session import refused_by_pooler
from pgqueue.store.jobs.refusals import in_one_line
from pgqueue.values.hints import did_you_mean

DSN_SETTINGS = ("PGQUEUE_DSN", "DATABASE_URL")
DIRECT_DSN_SETTING = "PGQUEUE_DIRECT_DSN"
REPLICA_SETTING = "PGQUEUE_REPLICA_DSN"
EMBEDDED = "embedded:"
"""Begins what stands for a DSN where the server is one of our own; a folder follows."""
FORM = "postgresql://user:password@host:port/name"
_OPTIONS = psycopg.pq.Conninfo.get_defaults()
PARAMETERS = [option.keyword.decode() for option in _OPTIONS]
# libpq marks secrets by the display character "*", but not all of them, and an older libpq does not know all names.
SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"} | {
    option.keyword.decode() for option in _OPTIONS if option.dispchar == b"*"
}
# A peer that disappeared without closing the connection is noticed within 30 seconds, not after TCP's two hours.
CONNECTION_DEFAULTS: dict[str, Any] = {
    "application_name": "pgqueue",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
LEAST_PATIENCE = 2
"""Seconds; libpq takes less for this."""
_URI = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9.-]*)(?:\+[A-Za-z0-9_]+)?://")
_NO_DATABASE = re.compile(r'FATAL: +database "(?P<name>.+)" does not exist')
_PARAMETER = re.compile(r'invalid (?:URI query parameter:|connection option) "(\w+)"')
_QUESTION = re.compile(r"(?<!\s)\s*Is the server running [^?]*\?")


def dsn_in_environment() -> str | None:
    """The DSN of this process's environment; None: it has none. A folder stays what it was at the first call."""
    found = next(filter(None, map(os.environ.get, DSN_SETTINGS)), None)
    return found and _absolute_once(found)


def embedded_dsn(folder: str | os.PathLike[str]) -> str:
    """What stands for the DSN of the server whose files are in this folder.

    Raises:
        ConfigurationError: it names no folder.
    """
    named = os.fspath(folder).strip()
    if not named or named.startswith("//"):
        raise ConfigurationError(f"{EMBEDDED}{named}: name a folder, such as {EMBEDDED}./data")
    return f"{EMBEDDED}{Path(named).expanduser().absolute()}"


def absolute(dsn: str) -> str:
    """A DSN, in which a folder does not depend on the current one."""
    kind, folder = dsn.strip()[: len(EMBEDDED)], dsn.strip()[len(EMBEDDED) :]
    return embedded_dsn(folder) if kind.lower() == EMBEDDED else dsn


_absolute_once = lru_cache(absolute)


EMBEDDED_ALONE = "embedded=... says where the database is: leave out dsn, direct_dsn, replica and shards"
SHARDS_ALONE = "shards=[...] says where all databases are: leave out dsn, replica and direct_dsn"


def require_alone(sentence: str, *others: str | None) -> None:
    """Refuse a queue that says in another way, too, where its databases are.

    Raises:
        ConfigurationError: it does; with this sentence.
    """
    if any(others):
        raise ConfigurationError(sentence)


def replica_in_environment() -> str | None:
    """The DSN of a replica that this process's environment names; None: it names none."""
    return os.environ.get(REPLICA_SETTING) or None


def connect_within(dsn: str, seconds: int) -> str:
    """The DSN with this ``connect_timeout``, unless it has one."""
    dsn = for_libpq(dsn)
    try:
        return (
            dsn if "connect_timeout" in conninfo_to_dict(dsn) else make_conninfo(dsn, connect_timeout=seconds)
        )
    except psycopg.ProgrammingError:
        return dsn  # the first connection says what is wrong with it


def for_libpq(dsn: str) -> str:
    """The DSN without SQLAlchemy's driver name, and without the white space around it that a file of settings leaves.

    Raises:
        ConfigurationError: the DSN is the address of another kind of database, or is in quotation marks.
    """
    dsn = dsn.strip()
    if dsn[:1] in {"'", '"'}:
        raise ConfigurationError("the database's DSN begins with a quotation mark: write it without")
    uri = _URI.match(dsn)
    if uri is None:
        return dsn
    if uri["kind"].lower() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"the DSN begins with {uri['kind']}://, and pgqueue works on PostgreSQL only: write {FORM}"
        )
    return f"{uri['kind']}://{dsn[uri.end() :]}"


def without_secrets(dsn: str) -> str:
    """The DSN as libpq's keywords, without its secrets, and without what may be the tail of a password."""
    named = conninfo_to_dict(dsn)
    hidden = SECRETS | tails_of_password(dsn)
    return make_conninfo("", **{key: str(value) for key, value in named.items() if key not in hidden})


def tails_of_password(dsn: str) -> set[str]:
    """The keywords whose values may hold the tail of a password, because an ``@`` or ``/`` in it is not escaped.

    libpq ends a password at its first ``@``, and reads the rest as host, port and database.

    Raises:
        psycopg.ProgrammingError: the DSN cannot be read.
    """
    named = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    # A host that begins with @ is a socket in the abstract namespace.
    hosts = [host[1:] for host in named.get("host", "").split(",")]
    if any("@" in value for value in (*hosts, named.get("port", ""))):
        return {"host", "port", "dbname"}
    in_name = _URI.match(dsn) is not None and "@" in named.get("dbname", "")
    return {"host", "port", "dbname"} if in_name else set()


def hosts_of(dsn: str) -> int:
    """How many hosts a DSN names: they are tried one after the other. 1 for a DSN that cannot be read: connecting says so."""
    try:
        named = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return 1
    return str(named.get("host") or named.get("hostaddr") or "").count(",") + 1


def patience_per_host(dsn: str, within: float | None) -> dict[str, int]:
    """The option of a connection that is to be made within ``within`` seconds, where the DSN names several hosts.

    A host that lost its power answers nothing. With libpq's own patience it would take all the time there is, each time, and
    the host that has taken its place would never be asked.
    """
    hosts = hosts_of(dsn)
    return (
        {} if within is None or hosts == 1 else {"connect_timeout": max(LEAST_PATIENCE, int(within / hosts))}
    )


@contextmanager
def connection_errors(dsn: str, settings: str) -> Iterator[None]:
    """Turn errors of connecting into pgqueue's errors.

    Args:
        dsn: the DSN of the connection.
        settings: the settings from which the DSN may come, for the message.

    Raises:
        ConfigurationError: the DSN cannot be read, or its host holds an ``@``.
        ConnectionFailed: no connection can be made.
    """
    try:
        tails = tails_of_password(dsn)
        # A database's name may hold an @, so that one is tried. Such a host would only be sent to a name server.
        if tails and "@" in str(conninfo_to_dict(dsn).get("host")):
            raise _not_readable()
        yield
    except psycopg.ProgrammingError as error:
        # libpq's message may repeat the password
        raise _not_readable(_unknown_parameter(dsn, error)) from None
    except psycopg.OperationalError as error:
        if tails:
            raise _not_readable() from None
        raise ConnectionFailed(
            f"cannot connect to {without_secrets(dsn)}: {_reason(error)}; {_remedy(error, settings)}"
        ) from error


def _not_readable(parameter: str | None = None) -> ConfigurationError:
    if parameter is not None:
        hint = "; did you mean 'sslmode'?" if parameter == "ssl" else did_you_mean(parameter, PARAMETERS)
        return ConfigurationError(
            f"the database's DSN has a parameter that libpq does not know, {parameter!r}{hint or ': leave it out'}"
        )
    return ConfigurationError(
        f"the database's DSN cannot be read; write {FORM}, with %25 for %, %40 for @ and %2F for / in a password"
    )


def _unknown_parameter(dsn: str, error: psycopg.ProgrammingError) -> str | None:
    """The parameter that libpq refuses, unless it may be a part of a password."""
    found = _PARAMETER.search(str(error))
    return found[1] if found and "@" not in dsn[dsn.find(found[1]) :] else None


def failure(error: psycopg.OperationalError) -> DatabaseError:
    """The pgqueue error for an error on a pooled connection: none was free, it was lost, or a statement failed."""
    if isinstance(error, PoolTimeout):
        return ConnectionFailed(
            f"no connection from the pool: {_reason(error)}, so nothing was done; check that the server runs, "
            "or raise pool_size if all connections are in use"
        )
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
        lost = ConnectionFailed(
            f"the connection was lost: {_reason(error)}; whether the statement was done is not known"
        )
        lost.maybe_done = True
        return lost
    if error.sqlstate == psycopg.errors.SerializationFailure.sqlstate and "conflict with recovery" not in str(
        error
    ):
        return DatabaseError(
            f"the database could not do it: {_reason(error)}; behind a pooler, pgqueue cannot choose the isolation of its "
            "transactions: set default_transaction_isolation to 'read committed' for its role"
        )
    return DatabaseError(f"the database could not do it: {_reason(error)}")


def failure_of_check(error: psycopg.OperationalError) -> DatabaseError:
    """As :func:`failure`, of a new connection on which only the schema was checked: the caller's statement was not sent."""
    found = failure(error)
    if not isinstance(found, ConnectionFailed):
        return found
    return ConnectionFailed(
        f"the connection was lost while the schema was checked: {_reason(error)}; nothing was done"
    )


def read_only(error: psycopg.Error) -> ConnectionFailed:
    """The error for a server that takes no writes: after a failover, the former primary."""
    said = in_one_line(error)
    return ConnectionFailed(
        f"the server takes no writes ({said}), so nothing was done: it is a standby, the former primary, or "
        "a role or database with default_transaction_read_only. Name all servers in the "
        "DSN, with target_session_attrs=read-write: the next call connects to the one that takes writes"
    )


def _reason(error: psycopg.OperationalError) -> str:
    said = _QUESTION.sub("", str(error).removeprefix("connection failed: "))
    return " ".join(said.split()).rstrip(".?!")


def _remedy(error: psycopg.OperationalError, settings: str) -> str:
    missing = _NO_DATABASE.search(str(error))
    if missing is not None:
        return f"create it with `createdb {missing['name']}`, or check {settings}"
    if refused_by_pooler(str(error)):
        return "this is a connection pooler: say so with PgQueue(behind_pooler=True) or --behind-pooler"
    if "FATAL:" in str(error):  # the server answered
        return f"check {settings}"
    return f"check {settings}, and that the server runs"
