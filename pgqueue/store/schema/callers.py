"""Who may call which of the schema's functions, as the files of ``sql/schema`` say in front of each function.

The line ``-- callers: worker, operator`` is the only source: the last file of the schema takes all other rights away, ``pgqueue grants``
gives a role those that these lines name, and a test compares both with the catalogue of a database.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from pgqueue.store.shipped import shipped

PUBLIC: Final = "public"
WORDS: Final = frozenset(
    {
        PUBLIC,
        "owner",
        "trigger",
        "worker",
        "operator",
        "producer",
        "reader",
        "producer:signals",
        "pipeline",
        "sink",
    }
)
GUARD: Final = "shard_guard"
"""The file whose functions only a shard has."""
_MADE = re.compile(
    r"^-- callers: (.+)\ncreate (?:or replace )?(?:function|aggregate) pgqueue\.(\w+)", re.MULTILINE
)


@cache
def callers(*, of_shards: bool = False) -> Mapping[str, frozenset[str]]:
    """The callers of each function, by its name.

    Args:
        of_shards: the functions that only a shard has, in place of those that every schema has.
    """
    found: dict[str, frozenset[str]] = {}
    for file in sorted(shipped("sql").joinpath("schema").iterdir(), key=lambda one: one.name):
        if file.name == f"{GUARD}.sql" if of_shards else file.name.endswith(".up.sql"):
            for said, name in _MADE.findall(file.read_text(encoding="utf-8")):
                found[name] = frozenset(said.split(", "))
    return found


def functions_for(caller: str) -> list[str]:
    """The functions that a caller may call and ``public`` may not, in the order in which they are made."""
    return [name for name, allowed in callers().items() if caller in allowed]
