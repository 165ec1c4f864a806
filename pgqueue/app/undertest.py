"""PGQUEUE_TESTING in the environment: a program under test keeps its jobs in memory, with no change to its code.

Whoever gives a queue a database asks here: ``PgQueue`` itself, and every framework's queue.
"""

import logging
import os
import pkgutil

from pgqueue.errors import ConfigurationError
from pgqueue.store.database import Database

TESTING_SETTING = "PGQUEUE_TESTING"
# By name: this floor does not know who stands above it, and only a program under test loads them.
TESTING_MODES = {"memory": "pgqueue.testing.memory:Memory", "eager": "pgqueue.testing.eagerly:Eager"}

log = logging.getLogger("pgqueue")


def under_test(queue: object, database: Database) -> Database:
    """The database a queue is to use, or what the setting puts in its place.

    Args:
        queue: whose.
        database: the one that it would use.

    Raises:
        ConfigurationError: the setting is neither ``memory`` nor ``eager``.
    """
    mode = os.environ.get(TESTING_SETTING)
    if not mode:
        return database
    if mode not in TESTING_MODES:
        raise ConfigurationError(f"{TESTING_SETTING}={mode!r}: use {' or '.join(TESTING_MODES)}, or unset it")
    log.warning("jobs are kept in memory, for tests: %s=%s", TESTING_SETTING, mode)
    made: Database = pkgutil.resolve_name(TESTING_MODES[mode])(queue)
    return made
