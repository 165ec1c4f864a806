"""Which jobs a drain may run: those in memory, and those of a database that is for tests, by its name.

The name decides, since a test can reach any database: by a DSN in the shell, by the project's settings, on a connection
of its own. A transaction that will be rolled back sees the jobs that others have committed, so it makes no difference.
"""

import re

from pgqueue.errors import ConfigurationError

WORD = re.compile(r"test(s|ing)?(gw\d+)?")
"""With the worker's name that pytest-xdist gives, which pytest-postgresql appends: ``testsgw1``."""


def is_for_tests(database: str) -> bool:
    """Whether a database's name contains the word test: ``test_shop``, ``shop-tests``, ``pgqueue_test_gw0_4``."""
    return any(map(WORD.fullmatch, re.split(r"[\W_]+", database.lower())))


def require_for_tests(database: str) -> None:
    """Refuse to run the jobs of a database by its name.

    Raises:
        ConfigurationError: it does not say that it is for tests.
    """
    if not is_for_tests(database):
        raise ConfigurationError(
            f"drain would run the jobs that wait in the database {database!r}, which may be in use: its name has no "
            "word test. Keep the queue's jobs in memory (fixture pgqueue_memory, or in_memory(queue)) or in a database "
            "for tests (fixture pgqueue_queue); to run these all the same, drain(queue, allow_real=True)"
        )
