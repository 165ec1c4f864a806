"""Patterns of queues' names: ``*`` stands for any characters, or none. One rule for workers, operators and tests.

``pgqueue.serves`` in ``sql/schema/0001_07_queues.up.sql`` is the same rule in SQL.
"""

from collections.abc import Iterable
from functools import lru_cache

EXCLUDES = "!"
"""What an entry begins with whose queues a worker does not serve."""


def is_pattern(text: str) -> bool:
    """Whether it names queues by a pattern."""
    return "*" in text


def matching_names(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern stands for, in their order; a name without ``*`` stands for itself."""
    if not is_pattern(pattern):
        return [pattern]
    return [name for name in names if stands_for(pattern, name)]


@lru_cache(maxsize=4096)
def stands_for(pattern: str, name: str) -> bool:
    """Whether a pattern stands for a name. A regular expression with six ``*`` takes 24 s to refuse 100 characters."""
    begins, *parts = pattern.split("*")
    if not parts:
        return pattern == name
    *middle, ends = parts
    at, end = len(begins), len(name) - len(ends)
    if at > end or not (name.startswith(begins) and name.endswith(ends)):
        return False
    for part in middle:  # each at the first place where it stands: a later one leaves less for the next
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
