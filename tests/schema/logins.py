"""A login for each role that `pgqueue grants` gives rights to, and the roles that may do what each least role may do."""

from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgqueue.store.schema.grants import Role, grant_statements

LOGINS: Final[dict[str, tuple[Role, dict[str, Any]] | None]] = {
    "owner": None,
    "worker": ("worker", {}),
    "operator": ("operator", {}),
    "reader": ("reader", {}),
    "monitor": ("monitor", {}),
    "producer": ("producer", {}),
    "producer of queues": ("producer", {"queues": ["mail"], "also": ["signals"]}),
    "producer by SQL": ("producer", {"sql_alone": True}),
    "nobody": None,
}
OPERATORS: Final = {"owner", "worker", "operator"}
READERS: Final = {*OPERATORS, "reader"}
MONITORS: Final = {*READERS, "monitor"}
PRODUCERS: Final = {*OPERATORS, "producer", "producer of queues"}
SENDERS: Final = {*OPERATORS, "producer of queues"}
WORKERS: Final = {"owner", "worker"}
GIVES: Final = "gives this right"
"""What an error says behind the grants that are enough."""
CONNECTED: Final = {*MONITORS, *PRODUCERS}


def login(dsn: str, role: str) -> str:
    """The DSN of a role's own login, with its rights granted."""
    if role == "owner":
        return dsn
    name = f"login {role}"
    with psycopg.connect(dsn, autocommit=True) as own:
        if not own.execute("select from pg_roles where rolname = %s", [name]).fetchall():
            own.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        granted = LOGINS[role]
        for statement in () if granted is None else grant_statements(granted[0], name, **granted[1]):
            own.execute(statement.encode())
    return make_conninfo(dsn, user=name)
