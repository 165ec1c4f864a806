"""The tables of a lake that are copied from the database, and their columns, as Spark and as Arrow name their types."""

from collections.abc import Mapping

import pyarrow as pa

from pgqueue.spark.lake import files
from pgqueue.store.pipeline.extract_tables import TABLES, ColumnKind

ENDED = "ended"
WORKERS = "workers"
DEPLOYS = "deploys"
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


def _in_arrow(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in columns.items()])


ENDED_TABLE = _in_arrow(ENDED_COLUMNS)
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
WORKER_SCHEMA, DEPLOY_SCHEMA = _in_arrow(WORKER_COLUMNS), _in_arrow(DEPLOY_COLUMNS)
