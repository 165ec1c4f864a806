"""The settings with which pgqueue's connections start.

The settings override those of the role and the database. They are sent as startup options, never as ``SET``: a setting
made by ``SET`` through a transaction pooler stays on the server's connection, and the next application gets it. A pooler
that does not know startup options refuses the connection, and the error says what to do. The code that opens a connection
decides which settings it gets.
"""

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from psycopg.conninfo import conninfo_to_dict

from pgqueue.store.plan import Plan, Statement, Steps, plan

T = TypeVar("T")

GONE: Mapping[str, str] = {"client_connection_check_interval": "10s"}
"""With this, the server ends a session whose client has gone, also while the session waits for a lock."""

# A server that does not know a setting says so, and the connection is made without it (see Database).
OWN: Mapping[str, str] = {
    "search_path": "pg_catalog",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    # pgqueue's transactions never wait for the program, unless a task blocks the event loop. Then the server ends the
    # transaction and frees its locks, and the plan is run again.
    "idle_in_transaction_session_timeout": "5s",
    # The setting above does not end a transaction whose answer the server cannot send, since the program or a proxy reads
    # nothing. Such an answer holds jobs and limits locked; an answer of 20 MB is longer than what the system keeps of it.
    "tcp_user_timeout": "10s",
    **GONE,
}
"""The settings of every connection that runs only pgqueue's statements."""
SINCE: Mapping[str, int] = {"transaction_timeout": 17_00_00, "idle_session_timeout": 14_00_00}
"""The versions of PostgreSQL that brought some of them, as the server gives its own."""

# These statements read along indices. A plan that was cached while a table was small must not scan it when it has grown,
# so the planner may use only indices. It also makes one plan for all parameters: otherwise it would plan every claim
# again, at 0.2 ms each.
PLANNER: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Additional settings of a worker's connections."""

POOLED: Mapping[str, str] = {"jit": "off", "default_transaction_isolation": "read committed", **GONE}
"""The settings of a pool's connections, which may run other statements, too: those of ``ctx.transaction()``.

Our statements skip rows that another transaction has locked, and read again those that it has changed. Under repeatable read or
serializable, PostgreSQL would refuse them. They end within milliseconds. To compile one takes the server 25 ms, and it compiles each one whose estimated cost is
high, as it is for tables without statistics. A pooler that does not know startup options gets none.
"""
_OF_POOLERS = ("startup parameter", "command-line options")
"""What PgBouncer and others say of startup options that they do not know."""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def startup_options(dsn: str, settings: Mapping[str, str]) -> str:
    """The value of libpq's ``options``: the user's own, and then these settings, which override them.

    Args:
        dsn: may name options, as PGOPTIONS may.
        settings: by name.
    """
    given = conninfo_to_dict(dsn).get("options") or os.environ.get("PGOPTIONS")
    ours = [f"-c {name}={_escape(value)}" for name, value in settings.items()]
    return " ".join([str(given), *ours] if given else ours)


def settings_after(version: int) -> frozenset[str]:
    """The settings that came after this version of PostgreSQL."""
    return frozenset(name for name, since in SINCE.items() if version < since)


def unknown_settings(message: str, settings: Mapping[str, str]) -> frozenset[str]:
    """The settings that an older server's message names as unknown; where a pooler refuses them all, those that a pool can do without."""
    if refused_by_pooler(message):
        return frozenset(POOLED) & settings.keys()
    return frozenset(name for name in settings if f'"{name}"' in message)


def refused_by_pooler(message: str) -> bool:
    """Whether an error's message says that a pooler does not know startup options."""
    return any(words in message for words in _OF_POOLERS)


def _escape(value: str) -> str:
    return re.sub(r"([\s\\])", r"\\\1", value)


@plan
def widen(size: int) -> Steps[None]:
    """Have the connection read up to this many bytes at once.

    libpq's buffer begins with 16 kB and grows to the longest message so far. With a small one, an answer of 1 MB takes
    some 100 turns of the event loop: more time than all else that a worker does with it.
    """
    yield Statement("jobs/widen", {"bytes": size})


@plan(transaction=True)
def ended_if_idle(whole: Plan[T], settings: Mapping[str, str]) -> Steps[T]:
    """A plan whose transaction is ended by the server if it waits for its next statement, as these settings say.

    For connections through a pooler, which start without settings. The setting ends with the transaction.
    """
    idle, unread = settings["idle_in_transaction_session_timeout"], settings["tcp_user_timeout"]
    yield Statement("connections/bound_idle", {"idle": idle, "unread": unread})
    return (yield from whole)
