"""How a connection of ours starts, and how a wait for its answer is cut off.

It starts with settings of ours: what the role or the database sets does not reach it.

The settings travel as startup options, never as ``SET``: a setting made by ``SET`` through a transaction pooler stays on the
server's connection, and the next application gets it. A pooler that does not know startup options refuses the
connection, and the error says what to do. Which connection gets which settings is decided by its user.
"""

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

# transaction_timeout is known to PostgreSQL 17 and later; idle_session_timeout to 14 and later. A server that does not
# know a setting says so, and the connection is made without it (see Database).
OWN: Mapping[str, str] = {
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    # A transaction of ours never waits for its program, except where a task blocks the event loop. Then the server
    # ends it and frees its locks, and the plan is run again.
    "idle_in_transaction_session_timeout": "5s",
}
"""What every connection that runs only our statements starts with."""

# These statements are walks along indices. A plan cached while a table was small must not read it from end to end when
# it has grown, so the planner is left no other choice. And it makes one plan for all parameters: else it planned every
# claim anew, 0.2 ms each, in the hope of a better one.
PLANNER: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""What a worker's connections start with besides."""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def startup_options(dsn: str, settings: Mapping[str, str]) -> str:
    """The value of libpq's ``options``: the user's own, and then these settings, which win.

    Args:
        dsn: may name options, as PGOPTIONS may.
        settings: by name.
    """
    given = conninfo_to_dict(dsn).get("options") or os.environ.get("PGOPTIONS")
    ours = [f"-c {name}={_escaped(value)}" for name, value in settings.items()]
    return " ".join([str(given), *ours] if given else ours)


def unknown_settings(message: str, settings: Mapping[str, str]) -> frozenset[str]:
    """Which of these settings an older server says that it does not know."""
    return frozenset(name for name in settings if f'"{name}"' in message)


def _escaped(value: str) -> str:
    """A value as one word of libpq's options."""
    return re.sub(r"([\s\\])", r"\\\1", value)


def cut_off(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """End a wait for an answer: it fails as if the server had closed the connection. From any thread.

    Only the traffic ends: the descriptor stays libpq's, so its number is not given to another connection meanwhile.
    """
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
