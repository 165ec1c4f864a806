"""The lists of columns that statements share, and how a statement names one.

A statement of ``sql/`` has the name of a list in braces: ``{carried}`` stands for ``created_at, collisions, priority, …``. With a
pattern after a colon, each column is written by the pattern, in which ``NAME`` is its name and ``TYPE`` its type:
``{sent: %(NAME)s::TYPE}`` stands for ``%(meta)s::jsonb``. The catalogue writes the lists out when it reads a file, so
PostgreSQL gets plain SQL.

The files of ``sql/schema/`` name each column: a revision makes the same tables in each release, and these lists grow.
"""

import re
from collections.abc import Mapping

from pgqueue.store import columns
from pgqueue.store.columns import Column, Columns, Type
from pgqueue.values.jobs.job import Job

_DOCUMENTS = (Type.JSON, Type.JSONB)


def _of_type(described: Columns, *types: Type) -> tuple[Column, ...]:
    return tuple(column for column in described if column.type in types)


def _others(described: Columns, *types: Type) -> tuple[Column, ...]:
    return tuple(column for column in described if column.type not in types and column.name != "unique_key")


LISTS: Mapping[str, Columns] = {
    "sent": columns.SENT,
    "given": columns.GIVEN,
    "new": columns.NEW,
    "key": columns.KEY,
    "limited": columns.LIMITED,
    "carried": columns.CARRIED,
    "kept": columns.KEPT,
    "ended": columns.ENDED,
    "documents of ended": _of_type(columns.ENDED, *_DOCUMENTS),
    "instants of ended": _of_type(columns.ENDED, Type.TIMESTAMP),
    "others of ended": _others(columns.ENDED, *_DOCUMENTS, Type.TIMESTAMP),
}
"""Columns by the name of their list, for patterns, and without a pattern their names."""


_SHOWN = {
    Type.JSON: "{0}::text",
    Type.JSONB: "{0}::text",
    Type.TIMESTAMP: "pgqueue.as_datetime({0})",
}
"""How a column is selected for Python, which reads JSON itself, and not every instant."""

_READ = {
    Type.JSON: "{0}::text as {0}",
    Type.JSONB: "{0}::text as {0}",
    Type.UUID: "{0}::text as {0}",
    Type.TEXT: "{0}::text as {0}",
    Type.SMALLINT: "{0}::smallint as {0}",
}
"""How a column is selected for Spark: the types below the domains; JSON and ids of workers as text."""


def _shown() -> str:
    types = {column.name: column.type for column in columns.ALL_JOBS}
    return ", ".join(_SHOWN.get(types[name], "{0}").format(name) for name in Job.__struct_fields__)


def _read(described: Columns, **given: str) -> str:
    """Columns as Spark reads them; ``given``: those that the table does not have, as expressions."""
    return ", ".join(
        f"{given[name]} as {name}" if name in given else _READ.get(kind, "{0}").format(name)
        for name, kind, _ in described
        if name not in columns.NOT_READ
    )


_LAST_LINE = (
    "case when errors -> -1 ->> 'encoded' is null then "
    "translate(left(split_part(errors -> -1 ->> 'message', E'\\n', 1), 500), '0123456789', '') end"
)
_ERROR_GROUP = rf"concat(task, E'\x1f', errors -> -1 ->> 'type', E'\x1f', reason, E'\x1f', {_LAST_LINE})"
"""What :func:`pgqueue.values.jobs.error_group.error_group_key` hashes."""

PROJECTIONS: Mapping[str, str] = {
    "shown": _shown(),
    "error group": f"left(encode(sha256(convert_to({_ERROR_GROUP}, 'UTF8')), 'hex'), 32)",
    "jobs as read": _read(columns.JOBS),
    "history as read": _read(columns.HISTORY),
    "dead as read": _read(columns.DEAD),
    "history as ended": _read(columns.ENDED, reason="null::text", ended_at="finished_at"),
    "dead as ended": _read(columns.ENDED, outcome="'dead'::text", ended_at="died_at", result="null::text"),
}
"""Select lists by their name: ``shown`` for :class:`Job`, in the order of its fields; ``error group``, the key of the group of errors
that a job is in; the others for Spark and the lake."""


def with_lists(text: str) -> str:
    """A statement with its lists written out.

    Raises:
        KeyError: it names a list that does not exist.
    """
    return _NAMED.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    name, pattern = found.groups()
    if name in PROJECTIONS and pattern is None:
        return PROJECTIONS[name]
    return ", ".join(
        (pattern or "NAME").replace("NAME", column.name).replace("TYPE", column.type)
        for column in LISTS[name]
    )


_NAMED = re.compile(r"\{([a-z][a-z ]*)(?:: ([^{}]+))?\}")
