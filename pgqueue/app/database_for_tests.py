"""The hook with which tests put something in place of a queue's database, at the moment the queue is made.

``PgQueue`` and every framework's queue ask here. Nothing in the environment can set the hook: only
:mod:`pgqueue.testing` does, so that no setting left in a shell makes a running program keep its jobs in memory.
"""

from collections.abc import Callable
from typing import Any

from pgqueue.store.connections.database import Database

Replace = Callable[[Any, Database], Database]
"""Takes a queue and the database that it would use; returns the one to use."""

_replace: Replace | None = None


def database_for_tests(queue: object, database: Database) -> Database:
    """The database a queue is to use: its own, unless a test replaces it.

    Args:
        queue: whose.
        database: the one that it would use.
    """
    return database if _replace is None else _replace(queue, database)


def replace_databases(replace: Replace | None) -> Replace | None:
    """Replace the database of every queue that is made from now on; for :mod:`pgqueue.testing` only.

    Args:
        replace: makes the replacement; None: queues use their own databases again.

    Returns:
        What was set before.
    """
    global _replace
    before, _replace = _replace, replace
    return before
