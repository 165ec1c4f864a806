"""What the schema says of its tables and columns, read from its files: no database is asked."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache

from pgqueue.store.shipped import shipped

_ON = re.compile(
    r"^comment on (?:table|column) pgqueue\.([\w.]+) is\s+((?:'(?:[^']|'')*'\s*)+);", re.MULTILINE
)
_PART = re.compile(r"'((?:[^']|'')*)'")
_AS_IN = re.compile(r"As in (\w+)(.*)\.")
_TABLE = re.compile(r"^create (?:unlogged )?table pgqueue\.(\w+) \((.*?);$", re.DOTALL | re.MULTILINE)
_LIKE = re.compile(r"^ *like pgqueue\.(\w+)", re.MULTILINE)
_REQUIRED = re.compile(r"^ +(\w+) +[\w ]+? +(?:not null|primary key)", re.MULTILINE)


@cache
def comments() -> Mapping[str, str]:
    """All comments, by ``table`` or ``table.column``; a later file of the schema has the last word."""
    return {found[1]: "".join(_PART.findall(found[2])).replace("''", "'") for found in _ON.finditer(_text())}


def column_comment(name: str, *tables: str) -> str:
    """The comment of a column, from the first of these tables that has one; "As in ..." is looked up. Empty: none has."""
    named = (
        found for table in tables for one in _with_like(table) if (found := comments().get(f"{one}.{name}"))
    )
    said = next(named, "")
    other = _AS_IN.fullmatch(said)
    meant = column_comment(name, other[1]) if other is not None else ""
    return f"{meant.removesuffix('.')}{other[2]}." if meant and other is not None else said


def columns_with_comment(table: str) -> AbstractSet[str]:
    """The columns of a table that have a comment."""
    split = (one.partition(".") for one in comments())
    return {column for of, _, column in split if column and of in _with_like(table)}


def required(table: str) -> AbstractSet[str]:
    """The columns of a table that are never null."""
    return {name for one in _with_like(table) for name in _REQUIRED.findall(_statements()[one])}


def _with_like(table: str) -> tuple[str, ...]:
    """A table, and that whose columns it has, too."""
    like = _LIKE.search(_statements().get(table, ""))
    return (table, like[1]) if like is not None else (table,)


@cache
def _statements() -> Mapping[str, str]:
    return {found[1]: found[2] for found in _TABLE.finditer(_text())}


@cache
def _text() -> str:
    folder = shipped("sql") / "schema"
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".up.sql"))
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
