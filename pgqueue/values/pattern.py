"""Patterns of queues' names: ``*`` stands for any characters, or none. One rule for workers, operators and tests.

``pgqueue.serves`` in ``sql/schema/0007_queues.up.sql`` is the same rule in SQL.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

EXCLUDES = "!"
"""What an entry begins with whose queues a worker does not serve."""


def is_pattern(text: str) -> bool:
    """Whether it names queues by a pattern."""
    return "*" in text


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern stands for, in their order; a name without ``*`` stands for itself."""
    if not is_pattern(pattern):
        return [pattern]
    return [name for name in names if stands_for(pattern, name)]


@lru_cache(maxsize=4096)
def stands_for(pattern: str, name: str) -> bool:
    """Whether a pattern stands for a name."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
