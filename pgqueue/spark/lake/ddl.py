"""The statements that register a lake's tables in a catalogue.

Each engine reads which files count from the table's log, so a statement stays true after a compaction, an erasure or a new day. None
names the files themselves. Where the engine takes columns and comments from the log, too, the statement has none; a view of DuckDB
has them.
"""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum

from pgqueue.errors import InvalidOption
from pgqueue.spark.lake.comments import comment_of, texts
from pgqueue.spark.lake.folder import LOCAL
from pgqueue.spark.lake.lake import Lake

SCHEMA = "pgqueue"
_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)


class Dialect(StrEnum):
    """Whose statements they are."""

    SPARK = "spark"
    """Spark with Delta's jar, in its own catalogue or in Hive's."""
    UNITY = "unity"
    """Databricks with Unity Catalog: external tables."""
    GLUE = "glue"
    """Athena, in the catalogue of AWS Glue."""
    TRINO = "trino"
    """Trino with its connector for Delta."""
    DUCKDB = "duckdb"
    """DuckDB with its extension ``delta``: views."""


def statements(lake: Lake, dialect: Dialect, *, into: str | None = None) -> list[str]:
    """The statements, in their order, without semicolons.

    Args:
        lake: the lake; only tables that it has are registered.
        dialect: whose statements.
        into: the schema, or the catalogue and the schema (``main.jobs``); ``pgqueue`` by default, which Trino finds in the
            catalogue ``delta``.

    Raises:
        InvalidOption: the name cannot be used, or the engine cannot reach a lake in this place.
        LakeError: there is no lake.
    """
    lake.marker()
    made, reaches = WRITERS[dialect], REACHES.get(dialect)
    scheme = lake.uri.partition("://")[0]
    if reaches is not None and scheme not in reaches:
        raise InvalidOption(
            f"{dialect} reads {' and '.join(f'{one}://' for one in reaches)}, and the lake is {lake.uri}"
        )
    target = into or ("delta.pgqueue" if dialect is Dialect.TRINO else SCHEMA)
    if not all(_NAME.fullmatch(part) for part in target.split(".")):
        raise InvalidOption(f"{target!r}: name a schema, or a catalogue and a schema, such as main.jobs")
    there = [name for name in texts() if lake.table(name).exists()]
    begun = BEFORE.get(dialect, "create schema if not exists {target}").format(target=target)
    return [
        *filter(None, begun.split("; ")),
        *(one for name in there for one in made(lake, name, target)),
    ]


def table_name(folder: str) -> str:
    """The name of a table in a catalogue: that of its folder, such as ``rollup_hours``."""
    return folder.replace("/", "_")


def _spark(lake: Lake, name: str, target: str) -> Iterator[str]:
    place = re.sub(r"^s3:", "s3a:", f"{lake.uri}/{name}")  # Hadoop's name of the file system
    yield f"create table if not exists {target}.{table_name(name)} using delta location {_escaped(place)}"


def _unity(lake: Lake, name: str, target: str) -> Iterator[str]:
    place = _escaped(f"{lake.uri}/{name}")
    yield f"create table if not exists {target}.{table_name(name)} using delta location {place}"


def _glue(lake: Lake, name: str, target: str) -> Iterator[str]:
    place = _escaped(f"{lake.uri}/{name}/")
    yield (
        f"create external table if not exists {target}.{table_name(name)} location {place} "
        "tblproperties ('table_type' = 'DELTA')"
    )


def _trino(lake: Lake, name: str, target: str) -> Iterator[str]:
    catalogue, _, schema = target.rpartition(".")
    yield (
        f"call {catalogue or 'delta'}.system.register_table(schema_name => {_quoted(schema)}, "
        f"table_name => {_quoted(table_name(name))}, table_location => {_quoted(f'{lake.uri}/{name}')})"
    )


def _duckdb(lake: Lake, name: str, target: str) -> Iterator[str]:
    table = f"{target}.{table_name(name)}"
    yield f"create or replace view {table} as select * from delta_scan({_quoted(f'{lake.uri}/{name}')})"
    yield f"comment on view {table} is {_quoted(texts()[name].comment)}"
    for field in lake.table(name).schema():
        if said := comment_of(field):
            yield f'comment on column {table}."{field.name}" is {_quoted(said)}'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str) -> str:
    """A text of Spark and Hive, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: dict[Dialect, Callable[[Lake, str, str], Iterator[str]]] = {
    Dialect.SPARK: _spark,
    Dialect.UNITY: _unity,
    Dialect.GLUE: _glue,
    Dialect.TRINO: _trino,
    Dialect.DUCKDB: _duckdb,
}
BEFORE = {
    Dialect.DUCKDB: "install delta; load delta; create schema if not exists {target}",
}
"""What comes before the tables, where it is not only the schema."""
REACHES = {
    Dialect.UNITY: ("s3", "gs"),
    Dialect.GLUE: ("s3",),
    Dialect.TRINO: ("s3", "gs", LOCAL),
}
"""The file systems that an engine reads; the others read all of a lake's."""
