"""The columns of the tables that are copied from the database, and those that a lake leaves out or holds as hashes.

Which columns are hidden is decided when the lake is made, and noted in it, so all of its days are alike. A hash is the SHA-256 of
a secret key and the column's text: equal values have equal hashes, and who does not know the key cannot find a value by trying. A
column of JSON holds the hash as a JSON string.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pgqueue.errors import ConfigurationError, LakeError
from pgqueue.spark.config import HiddenColumns
from pgqueue.spark.lake import files
from pgqueue.store.pipeline.extract_where import TABLES, ColumnKind
from pgqueue.store.pipeline.lake import HiddenValues

if TYPE_CHECKING:
    from pyspark.sql import Column

ENDED = "ended"
WORKERS = "workers"
DEPLOYS = "deploys"
KEY = "PGQUEUE_LAKE_KEY"
SHORTEST_KEY = 16
TYPES: Mapping[ColumnKind, str] = {
    ColumnKind.BIGINT: "bigint",
    ColumnKind.INTEGER: "int",
    ColumnKind.SMALLINT: "smallint",
    ColumnKind.TEXT: "string",
    ColumnKind.JSON: "string",
    ColumnKind.TIMESTAMP: "timestamp",
    ColumnKind.DATE: "date",
}
ENDED_COLUMNS: Mapping[str, str] = {name: TYPES[kind] for name, kind in TABLES["ended"].columns.items()}
ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}


def _arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in columns.items()])


ENDED_TABLE = _arrow_schema(ENDED_COLUMNS)
ENDED_SCHEMA = pa.schema([field for field in ENDED_TABLE if field.name != files.PARTITION])
"""The columns of ended jobs, as their files have them: without the day."""
WORKER_COLUMNS: Mapping[str, str] = {
    "id": "string",
    "started_at": "timestamp",
    "ended_at": "timestamp",
    "concurrency": "int",
    "host": "string",
    "version": "string",
    "queues": "string",
}
DEPLOY_COLUMNS: Mapping[str, str] = {"deployed_at": "timestamp", "version": "string"}
WORKER_SCHEMA, DEPLOY_SCHEMA = _arrow_schema(WORKER_COLUMNS), _arrow_schema(DEPLOY_COLUMNS)


def hidden_values(choice: HiddenColumns, key_id: str | None = None) -> HiddenValues:
    """The choice, with the key from the environment.

    Args:
        choice: the lake's.
        key_id: of the lake's key, see :func:`id_of`; None: any key.

    Raises:
        ConfigurationError: the key is missing or too short, or is another lake's.
    """
    if not choice.hashed:
        return HiddenValues(choice.leave_out, (), "")
    key = os.environ.get(KEY, "")
    if len(key) < SHORTEST_KEY:
        raise ConfigurationError(
            f"the lake hashes {', '.join(choice.hashed)}: set {KEY} to its secret key, {SHORTEST_KEY} characters or more"
        )
    if key_id is not None and id_of(key) != key_id:
        raise ConfigurationError(f"{KEY} is not the key with which this lake was made")
    return HiddenValues(choice.leave_out, choice.hashed, key)


def id_of(key: str) -> str:
    """Twelve letters by which a lake knows its key."""
    return hashlib.sha256(f"pgqueue:{key}".encode()).hexdigest()[:12] if key else ""


def hash_of(text: str, key: str) -> str:
    """The hash that a column of text holds."""
    return hashlib.sha256(f"{key}{text}".encode()).hexdigest()


def shown(schema: pa.Schema, of: HiddenValues) -> pa.Schema:
    """The columns that are read from the database: what is left out does not leave it."""
    return pa.schema([field for field in schema if field.name not in of.left_out])


def hide(rows: pa.Table, schema: pa.Schema, of: HiddenValues) -> pa.Table:
    """Rows as the lake holds them.

    Args:
        rows: with the columns of :func:`shown`.
        schema: the columns of ended jobs.
        of: what is hidden.
    """
    if not (of.left_out or of.hashed):
        return rows
    columns = []
    for field in schema:
        if field.name in of.left_out:
            columns.append(pa.nulls(rows.num_rows, field.type))
        elif field.name in of.hashed:
            quote = _quote(field.name)
            texts = rows[field.name].to_pylist()
            hashes = [None if text is None else f"{quote}{hash_of(text, of.key)}{quote}" for text in texts]
            columns.append(pa.array(hashes, field.type))
        else:
            columns.append(rows[field.name])
    return pa.table(columns, schema=schema)


def hidden_column(name: str, of: HiddenValues) -> "Column":
    """A column as the lake holds it."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    if name in of.left_out:
        return f.lit(None).cast("string").alias(name)
    if name in of.hashed:
        quote = f.lit(_quote(name))
        return f.concat(quote, f.sha2(f.concat(f.lit(of.key), f.col(name)), 256), quote).alias(name)
    return f.col(name)


def named_in(condition: str, names: Collection[str]) -> list[str]:
    """Which of these columns an expression names."""
    return [name for name in names if re.search(rf"\b{name}\b", condition, re.IGNORECASE)]


def require_shown(condition: str, choice: HiddenColumns) -> None:
    """Check that an expression over ended jobs does not need what the lake does not hold.

    Raises:
        LakeError: it names a column that is hidden.
    """
    if found := named_in(condition, choice.names):
        raise LakeError(f"the condition needs {', '.join(found)}, and this lake {choice}: use other columns")


def _quote(name: str) -> str:
    return '"' if TABLES["ended"].columns[name] is ColumnKind.JSON else ""
